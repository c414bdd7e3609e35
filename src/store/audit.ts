import type { Prisma } from '../generated/prisma/client.ts';
import { NIL_UUID, newId } from '../platform/ids.ts';
import type { Json } from '../profile/json.ts';
import { type Connection, type Database, type Pool, storable } from './database.ts';
import { inTransaction } from './transactions.ts';

/**
 * Every action that is audited, with the ways by which it is done. A way is a command of `penstock`, a route of the
 * console, an operation of SCIM, or a sentence in brackets. A rule of the tests holds that no way is missing.
 */
export const auditActions = {
  'accounts.create': ['scim.users.create'],
  'accounts.change': ['scim.users.replace', 'scim.users.patch', 'post /accounts/:id/permissions'],
  'accounts.delete': ['scim.users.delete'],
  'api_keys.create': ['penstock keys create', 'post /keys'],
  'api_keys.revoke': ['penstock keys revoke', 'post /keys/:id'],
  'audit.download': ['get /audit.csv'],
  'companies.create': ['penstock companies create'],
  'dead_letters.discard': ['penstock dead-letters discard', 'post /dead-letters', 'post /dead-letters/:id'],
  'dead_letters.mend': ['penstock dead-letters mend', 'post /dead-letters/:id'],
  'dead_letters.replay': [
    'penstock dead-letters replay',
    'post /dead-letters',
    'post /dead-letters/:id',
    '(a retry of Bull Board)',
  ],
  'exports.begin': ['penstock export'],
  'imports.begin': ['penstock import'],
  'imports.drop': ['penstock import drop'],
  'integrations.create': ['penstock integrations create'],
  'integrations.delete': ['penstock integrations delete'],
  'integrations.pause': ['penstock integrations pause', 'post /syncs/:id'],
  'integrations.resume': ['penstock integrations resume', 'post /syncs/:id'],
  'integrations.update': ['penstock integrations update'],
  'invitations.accept': ['(the form behind an invitation)'],
  'invitations.create': ['penstock accounts invite', 'post /accounts/:id'],
  'invitations.revoke': ['post /accounts/:id'],
  'permission_sets.change': ['post /permission-sets/:id'],
  'permission_sets.create': ['penstock permission-sets create', 'post /teams'],
  'permission_sets.delete': ['post /permission-sets/:id'],
  'phone_numbers.mark_invalid': ['penstock phone-numbers mark-invalid'],
  'preference_links.revoke': ['penstock preference-centers revoke'],
  'queue.confirm_loss': ['penstock queue confirm-loss'],
  'queue.set_lanes': ['penstock queue set-lanes'],
  'rate_limits.reset': ['penstock limits reset', 'post /workspaces/:id'],
  'rate_limits.set': ['penstock limits set', 'post /workspaces/:id'],
  'retention.erase': ['penstock retention erase'],
  'retention.restore': ['penstock retention restore'],
  'retention.run': ['penstock retention run'],
  'retention.set': ['penstock retention set'],
  'scim_tokens.issue': ['penstock scim-tokens issue'],
  'scim_tokens.revoke': ['penstock scim-tokens revoke'],
  'scim_tokens.rotate': ['penstock scim-tokens rotate'],
  'segments.archive': ['penstock segments archive', 'post /segments/:id'],
  'segments.create': ['penstock segments create', 'post /segments'],
  'segments.update': ['penstock segments update', 'post /segments/:id'],
  'series.recount': ['penstock series recount'],
  'sessions.begin': ['(signing in)'],
  'sessions.end': ['post /accounts/:id', 'post /sessions', '(signing out)'],
  'sign_ins.fail': ['(wrong passwords, and people of the OpenID provider without an account, by the minute)'],
  'streams.create': ['penstock streams create'],
  'streams.erase': ['penstock streams erase'],
  'streams.pause': ['penstock streams pause', 'post /streams'],
  'streams.remove': ['penstock streams remove'],
  'streams.replay': ['penstock streams replay-from'],
  'streams.resume': ['penstock streams resume', 'post /streams'],
  'subscription_groups.archive': ['penstock groups archive'],
  'subscription_groups.create': ['penstock groups create'],
  'syncs.cancel': ['penstock integrations cancel', 'post /syncs/:id'],
  'syncs.download_rows': ['get /syncs/:id/runs/:run/rows.csv'],
  'syncs.start': ['penstock integrations sync', 'post /syncs/:id'],
  'teams.create': ['penstock teams create', 'post /teams'],
  'teams.delete': ['post /teams/:id'],
  'teams.rename': ['post /teams/:id'],
  'users.block': ['penstock users block'],
  'users.delete': ['penstock users delete', 'post /users/:service_id/delete'],
  'users.export': ['penstock users export', 'get /users/:service_id/export'],
  'users.unblock': ['penstock users unblock'],
  'workspaces.create': ['penstock workspaces create'],
  'workspaces.move': ['penstock workspaces move'],
} as const satisfies Record<string, readonly string[]>;

export type AuditAction = keyof typeof auditActions;

export type AuditVia = 'console' | 'command_line' | 'scim' | 'dashboard';

/** The company of what belongs to the installation. */
export const NO_COMPANY = NIL_UUID;

/** Who acts, and from where. */
export interface Actor {
  kind: 'account' | 'operator' | 'scim_token' | 'nobody';
  id?: string | undefined;
  /** An address, BOARD_USER, or the user of the machine; of a SCIM token the store looks it up. */
  name?: string;
  via: AuditVia;
  /** Address of the client; absent: of this machine. */
  address?: string | undefined;
}

