import type { Database } from '../../store/database.ts';
import type { GivenGroup } from './read-account.ts';
import type { StoredGroup } from './resource.ts';
import { invalid } from './scim-error.ts';

interface Row {
  id: string;
  name: string;
}

/**
 * Workspaces, teams and permission sets of a company, by the names or ids that a client has given: a
 * statement for each kind that is named. Rows of other companies are as unknown as those that there are not.
 *
 * @throws {ScimError} 400, naming what is unknown and where it stands
 */
export async function resolveGroups(
  prisma: Database['prisma'],
  companyId: string,
  given: GivenGroup[],
): Promise<StoredGroup[]> {
  if (given.length === 0) return [];
  const select = { id: true, name: true };
  const named = {
    workspaces: given.map((group) => ({ name: group.appGroupName, id: group.appGroupId })),
    sets: given.flatMap(({ appGroupPermissionSets: sets }) => (sets ?? []).map(toNamedSet)),
    teams: given.flatMap(({ team }) => (team ?? []).map(toNamedTeam)),
  };
  const [workspaces, sets, teams] = await Promise.all([
    prisma.workspace.findMany({ where: { companyId, OR: anyOf(named.workspaces) }, select }),
    named.sets.length === 0
      ? []
      : prisma.permissionSet.findMany({ where: { companyId, OR: anyOf(named.sets) }, select }),
    named.teams.length === 0
      ? []
      : prisma.team.findMany({
          where: { workspace: { companyId }, OR: anyOf(named.teams) },
          select: { ...select, workspaceId: true },
        }),
  ]);

  const seen = new Set<string>();
  return given.map((group, index) => {
    const place = `permissions.appGroup.${index}`;
    const workspace = find(workspaces, named.workspaces[index]!, 'appGroup', 'workspace', place);
    once(seen, workspace, place, 'workspace');
    const [set] = group.appGroupPermissionSets ?? [];
    const inTeams = new Set<string>();
    const permissionSet =
      set &&
      find(
        sets,
        toNamedSet(set),
        'appGroupPermissionSet',
        'permission set',
        `${place}.appGroupPermissionSets.0`,
      );
    return {
      workspace: workspace.id,
      permissions: [...new Set(group.appGroupPermissions)],
      ...(permissionSet && { permissionSet: permissionSet.id }),
      teams: (group.team ?? []).map((one, at) => {
        const inWorkspace = teams.filter(({ workspaceId }) => workspaceId === workspace.id);
        const team = find(inWorkspace, toNamedTeam(one), 'team', 'team', `${place}.team.${at}`);
        once(inTeams, team, `${place}.team.${at}`, 'team');
        return { team: team.id, permissions: [...new Set(one.teamPermissions)] };
      }),
    };
  });
}

interface Named {
  name: string | undefined;
  id: string | undefined;
}

type GivenSet = NonNullable<GivenGroup['appGroupPermissionSets']>[number];
type GivenTeam = NonNullable<GivenGroup['team']>[number];

const toNamedSet = (set: GivenSet): Named => ({
  name: set.appGroupPermissionSetName,
  id: set.appGroupPermissionSetId,
});
const toNamedTeam = (team: GivenTeam): Named => ({ name: team.teamName, id: team.teamId });

/** Ids that are no UUID are nobody's, and Postgres would refuse them. */
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

function anyOf(named: Named[]) {
  return [
    { name: { in: named.flatMap(({ name }) => name ?? []) } },
    { id: { in: named.flatMap(({ id }) => (id !== undefined && UUID.test(id) ? [id.toLowerCase()] : [])) } },
  ];
}

/** @param field what the two members are called before `Name` and `Id` */
function find(rows: Row[], { name, id }: Named, field: string, noun: string, place: string): Row {
  if (name === undefined && id === undefined)
    throw invalid(`'${place}' is not valid: it needs ${field}Name or ${field}Id`);
  const found = rows.find((row) => (id === undefined ? row.name === name : row.id === id.toLowerCase()));
  if (!found) {
    const what = id === undefined ? `name '${name}'` : `id '${id}'`;
    throw invalid(`'${place}' is not valid: no ${noun} has the ${what}`);
  }
  if (name !== undefined && found.name !== name) {
    throw invalid(`'${place}' is not valid: the ${noun} '${id}' does not have the name '${name}'`);
  }
  return found;
}

function once(seen: Set<string>, { id, name }: Row, place: string, noun: string): void {
  if (seen.has(id)) throw invalid(`'${place}' is not valid: the ${noun} '${name}' is named twice`);
  seen.add(id);
}
