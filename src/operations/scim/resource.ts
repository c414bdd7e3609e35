import type { Json } from '../../profile/json.ts';
import type { Database } from '../../store/database.ts';
import { SCIM_ROOT, USER } from './messages.ts';

/** A row of `accounts`. */
export type Account = NonNullable<Awaited<ReturnType<Database['prisma']['account']['findFirst']>>>;

/** An element of `accounts.app_groups`: ids only. */
export type StoredGroup = {
  workspace: string;
  permissions: string[];
  /** Instead of permissions. */
  permissionSet?: string;
  teams: { team: string; permissions: string[] }[];
};

/** Names by id. */
export interface Names {
  workspaces: Map<string, string>;
  teams: Map<string, string>;
  permissionSets: Map<string, string>;
}

/** The names of all that these accounts point to: a statement for each kind that they name. */
export async function readNames(prisma: Database['prisma'], accounts: Account[]): Promise<Names> {
  const groups = accounts.flatMap(groupsOf);
  const named = (ids: string[]) =>
    ids.length > 0 && { where: { id: { in: [...new Set(ids)] } }, select: { id: true, name: true } };
  const ofWorkspaces = named(groups.map((one) => one.workspace));
  const ofTeams = named(groups.flatMap((one) => one.teams.map(({ team }) => team)));
  const ofSets = named(groups.flatMap((one) => one.permissionSet ?? []));
  const [workspaces, teams, permissionSets] = await Promise.all([
    ofWorkspaces ? prisma.workspace.findMany(ofWorkspaces) : [],
    ofTeams ? prisma.team.findMany(ofTeams) : [],
    ofSets ? prisma.permissionSet.findMany(ofSets) : [],
  ]);
  return { workspaces: byId(workspaces), teams: byId(teams), permissionSets: byId(permissionSets) };
}

/** Its entity tag (RFC 7644 §3.14). */
export function versionOf({ version }: Account): string {
  return `W/"${version}"`;
}

/** @param baseUrl scheme and host that the caller knows us by */
export function locationOf({ id }: Pick<Account, 'id'>, baseUrl: string): string {
  return `${baseUrl}${SCIM_ROOT}/Users/${id}`;
}

/** An account as it is answered, whole. */
export function toResource(account: Account, names: Names, baseUrl: string): Record<string, Json> {
  return {
    schemas: [USER],
    id: account.id,
    ...(account.externalId !== null && { externalId: account.externalId }),
    userName: account.userName,
    name: { givenName: account.givenName, familyName: account.familyName },
    department: account.department,
    active: account.active,
    lastSignInAt: account.lastSignInAt?.toISOString() ?? 'N/A',
    permissions: {
      companyPermissions: account.companyPermissions,
      appGroup: groupsOf(account).map((group) => toAppGroup(group, names)),
    },
    meta: {
      resourceType: 'User',
      created: account.createdAt.toISOString(),
      lastModified: account.modifiedAt.toISOString(),
      location: locationOf(account, baseUrl),
      version: versionOf(account),
    },
  };
}

function toAppGroup({ workspace, permissions, permissionSet, teams }: StoredGroup, names: Names): Json {
  return {
    appGroupId: workspace,
    appGroupName: names.workspaces.get(workspace) ?? '',
    ...(permissionSet === undefined
      ? { appGroupPermissions: permissions }
      : {
          appGroupPermissionSets: [
            {
              appGroupPermissionSetId: permissionSet,
              appGroupPermissionSetName: names.permissionSets.get(permissionSet) ?? '',
            },
          ],
        }),
    team: teams.map(({ team, permissions: inTeam }) => ({
      teamId: team,
      teamName: names.teams.get(team) ?? '',
      teamPermissions: inTeam,
    })),
  };
}

export function groupsOf({ appGroups }: Pick<Account, 'appGroups'>): StoredGroup[] {
  return appGroups as StoredGroup[];
}

function byId(rows: { id: string; name: string }[]): Map<string, string> {
  return new Map(rows.map(({ id, name }) => [id, name]));
}
