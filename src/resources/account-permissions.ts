import { byNameOrId } from '../store/name-or-id.ts';
import { type AppGroup, type GroupGrant, grantGroups } from '../store/permission-sets.ts';
import { MAX_SUGGESTIONS } from './fields.ts';
import { Refusal } from './refusal.ts';
import type { Context } from './resource.ts';

/** A console account. A list does not load the optional members. */
export interface Account {
  id: string;
  companyId: string;
  company: { name: string };
  userName: string;
  givenName: string;
  familyName: string;
  department: string;
  active: boolean;
  companyPermissions: string[];
  createdAt: Date;
  lastSignInAt: Date | null;
  invitationExpiresAt: Date | null;
  passwordHash: string | null;
  externalId?: string | null;
  modifiedAt?: Date;
  /** Permissions by workspace, as stored. */
  appGroups?: unknown;
  version?: number;
}

/** Maximum number of workspaces per account and of teams per workspace, as in SCIM. */
const MAX_GROUPS = 500;

type Changed = Pick<GroupGrant, 'appGroups' | 'gives' | 'workspaceId' | 'detail'>;

const groupsOf = ({ appGroups }: Account) => (appGroups ?? []) as AppGroup[];

/** @throws {Refusal} if the account has too many workspaces, or was changed at the same time */
async function store({ database: { pool }, actor }: Context, account: Account, changed: Changed) {
  if (changed.appGroups.length > MAX_GROUPS)
    throw new Refusal(`an account can have at most ${MAX_GROUPS} workspaces`, undefined, 409);
  const { id, companyId, version = 0 } = account;
  const ending = await grantGroups(pool, actor, { account: { id, companyId, version }, ...changed });
  if (ending !== 'done')
    throw new Refusal('the account was changed by someone else at the same time; try again', undefined, 409);
}

/** @throws {Refusal} if the company has no such workspace; a workspace of another company gives the same error */
export async function workspaceOf(
  { database }: Context,
  companyId: string,
  nameOrId: string,
): Promise<string> {
  const where = { companyId, ...byNameOrId(nameOrId) };
  const workspace = await database.prisma.workspace.findFirst({ where, select: { id: true } });
  if (!workspace) throw new Refusal('must be the name or id of a workspace of the company', 'workspace');
  return workspace.id;
}

/** @throws {Refusal} unless the company has exactly one workspace */
export async function soleWorkspaceOf({ database }: Context, companyId: string): Promise<string> {
  const [workspace, ...others] = await database.prisma.workspace.findMany({
    ...{ where: { companyId }, select: { id: true }, take: 2 },
  });
  if (!workspace)
    throw new Refusal('the company has no workspace; create one, or invite without a role', 'role');
  if (others.length > 0)
    throw new Refusal('the company has several workspaces; name the workspace of the role', 'workspace');
  return workspace.id;
}

/** Changes the group of a workspace, and adds the group if it does not exist. */
function withGroup(groups: AppGroup[], workspace: string, change: (group: AppGroup) => AppGroup): AppGroup[] {
  const group = groups.find((one) => one.workspace === workspace);
  if (!group) return [...groups, change({ workspace, permissions: [], teams: [] })];
  return groups.map((one) => (one === group ? change(one) : one));
}

/** Gives a permission set in a workspace. @throws {Refusal} naming the field and its rule */
export async function givePermissionSet(
  context: Context,
  account: Account,
  given: { workspace: string; set: string },
): Promise<void> {
  const { companyId } = account;
  const workspaceId = await workspaceOf(context, companyId, given.workspace);
  const set = await context.database.prisma.permissionSet.findFirst({
    where: { companyId, ...byNameOrId(given.set) },
    select: { id: true },
  });
  if (!set) throw new Refusal('must be the name or id of a permission set of the company', 'set');
  await store(context, account, {
    appGroups: withGroup(groupsOf(account), workspaceId, (group) => ({
      ...{ ...group, permissions: [], permissionSet: set.id },
    })),
    gives: { permissionSet: set.id },
    workspaceId,
    detail: { permission_set: set.id },
  });
}

