import { newId } from '../platform/ids.ts';
import { type Actor, type AuditEntry, audited } from './audit.ts';
import type { Connection, Pool } from './database.ts';

/** Teams of workspaces and permission sets of companies: what accounts are given by their `app_groups`. */

/** An element of `accounts.app_groups`: ids only. */
export interface AppGroup {
  workspace: string;
  permissions: string[];
  /** Instead of permissions. */
  permissionSet?: string;
  teams?: { team: string; permissions: string[] }[];
}

/** How a change ends: `taken`: the name is another's; `used`: an account has it; `gone`: there is none in the company. */
export type Ending = 'done' | 'taken' | 'used' | 'gone';

interface Change {
  id: string;
  companyId: string;
}

/** What `work` does with its entry, or that a name is taken. */
async function named(work: () => Promise<Ending>): Promise<Ending> {
  try {
    return await work();
  } catch (error) {
    if ((error as { code?: string }).code === '23505') return 'taken';
    throw error;
  }
}

// The workspace has to be the company's. By primary key.
const makeTeamStatement = `
  insert into teams (id, workspace_id, name)
  select $1::uuid, workspaces.id, $4::text
  from workspaces
  where workspaces.id = $2::uuid and workspaces.company_id = $3::uuid`;

/** Makes a team of a workspace of the company. */
export function makeTeam(
  pool: Pool,
  actor: Actor,
  { workspaceId, companyId, name }: { workspaceId: string; companyId: string; name: string },
): Promise<Ending> {
  const id = newId();
  const entry = { action: 'teams.create' as const, subject: { kind: 'team', id }, workspaceId };
  return named(() =>
    audited(pool, actor, async (tx) => {
      const { rowCount } = await tx.query(makeTeamStatement, [id, workspaceId, companyId, name]);
      return ended(rowCount, { ...entry, detail: { name } });
    }),
  );
}

/** By primary key. */
const renameTeamStatement = `
  update teams set name = $3::text
  from workspaces
  where teams.id = $1::uuid and workspaces.id = teams.workspace_id and workspaces.company_id = $2::uuid`;

/** Accounts have it by its id, so that they keep it. */
export function renameTeam(
  pool: Pool,
  actor: Actor,
  { id, companyId, name }: Change & { name: string },
): Promise<Ending> {
  const entry = { action: 'teams.rename' as const, subject: { kind: 'team', id }, companyId };
  return named(() =>
    audited(pool, actor, async (tx) => {
      const { rowCount } = await tx.query(renameTeamStatement, [id, companyId, name]);
      return ended(rowCount, { ...entry, detail: { name } });
    }),
  );
}

/** Held until the end of the transaction: nobody is given what is deleted meanwhile. By primary key. */
const holdTeamStatement = `
  select teams.name, teams.workspace_id as "workspaceId"
  from teams
  join workspaces on workspaces.id = teams.workspace_id
  where teams.id = $1::uuid and workspaces.company_id = $2::uuid
  for update of teams`;

/** By primary key. */
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

const makeSetStatement = `
  insert into permission_sets (id, company_id, name, permissions) values ($1::uuid, $2::uuid, $3::text, $4::text[])`;

export interface NewSet {
  companyId: string;
  name: string;
  /** Of a workspace. */
  permissions: string[];
}

/** Makes a permission set of the company. */
export function makePermissionSet(pool: Pool, actor: Actor, set: NewSet): Promise<Ending> {
  const { companyId, name, permissions } = set;
  const id = newId();
  const subject = { kind: 'permission_set', id };
  const entry = { action: 'permission_sets.create' as const, subject, companyId };
  return named(() =>
    audited(pool, actor, async (tx) => {
      const { rowCount } = await tx.query(makeSetStatement, [id, companyId, name, permissions]);
      return ended(rowCount, { ...entry, detail: { name, permissions } });
    }),
  );
}

/** By primary key. */
const changeSetStatement = `
  update permission_sets set name = $3::text, permissions = $4::text[]
  where permission_sets.id = $1::uuid and permission_sets.company_id = $2::uuid`;

