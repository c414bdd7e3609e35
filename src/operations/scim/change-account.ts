import { isDeepStrictEqual } from 'node:util';
import { validate } from 'uuid';
import { ApiError, type ErrorName } from '../../errors.ts';
import { normalizeStaffEmail } from '../../profile/addresses.ts';
import type { Json } from '../../profile/json.ts';
import { type Actor, auditAccountIn, inTime } from '../../store/audit.ts';
import type { Database } from '../../store/database.ts';
import type { AboutRequest, Caller, DirectInput, Reply, Resources } from '../operation.ts';
import { invalid, ScimError } from './messages.ts';
import { readProjection } from './query.ts';
import { type AccountValues, readAccount, toColumns } from './read-account.ts';
import { type Account, locationOf, readNames, toResource, versionOf } from './resource.ts';

/** The company whose SCIM token the caller has. */
export function companyOf({ companyId }: Caller): string {
  if (companyId === undefined) throw new TypeError('an operation of SCIM was asked without a SCIM token');
  return companyId;
}

/** Whom the audit names: the token, by its id. */
export function actorOf({ scimToken }: Caller): Actor {
  return { kind: 'scim_token', ...scimToken, via: 'scim' };
}

export function requestOf({ request }: DirectInput): AboutRequest {
  return request ?? { baseUrl: '' };
}

/** An account of the company. @throws {ScimError} with the given entry when the company has no such account */
export async function findAccount(
  prisma: Database['prisma'],
  { companyId, id }: { companyId: string; id: string },
  missing: ErrorName,
): Promise<Account> {
  const account = validate(id) ? await prisma.account.findFirst({ where: { id, companyId } }) : null;
  if (account === null) throw new ScimError(missing);
  return account;
}

/** How often a change is tried again that meets another one. */
const TRIES = 5;

/**
 * Changes an account: reads it, checks the precondition, and writes what `bodyFor` makes of it, unless it has
 * been changed meanwhile; then once more from the start.
 *
 * @param bodyFor the account's new body, which has passed `replaceSchema`
 * @throws {ScimError} 404, 412, 400
 */
export async function changeAccount(
  { caller, input, resources }: { caller: Caller; input: DirectInput; resources: Resources },
  bodyFor: (current: Account, resource: () => Promise<Record<string, Json>>) => Promise<Record<string, Json>>,
): Promise<Reply> {
  const { prisma } = resources.database;
  const companyId = companyOf(caller);
  const { baseUrl, ifMatch } = requestOf(input);
  const project = readProjection(input.query);
  for (let tries = 0; tries < TRIES; tries++) {
    const current = await findAccount(prisma, { companyId, id: input.params.id! }, 'scimUserNotFound');
    requireMatch(ifMatch, current);
    const body = await bodyFor(current, async () =>
      toResource(current, await readNames(prisma, [current]), baseUrl),
    );
    requireSameUserName(body.userName, current);
    const values = await readAccount(prisma, { companyId, body, active: current.active });
    // RFC 7644 §3.5.2.1: what changes nothing leaves the time of the last change, and so the version.
    const changed = hasAll(current, values)
      ? current
      : await write(prisma, current, { values, now: new Date(caller.now), actor: actorOf(caller) });
    if (changed) return replyWith({ status: 200, account: changed, baseUrl, project }, prisma);
  }
  throw new ApiError('unavailable', { headers: { 'Retry-After': '1' } });
}

/** RFC 7644 §3.14. @throws {ScimError} 412 when the client knows another version than there is */
export function requireMatch(ifMatch: string | undefined, account: Account): void {
  if (ifMatch !== undefined && !namesVersion(ifMatch, account)) throw new ScimError('scimVersionChanged');
}

/** Whether one of the entity tags is that of the account; a weak one and a strong one are the same. */
export function namesVersion(tags: string, account: Account): boolean {
  const opaque = versionOf(account).replace(/^W\//, '');
  return tags.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === opaque);
}

interface AccountReply {
  status: number;
  account: Account;
  /** Scheme and host that the caller knows us by. */
  baseUrl: string;
  /** Leaves of the resource what the caller wants to see. */
  project(resource: Record<string, Json>): Record<string, Json>;
}

export async function replyWith(
  { status, account, baseUrl, project }: AccountReply,
  prisma: Database['prisma'],
): Promise<Reply> {
  const resource = toResource(account, await readNames(prisma, [account]), baseUrl);
  return {
    status,
    body: project(resource),
    headers: {
      ETag: versionOf(account),
      [status === 201 ? 'Location' : 'Content-Location']: locationOf(account, baseUrl),
    },
  };
}

/** The specification: it cannot be updated. RFC 7644 §3.5.1: the value that there is may be sent. */
function requireSameUserName(given: Json | undefined, { email }: Account): void {
  if (given === undefined || normalizeStaffEmail(String(given)) === email) return;
  throw invalid("'userName' cannot be changed", 'mutability');
}

function hasAll(account: Account, values: AccountValues): boolean {
  return Object.entries(values).every(([name, value]) => isSame(account, name, value));
}

function isSame(account: Account, name: string, value: unknown): boolean {
  return isDeepStrictEqual(account[name as keyof AccountValues], value);
}

/** @returns nothing when another change was faster */
async function write(
  prisma: Database['prisma'],
  current: Account,
  { values, now, actor }: { values: AccountValues; now: Date; actor: Actor },
): Promise<Account | undefined> {
  const { id, companyId, version, modifiedAt } = current;
  const update = prisma.account.updateManyAndReturn({
    where: { id, companyId, version },
    data: {
      ...toColumns(values),
      version: { increment: 1 },
      // A request that waited for its turn came earlier than one that did not.
      modifiedAt: now > modifiedAt ? now : modifiedAt,
      // Whoever is deactivated is signed out for good, also when the account is active again a moment later.
      ...(!values.active && {
        sessionEpoch: { increment: 1 },
        ...{ invitationHash: null, invitationExpiresAt: null },
      }),
    },
  });
  // Which members, and not what they are: a name is a person's.
  const names = Object.entries(values).filter(([name, value]) => !isSame(current, name, value));
  const detail = { changed: names.map(([name]) => name), active: values.active };
  const account = { id, companyId, version };
  const entry = { action: 'accounts.change', detail, account } as const;
  const [changed] = await inTime(prisma, auditAccountIn(prisma, actor, entry), update);
  return changed;
}
