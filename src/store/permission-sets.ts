import type { Prisma } from '../generated/prisma/client.ts';
import { type Actor, type AuditEntry, audited, auditedByPrisma } from './audit.ts';
import type { Connection, Database, Pool } from './database.ts';
import { sqlstateOf } from './error-cause.ts';

/** Teams of workspaces and permission sets of companies, to which `app_groups` of accounts refer. */

/** An element of `accounts.app_groups`. It contains only ids. */
export interface AppGroup {
  workspace: string;
  permissions: string[];
  /** Set instead of permissions. */
  permissionSet?: string;
  teams?: { team: string; permissions: string[] }[];
}

/**
 * Result of a change. `taken`: another one has the name. `used`: an account has it. `gone`: it does not exist
 * in the company.
 */
export type Ending = 'done' | 'taken' | 'used' | 'gone';

interface Change {
  id: string;
  companyId: string;
}

/** A write with its audit entry. */
interface AuditedWrite {
  entry: AuditEntry;
  /** Returns the number of rows that it has changed. */
  write(tx: Prisma.TransactionClient): Promise<number>;
}

/**
 * Commits a change and its audit entry in one transaction.
 *
 * @returns `gone` if it has changed none, `taken` if the name violates a unique constraint
 */
async function change(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { entry, write }: AuditedWrite,
): Promise<Ending> {
  try {
    return await auditedByPrisma(prisma, actor, async (tx) =>
      (await write(tx)) === 0 ? { result: 'gone', entries: [] } : { result: 'done', entries: [entry] },
    );
  } catch (error) {
    if (sqlstateOf(error) === '23505') return 'taken';
    throw error;
  }
}

/** Creates a team in a workspace of the company. */
export function createTeam(
  database: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, workspaceId, companyId, name }: Change & { workspaceId: string; name: string },
): Promise<Ending> {
  const subject = { kind: 'team', id };
  const entry = { action: 'teams.create' as const, subject, workspaceId, detail: { name } };
  async function write(tx: Prisma.TransactionClient): Promise<number> {
    const where = { id: workspaceId, companyId };
    if ((await tx.workspace.count({ where })) === 0) return 0;
    await tx.team.create({ data: { id, workspaceId, name } });
    return 1;
  }
  return change(database, actor, { entry, write });
}

/** Renames a team. Accounts keep it, because they refer to its id. */
export function renameTeam(
  database: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, companyId, name }: Change & { name: string },
): Promise<Ending> {
  const subject = { kind: 'team', id };
  const entry = { action: 'teams.rename' as const, subject, companyId, detail: { name } };
  async function write(tx: Prisma.TransactionClient): Promise<number> {
    const where = { id, workspace: { companyId } };
    return (await tx.team.updateMany({ where, data: { name } })).count;
  }
  return change(database, actor, { entry, write });
}

/**
 * Locks the team until the end of the transaction, so that it cannot be assigned while it is deleted. Reads
 * by primary key.
 */
const holdTeamStatement = `
  select teams.name, teams.workspace_id as "workspaceId"
  from teams
  join workspaces on workspaces.id = teams.workspace_id
  where teams.id = $1::uuid and workspaces.company_id = $2::uuid
  for update of teams`;

/** Deletes by primary key. */
const deleteTeamStatement = `delete from teams where teams.id = $1::uuid`;

/** Deletes a team that no account has. */
export function deleteTeam(pool: Pool, actor: Actor, { id, companyId }: Change): Promise<Ending> {
  return audited<Ending>(pool, actor, async (tx) => {
    const { rows } = await tx.query<{ name: string }>(holdTeamStatement, [id, companyId]);
    if (!rows[0]) return { result: 'gone', entries: [] };
    if ((await accountsWith(tx, companyId, { team: id })).length > 0) return { result: 'used', entries: [] };
    await tx.query(deleteTeamStatement, [id]);
    const entry = { action: 'teams.delete' as const, subject: { kind: 'team', id }, companyId };
    return { result: 'done', entries: [{ ...entry, detail: { name: rows[0].name } }] };
  });
}

interface NewSet {
  companyId: string;
  name: string;
  /** Permissions of a workspace. */
  permissions: string[];
}

/** Creates a permission set in the company. */
export function createPermissionSet(
  database: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, companyId, name, permissions }: NewSet & Change,
): Promise<Ending> {
  const subject = { kind: 'permission_set', id };
  const detail = { name, permissions };
  const entry = { action: 'permission_sets.create' as const, subject, companyId, detail };
  async function write(tx: Prisma.TransactionClient): Promise<number> {
    await tx.permissionSet.create({ data: { id, companyId, name, permissions } });
    return 1;
  }
  return change(database, actor, { entry, write });
}

/**
 * Changes name and permissions. Accounts that have the set use the new permissions from their next request
 * on.
 */