/** Changes name and permissions; for whoever has it at the next request. */
export function changePermissionSet(
  pool: Pool,
  actor: Actor,
  { id, companyId, name, permissions }: NewSet & Change,
): Promise<Ending> {
  const subject = { kind: 'permission_set', id };
  const entry = { action: 'permission_sets.change' as const, subject, companyId };
  return named(() =>
    audited(pool, actor, async (tx) => {
      const { rowCount } = await tx.query(changeSetStatement, [id, companyId, name, permissions]);
      return ended(rowCount, { ...entry, detail: { name, permissions } });
    }),
  );
}

/** As that of teams. */
const holdSetStatement = `
  select permission_sets.name, permission_sets.permissions
  from permission_sets
  where permission_sets.id = $1::uuid and permission_sets.company_id = $2::uuid
  for update`;

/** By primary key. */
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

function ended(rowCount: number | null, entry: AuditEntry): { result: Ending; entries: AuditEntry[] } {
  return rowCount === 0 ? { result: 'gone', entries: [] } : { result: 'done', entries: [entry] };
}

/** Accounts that are shown of those who have one. */
export const MOST_HOLDERS = 100;

// Along the index of what the groups contain, which is planned as if all were wanted; the limit ends the walk. One more, so
// that it can be said that there are others.
const holdersStatement = `
  with holders as materialized (
    select accounts.id, accounts.company_id, accounts.user_name
    from accounts
    where accounts.app_groups @> $2::jsonb
  )
  select holders.id, holders.user_name as "userName"
  from holders
  where holders.company_id = $1::uuid
  limit ${MOST_HOLDERS + 1}`;

/** Some accounts of the company that have a team or a permission set. */
export async function accountsWith(
  tx: Pick<Pool, 'query'>,
  companyId: string,
  what: { team: string } | { permissionSet: string },
): Promise<{ id: string; userName: string }[]> {
  const contained = 'team' in what ? [{ teams: [{ team: what.team }] }] : [what];
  const { rows } = await tx.query(holdersStatement, [companyId, JSON.stringify(contained)]);
  return rows;
}

// By primary key; a change that was faster has another version, and this one is made anew.
const giveGroupsStatement = `
  update accounts
  set app_groups = $4::jsonb, version = accounts.version + 1, modified_at = greatest(now(), accounts.modified_at)
  where accounts.id = $1::uuid and accounts.company_id = $2::uuid and accounts.version = $3::integer`;

export interface Gift {
  account: { id: string; companyId: string; version: number };
  /** As they are afterwards. */
  appGroups: AppGroup[];
  /** What is given; absent: something is taken. */
  gives?: { permissionSet: string } | { team: string };
  workspaceId: string;
  /** For the audit: by ids. */
  detail: Record<string, string | string[]>;
}

/** Gives an account other permissions in a workspace. @returns `gone`: somebody was faster, or what is given is gone */
export function giveGroups(pool: Pool, actor: Actor, gift: Gift): Promise<Ending> {
  const { account, appGroups, gives, workspaceId, detail } = gift;
  const { id, companyId, version } = account;
  return audited(pool, actor, async (tx) => {
    if (gives && !(await holds(tx, companyId, gives))) return { result: 'gone', entries: [] };
    const { rowCount } = await tx.query(giveGroupsStatement, [
      ...[id, companyId, version, JSON.stringify(appGroups)],
    ]);
    const entry = { action: 'accounts.change' as const, subject: { kind: 'account', id }, companyId };
    return ended(rowCount, { ...entry, workspaceId, detail: { changed: ['appGroups'], ...detail } });
  });
}

/** Whether there is one in the company, which stays until the transaction ends. */
async function holds(tx: Connection, companyId: string, what: NonNullable<Gift['gives']>): Promise<boolean> {
  const { rows } =
    'team' in what
      ? await tx.query(holdTeamStatement, [what.team, companyId])
      : await tx.query(holdSetStatement, [what.permissionSet, companyId]);
  return rows.length > 0;
}