/** Gives permissions in a team. @throws {Refusal} naming the field and its rule */
export async function giveTeam(
  context: Context,
  account: Account,
  { permissions, ...given }: { workspace: string; team: string; permissions: string[] },
): Promise<void> {
  const workspaceId = await workspaceOf(context, account.companyId, given.workspace);
  const where = { workspaceId, ...byNameOrId(given.team) };
  const matchingTeam = await context.database.prisma.team.findFirst({ where, select: { id: true } });
  if (!matchingTeam) throw new Refusal('must be the name or id of a team of the workspace', 'team');
  const team = { team: matchingTeam.id, permissions };
  await store(context, account, {
    appGroups: withGroup(groupsOf(account), workspaceId, ({ teams = [], ...group }) => {
      const others = teams.filter((one) => one.team !== team.team);
      if (others.length >= MAX_GROUPS)
        throw new Refusal(`an account can have at most ${MAX_GROUPS} teams of a workspace`, undefined, 409);
      return { ...group, teams: [...others, team] };
    }),
    gives: { team: team.team },
    workspaceId,
    detail: { team: team.team, permissions },
  });
}

/** Removes all permissions in a workspace. Has no effect if there are none. */
export async function removePermissions(context: Context, account: Account, nameOrId: string): Promise<void> {
  const groups = groupsOf(account);
  // A workspace that no longer exists can still be in the list.
  const isListed = groups.some(({ workspace }) => workspace === nameOrId);
  const workspaceId = isListed ? nameOrId : await workspaceOf(context, account.companyId, nameOrId);
  const appGroups = groups.filter(({ workspace }) => workspace !== workspaceId);
  if (appGroups.length === groups.length) return;
  await store(context, account, { appGroups, workspaceId, detail: { taken: 'workspace' } });
}

/** Removes a team. Has no effect if the account does not have it. */
export async function removeTeam(context: Context, account: Account, nameOrId: string): Promise<void> {
  const groups = groupsOf(account);
  const own = groups.flatMap(({ teams = [] }) => teams.map(({ team }) => team));
  let id = nameOrId;
  if (!own.includes(id)) {
    const where = { id: { in: own }, ...byNameOrId(nameOrId) };
    const matches = await context.database.prisma.team.findMany({ where, select: { id: true }, take: 2 });
    if (matches.length > 1)
      throw new Refusal('several teams of the account have this name; enter the id of one', 'team');
    if (!matches[0]) return;
    id = matches[0].id;
  }
  const group = groups.find(({ teams = [] }) => teams.some(({ team }) => team === id))!;
  const teams = group.teams!.filter(({ team }) => team !== id);
  const appGroups = groups.map((one) => (one === group ? { ...one, teams } : one));
  await store(context, account, {
    ...{ appGroups, workspaceId: group.workspace, detail: { taken: 'team', team: id } },
  });
}

/** Returns names of the company's workspaces, permission sets and teams, as suggestions for fields. */
export async function suggestedNames(
  { database: { prisma } }: Context,
  { companyId }: Pick<Account, 'companyId'>,
): Promise<Record<string, string[]>> {
  const page = { select: { name: true }, orderBy: { name: 'asc' }, take: MAX_SUGGESTIONS } as const;
  const [workspace, set, team] = await Promise.all([
    prisma.workspace.findMany({ ...page, where: { companyId } }),
    prisma.permissionSet.findMany({ ...page, where: { companyId } }),
    prisma.team.findMany({ ...page, where: { workspace: { companyId } } }),
  ]);
  return Object.fromEntries(
    Object.entries({ workspace, set, team }).map(([field, rows]) => [
      field,
      [...new Set(rows.map(({ name }) => name))],
    ]),
  );
}
