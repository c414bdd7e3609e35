import type { Prisma } from '../generated/prisma/client.ts';
import { NIL_UUID, newId } from '../platform/ids.ts';
import type { Json } from '../profile/json.ts';
import { type Connection, type Database, type Pool, storable } from './database.ts';
import { inTransaction } from './transactions.ts';

/**
 * Every audited action with the ways to perform it: a `penstock` command, a console route, a SCIM operation,
 * or a description in parentheses. A rules test checks that the list is complete.
 */
export const auditActions = {
  'accounts.create': ['scim.users.create', 'penstock accounts create', 'post /accounts'],
  'accounts.change': [
    'scim.users.replace',
    'scim.users.patch',
    'penstock accounts give-permission-set',
    'penstock accounts give-team',
    'penstock accounts remove-permissions',
    'penstock accounts remove-team',
    'post /accounts/:id',
  ],
  'accounts.delete': ['scim.users.delete'],
  'api_keys.create': ['penstock keys create', 'post /keys'],
  'api_keys.revoke': ['penstock keys revoke', 'post /keys/:id'],
  'audit.download': ['get /audit.csv'],
  'companies.create': ['penstock companies create', 'post /companies'],
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
  'imports.drop': ['penstock import drop', 'post /imports/:id'],
  'integrations.create': ['penstock integrations create', 'post /syncs'],
  'integrations.delete': ['penstock integrations delete', 'post /syncs/:id'],
  'integrations.pause': ['penstock integrations pause', 'post /syncs/:id'],
  'integrations.resume': ['penstock integrations resume', 'post /syncs/:id'],
  'integrations.update': ['penstock integrations update', 'post /syncs/:id'],
  'invitations.accept': ['(the form behind an invitation)'],
  'invitations.create': [
    'penstock accounts create',
    'penstock accounts invite',
    'post /accounts',
    'post /accounts/:id',
  ],
  'invitations.revoke': ['penstock accounts revoke-invitation', 'post /accounts/:id'],
  'permission_sets.change': ['penstock permission-sets change', 'post /permission-sets/:id'],
  'permission_sets.create': ['penstock permission-sets create', 'post /permission-sets'],
  'permission_sets.delete': ['penstock permission-sets delete', 'post /permission-sets/:id'],
  'phone_numbers.mark_invalid': ['penstock phone-numbers mark-invalid', 'post /workspaces/:id'],
  'preference_centers.change': ['penstock preference-centers change', 'post /preference-centers/:id'],
  'preference_centers.create': ['penstock preference-centers create', 'post /preference-centers'],
  'preference_links.revoke': ['penstock preference-centers revoke', 'post /preference-centers/:id'],
  'processes.forget': ['penstock workers forget', 'post /'],
  'queue.confirm_loss': ['penstock queue confirm-loss', 'post /'],
  'queue.set_lanes': ['penstock queue set-lanes'],
  'rate_limits.reset': ['penstock limits reset', 'post /limits', 'post /limits/:id'],
  'rate_limits.set': ['penstock limits set', 'post /limits/:id'],
  'retention.erase': ['penstock retention erase', 'post /workspaces/:id'],
  'retention.restore': ['penstock retention restore', 'post /workspaces/:id'],
  'retention.run': ['penstock retention run', 'post /workspaces'],
  'retention.set': ['penstock retention set', 'post /workspaces/:id'],
  'scim_tokens.issue': ['penstock scim-tokens issue', 'post /scim-tokens'],
  'scim_tokens.revoke': ['penstock scim-tokens revoke', 'post /scim-tokens/:id'],
  'scim_tokens.rotate': ['penstock scim-tokens rotate', 'post /scim-tokens/:id'],
  'segments.archive': ['penstock segments archive', 'post /segments/:id'],
  'segments.create': ['penstock segments create', 'post /segments'],
  'segments.download': ['get /segments/:id/users.csv'],
  'segments.export': ['penstock segments export', 'post /exports'],
  'segments.update': ['penstock segments update', 'post /segments/:id'],
  'series.recount': ['penstock series recount', 'post /workspaces'],
  'sessions.begin': ['(signing in)'],
  'sessions.end': ['penstock accounts end-sessions', 'post /accounts/:id', 'post /sessions', '(signing out)'],
  'sign_ins.fail': ['(wrong passwords, and people of the OpenID provider without an account, by the minute)'],
  'streams.create': ['penstock streams create', 'post /streams'],
  'streams.erase': ['penstock streams erase', 'post /streams'],
  'streams.pause': ['penstock streams pause', 'post /streams/:id'],
  'streams.remove': ['penstock streams remove', 'post /streams/:id'],
  'streams.replay': ['penstock streams replay-from', 'post /streams/:id'],
  'streams.resume': ['penstock streams resume', 'post /streams/:id'],
  'streams.test': ['penstock streams test', 'post /streams/:id'],
  'subscription_groups.archive': ['penstock groups archive', 'post /groups/:id'],
  'subscription_groups.create': ['penstock groups create', 'post /groups'],
  'syncs.cancel': ['penstock integrations cancel', 'post /syncs/:id'],
  'syncs.download_rows': ['get /syncs/:id/runs/:run/rows.csv'],
  'syncs.start': ['penstock integrations sync', 'post /syncs/:id'],
  'teams.create': ['penstock teams create', 'post /teams'],
  'teams.delete': ['penstock teams delete', 'post /teams/:id'],
  'teams.rename': ['penstock teams rename', 'post /teams/:id'],
  'users.block': ['penstock users block', 'post /blocked-ids'],
  'users.delete': ['penstock users delete', 'post /users/:service_id/delete'],
  'users.export': ['penstock users export', 'get /users/:service_id/export'],
  'users.preference_link': ['penstock users preference-link', 'post /users/:service_id/preference-link'],
  'users.set_attribute': [
    'penstock users remove-attribute',
    'penstock users set-attribute',
    'post /users/:service_id',
  ],
  'users.set_subscription': ['penstock users set-subscription', 'post /users/:service_id'],
  'users.unblock': ['penstock users unblock', 'post /blocked-ids/:id'],
  'workspaces.create': ['penstock workspaces create', 'post /workspaces'],
  'workspaces.move': ['penstock workspaces move', 'post /workspaces/:id'],
} as const satisfies Record<string, readonly string[]>;