/** What was done. It holds no secret, and names no person but by ids of ours. */
export interface AuditEntry {
  action: AuditAction;
  /** Singular, in the words of the tables: `api_key`. */
  subject: { kind: string; id: string };
  workspaceId?: string | undefined;
  /** Absent: that of the workspace, or of the installation. */
  companyId?: string | undefined;
  detail?: Record<string, Json>;
}

// The company is the workspace's, and the name the token's, unless they are given. Both by primary key.
const insertAuditStatement = `
  insert into audit (id, company_id, workspace_id, actor_kind, actor_id, actor_name, via, address,
    action, subject_kind, subject_id, detail)
  select given.id, coalesce(given.company_id, workspaces.company_id, '${NO_COMPANY}'), given.workspace_id,
    given.actor_kind, given.actor_id, coalesce(given.actor_name, scim_tokens.name, ''), given.via, given.address,
    given.action, given.subject_kind, given.subject_id, given.detail
  from jsonb_to_recordset($1::jsonb) as given (id uuid, company_id uuid, workspace_id uuid, actor_kind text,
    actor_id uuid, actor_name text, via text, address text, action text, subject_kind text, subject_id text,
    detail jsonb)
  left join workspaces on workspaces.id = given.workspace_id
  left join scim_tokens on scim_tokens.id = given.actor_id and given.actor_kind = 'scim_token'`;

function rowsOf(actor: Actor, entries: readonly AuditEntry[]): string {
  const rows = entries.map(({ action, subject, workspaceId, companyId, detail = {} }) => ({
    ...{ id: newId(), company_id: companyId, workspace_id: workspaceId },
    ...{ actor_kind: actor.kind, actor_id: actor.id, via: actor.via, address: actor.address },
    actor_name: actor.name === undefined ? undefined : storable(actor.name).slice(0, 320),
    ...{ action, subject_kind: subject.kind, subject_id: storable(subject.id), detail },
  }));
  return JSON.stringify(rows);
}

/** Appends entries in the open transaction. Of a pool, it is one of its own: for what is done elsewhere. */
export async function recordAudit(
  tx: Pick<Connection, 'query'>,
  actor: Actor,
  entries: readonly AuditEntry[],
): Promise<void> {
  if (entries.length === 0) return;
  const text = insertAuditStatement;
  await tx.query({ name: 'insert-audit', text, values: [rowsOf(actor, entries)] });
}

/** The same as a member of a transaction of Prisma's. */
export function auditIn(
  prisma: Pick<Prisma.TransactionClient, '$executeRawUnsafe'>,
  actor: Actor,
  entries: readonly AuditEntry[],
): Prisma.PrismaPromise<number> {
  return prisma.$executeRawUnsafe(insertAuditStatement, rowsOf(actor, entries));
}

/**
 * Commits what `work` does together with the entries that tell of it, or neither.
 *
 * @param work returns its result, and what it has changed; no entry: nothing
 */
export function audited<T>(
  pool: Pool,
  actor: Actor,
  work: (tx: Connection) => Promise<{ result: T; entries: readonly AuditEntry[] }>,
): Promise<T> {
  return inTransaction(pool, async (tx) => {
    const { result, entries } = await work(tx);
    await recordAudit(tx, actor, entries);
    return result;
  });
}

// The row is locked, so that the change behind this one in the transaction finds it as it is here, or not at all.
const auditAccountStatement = `
  with found as (
    select accounts.id, accounts.company_id
    from accounts
    where accounts.id = $2::uuid and accounts.company_id = $3::uuid and ($4::integer is null or accounts.version = $4)
    for update
  ),
  given as (
    select * from jsonb_to_recordset($1::jsonb) as one (id uuid, actor_id uuid, via text, address text, action text,
      detail jsonb)
  )
  insert into audit (id, company_id, actor_kind, actor_id, actor_name, via, address, action, subject_kind, subject_id, detail)
  select given.id, found.company_id, 'scim_token', given.actor_id,
    coalesce((select scim_tokens.name from scim_tokens where scim_tokens.id = given.actor_id), ''),
    given.via, given.address, given.action, 'account', found.id::text, given.detail
  from given, found`;

/** An account as it has to be for the entry to be true. */
export interface AuditedAccount {
  id: string;
  companyId: string;
  /** Absent: any. */
  version?: number | undefined;
}

/** Tells of a change of an account that follows in the same transaction of Prisma's; nothing, where none can follow. */
export function auditAccountIn(
  prisma: Pick<Prisma.TransactionClient, '$executeRawUnsafe'>,
  actor: Actor,
  {
    account: { id, companyId, version },
    ...entry
  }: { account: AuditedAccount } & Pick<AuditEntry, 'action' | 'detail'>,
): Prisma.PrismaPromise<number> {
  const rows = rowsOf(actor, [{ ...entry, subject: { kind: 'account', id } }]);
  return prisma.$executeRawUnsafe(auditAccountStatement, rows, id, companyId, version ?? null);
}

/**
 * A write that Postgres itself ends after a second, in less time than the caller waits for it. One that was answered
 * with 503 has not been made, and will not be made a moment later, when a lock is given back.
 *
 * @param audit what tells of it, in the same transaction
 */
export async function inTime<T>(
  prisma: Database['prisma'],
  audit: Prisma.PrismaPromise<number>,
  write: Prisma.PrismaPromise<T>,
): Promise<T> {
  const [, , written] = await prisma.$transaction([
    prisma.$executeRaw`set local statement_timeout = 1000`,
    audit,
    write,
  ]);
  return written;
}