export function changePermissionSet(
  database: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, companyId, name, permissions }: NewSet & Change,
): Promise<Ending> {
  const subject = { kind: 'permission_set', id };
  const detail = { name, permissions };
  const entry = { action: 'permission_sets.change' as const, subject, companyId, detail };
  async function write(tx: Prisma.TransactionClient): Promise<number> {
    const where = { id, companyId };
    return (await tx.permissionSet.updateMany({ where, data: detail })).count;
  }
  return change(database, actor, { entry, write });
}

/** Locks the set until the end of the transaction, as for teams. */
const holdSetStatement = `
  select permission_sets.name, permission_sets.permissions
  from permission_sets
  where permission_sets.id = $1::uuid and permission_sets.company_id = $2::uuid
  for update`;

/** Deletes by primary key. */
const deleteSetStatement = `delete from permission_sets where permission_sets.id = $1::uuid`;

/** Deletes a permission set that no account has. */
export function deletePermissionSet(pool: Pool, actor: Actor, { id, companyId }: Change): Promise<Ending> {
  return audited<Ending>(pool, actor, async (tx) => {
    const { rows } = await tx.query<{ name: string }>(holdSetStatement, [id, companyId]);
    if (!rows[0]) return { result: 'gone', entries: [] };
    if ((await accountsWith(tx, companyId, { permissionSet: id })).length > 0)
      return { result: 'used', entries: [] };
    await tx.query(deleteSetStatement, [id]);
    const entry = { action: 'permission_sets.delete' as const, subject: { kind: 'permission_set', id } };
    return { result: 'done', entries: [{ ...entry, companyId, detail: { name: rows[0].name } }] };
  });
}

function resultOf(rowCount: number | null, entry: AuditEntry): { result: Ending; entries: AuditEntry[] } {
  return rowCount === 0 ? { result: 'gone', entries: [] } : { result: 'done', entries: [entry] };
}

/** Maximum number of accounts that are shown as holders of a team or set. */
export const MAX_HOLDERS = 100;

// Reads the index on the contents of app_groups. It is planned as if all rows were wanted; the limit ends the
// scan. Returns one row more than shown, to indicate that there are others.
const holdersStatement = `
  with holders as materialized (
    select accounts.id, accounts.company_id, accounts.user_name
    from accounts
    where accounts.app_groups @> $2::jsonb
  )
  select holders.id, holders.user_name as "userName"
  from holders
  where holders.company_id = $1::uuid
  limit ${MAX_HOLDERS + 1}`;

/** Returns some accounts of the company that have a team or a permission set. */
export async function accountsWith(
  tx: Pick<Pool, 'query'>,
  companyId: string,
  what: { team: string } | { permissionSet: string },
): Promise<{ id: string; userName: string }[]> {
  const contained = 'team' in what ? [{ teams: [{ team: what.team }] }] : [what];
  const { rows } = await tx.query(holdersStatement, [companyId, JSON.stringify(contained)]);
  return rows;
}

// Updates by primary key. If another change was faster, the version differs and nothing is updated.
const giveGroupsStatement = `
  update accounts
  set app_groups = $4::jsonb, version = accounts.version + 1, modified_at = greatest(now(), accounts.modified_at)
  where accounts.id = $1::uuid and accounts.company_id = $2::uuid and accounts.version = $3::integer`;

export interface GroupGrant {
  account: { id: string; companyId: string; version: number };
  /** The account's complete new `app_groups`. */
  appGroups: AppGroup[];
  /** Permission set or team that is assigned. Absent if something is removed. */
  gives?: { permissionSet: string } | { team: string };
  workspaceId: string;
  /** Detail of the audit entry, with ids. */
  detail: Record<string, string | string[]>;
}

/**
 * Changes the permissions of an account in a workspace.
 *
 * @returns `gone` if another change was faster, or the assigned team or set no longer exists
 */
export function grantGroups(pool: Pool, actor: Actor, gift: GroupGrant): Promise<Ending> {
  const { account, appGroups, gives, workspaceId, detail } = gift;
  const { id, companyId, version } = account;
  return audited(pool, actor, async (tx) => {
    if (gives && !(await lockGiven(tx, companyId, gives))) return { result: 'gone', entries: [] };
    const { rowCount } = await tx.query(giveGroupsStatement, [
      ...[id, companyId, version, JSON.stringify(appGroups)],
    ]);
    const entry = { action: 'accounts.change' as const, subject: { kind: 'account', id }, companyId };
    return resultOf(rowCount, { ...entry, workspaceId, detail: { changed: ['appGroups'], ...detail } });
  });
}

/** Locks a team or set of the company until the transaction ends, and returns whether it exists. */
async function lockGiven(
  tx: Connection,
  companyId: string,
  what: NonNullable<GroupGrant['gives']>,
): Promise<boolean> {
  const { rows } =
    'team' in what
      ? await tx.query(holdTeamStatement, [what.team, companyId])
      : await tx.query(holdSetStatement, [what.permissionSet, companyId]);
  return rows.length > 0;
}
