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

/** Returns the id of the company that the caller's SCIM token belongs to. */
export function companyOf({ companyId }: Caller): string {
  if (companyId === undefined) throw new TypeError('an operation of SCIM was asked without a SCIM token');
  return companyId;
}

/** Returns the actor for the audit log: the SCIM token, by its id. */
export function actorOf({ scimToken }: Caller): Actor {
  return { kind: 'scim_token', ...scimToken, via: 'scim' };
}

export function requestOf({ request }: DirectInput): AboutRequest {
  return request ?? { baseUrl: '' };
}

/**
 * Finds an account of the company.
 * @throws {ScimError} with the entry `missing` if the company has no such account
 */
export async function findAccount(
  prisma: Database['prisma'],
  { companyId, id }: { companyId: string; id: string },
  missing: ErrorName,
): Promise<Account> {
  const account = validate(id) ? await prisma.account.findFirst({ where: { id, companyId } }) : null;
  if (account === null) throw new ScimError(missing);
  return account;
}

/** Maximum number of attempts if concurrent changes intervene. */
const MAX_ATTEMPTS = 5;

/**
 * Changes an account: reads it, checks the precondition, and writes the result of `bodyFor`. If the account has changed
 * in the meantime, it starts again, at most MAX_ATTEMPTS times.
 *
 * @param bodyFor returns the new body of the account, which must be valid by `replaceSchema`
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
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const current = await findAccount(prisma, { companyId, id: input.params.id! }, 'scimUserNotFound');
    requireMatch(ifMatch, current);
    const body = await bodyFor(current, async () =>
      toResource(current, await readNames(prisma, [current]), baseUrl),
    );
    requireSameUserName(body.userName, current);
    const values = await readAccount(prisma, { companyId, body, active: current.active });
    // RFC 7644 §3.5.2.1: a request without an effective change keeps the time of the last change, and so the version.
    const changed = hasAll(current, values)
      ? current
      : await write(prisma, current, { values, now: new Date(caller.now), actor: actorOf(caller) });
    if (changed) return replyWith({ status: 200, account: changed, baseUrl, project }, prisma);
  }
  throw new ApiError('unavailable', { headers: { 'Retry-After': '1' } });
}

/**
 * Checks `If-Match` (RFC 7644 §3.14).
 * @throws {ScimError} 412 if the account has another version
 */
export function requireMatch(ifMatch: string | undefined, account: Account): void {
  if (ifMatch !== undefined && !namesVersion(ifMatch, account)) throw new ScimError('scimVersionChanged');
}

/** Returns whether one of the entity tags is the account's. Weak and strong tags are equal. */
export function namesVersion(tags: string, account: Account): boolean {
  const opaque = versionOf(account).replace(/^W\//, '');
  return tags.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === opaque);
}

interface AccountReply {
  status: number;
  account: Account;
  /** Scheme and host of the request's URL. */
  baseUrl: string;
  /** Reduces the resource to the attributes that the caller requested. */
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

/**
 * Rejects another user name. The specification does not allow a change, but a client may send the current value
 * (RFC 7644 §3.5.1).
 */
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

/** Writes the account. Returns undefined if another change was faster. */
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
      // Keep the later time: a request that waited has an earlier `now` than a request that did not.
      modifiedAt: now > modifiedAt ? now : modifiedAt,
      // Deactivation ends the sessions permanently, even if the account is activated again immediately.
      ...(!values.active && {
        sessionEpoch: { increment: 1 },
        ...{ invitationHash: null, invitationExpiresAt: null },
      }),
    },
  });
  // The audit log names the changed members without their values, which are personal data.
  const names = Object.entries(values).filter(([name, value]) => !isSame(current, name, value));
  const detail = { changed: names.map(([name]) => name), active: values.active };
  const account = { id, companyId, version };
  const entry = { action: 'accounts.change', detail, account } as const;
  const [changed] = await inTime(prisma, auditAccountIn(prisma, actor, entry), update);
  return changed;
}