export type AuditAction = keyof typeof auditActions;

export type AuditVia = 'console' | 'command_line' | 'scim' | 'dashboard';

/** Company id of entries that concern the installation. */
export const NO_COMPANY = NIL_UUID;

/** The actor of an audited change, and the way and address from which it came. */
export interface Actor {
  kind: 'account' | 'operator' | 'scim_token' | 'nobody';
  id?: string | undefined;
  /** Email address, BOARD_USER, or the operating system user. The store looks up the name of a SCIM token. */
  name?: string;
  via: AuditVia;
  /** IP address of the client. Absent for local commands. */
  address?: string | undefined;
}

/** An audited change. It contains no secret and identifies users only by internal ids. */
export interface AuditEntry {
  action: AuditAction;
  /** Kind in the singular, with the name of the table, for example `api_key`. */
  subject: { kind: string; id: string };
  workspaceId?: string | undefined;
  /** Company of the entry; default: the company of the workspace, or the installation. */
  companyId?: string | undefined;
  detail?: Record<string, Json>;
}

// Company and actor name default to those of the workspace and the SCIM token, which are read by primary key.
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

/**
 * Appends entries in the open transaction. With a pool, they are committed by themselves; use this for
 * actions that were performed elsewhere.
 */
export async function recordAudit(
  tx: Pick<Connection, 'query'>,
  actor: Actor,
  entries: readonly AuditEntry[],
): Promise<void> {
  if (entries.length === 0) return;
  const text = insertAuditStatement;
  await tx.query({ name: 'insert-audit', text, values: [rowsOf(actor, entries)] });
}

/** Returns the same statement as a member of a Prisma transaction. */
export function auditIn(
  prisma: Pick<Prisma.TransactionClient, '$executeRawUnsafe'>,
  actor: Actor,
  entries: readonly AuditEntry[],
): Prisma.PrismaPromise<number> {
  return prisma.$executeRawUnsafe(insertAuditStatement, rowsOf(actor, entries));
}

/** Commits the Prisma changes of `work` and their audit entries in one transaction. */
export function auditedByPrisma<T>(
  prisma: Database['prisma'],
  actor: Actor,
  work: (tx: Prisma.TransactionClient) => Promise<{ result: T; entries: readonly AuditEntry[] }>,
): Promise<T> {
  return prisma.$transaction(async (tx) => {
    const { result, entries } = await work(tx);
    if (entries.length > 0) await auditIn(tx, actor, entries);
    return result;
  });
}

/**
 * Commits the changes of `work` and their audit entries in one transaction.
 *
 * @param work returns its result and an entry for each change
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

// Locks the row, so that the change after it in the transaction finds the same version or no row.
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

/** State that an account must have for the entry to be written. */
interface AuditedAccount {
  id: string;
  companyId: string;
  /** Expected version; any version if absent. */
  version?: number | undefined;
}

/**
 * Returns the audit entry of an account change that follows in the same Prisma transaction. If the account
 * does not match, nothing is written, because the change does not match either.
 */
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
 * Runs a write with a statement timeout of one second, which is shorter than the caller waits. A write that
 * was answered with 503 therefore has not been applied, and cannot be applied later when a lock is released.
 *
 * @param audit audit entry that is committed in the same transaction
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
