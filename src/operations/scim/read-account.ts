import { isDeepStrictEqual } from 'node:util';
import { validate } from 'uuid';
import { Prisma } from '../../generated/prisma/client.ts';
import { normalizeStaffEmail } from '../../profile/addresses.ts';
import type { Json } from '../../profile/json.ts';
import {
  companyPermissions,
  departments,
  teamPermissions,
  workspacePermissions,
} from '../../schemas/permissions.ts';
import { findNamed, findTeams, type NamedRow } from '../../store/accounts.ts';
import type { Database } from '../../store/database.ts';
import { invalid } from './messages.ts';
import { defaultEmails, type Email, type GivenGroup, type Role, type StoredGroup } from './resource.ts';
import { truthOf } from './spell.ts';

/**
 * Resolves the workspaces, teams and permission sets of the company by name or id, with one statement per kind. Rows of
 * other companies count as unknown.
 *
 * @throws {ScimError} 400 with the unknown name or id and its position
 */
async function resolveGroups(
  prisma: Database['prisma'],
  companyId: string,
  given: GivenGroup[],
): Promise<StoredGroup[]> {
  if (given.length === 0) return [];
  const sets = given.flatMap(({ appGroupPermissionSets: some }) => (some ?? []).map(toNamedSet));
  const [workspaceRows, setRows] = await Promise.all([
    findNamed(prisma, 'workspaces', { companyId, ...wantedOf(given.map(toNamedWorkspace)) }),
    findNamed(prisma, 'permission_sets', { companyId, ...wantedOf(sets) }),
  ]);
  const [findWorkspace, findSet] = [
    finder(workspaceRows, 'appGroup', 'workspace'),
    finder(setRows, 'appGroupPermissionSet', 'permission set'),
  ];
  const requireNewWorkspace = refuseDuplicates('workspace');
  const groups = given.map((group, index) => {
    const path = `permissions.appGroup.${index}`;
    const workspace = findWorkspace(toNamedWorkspace(group), path);
    requireNewWorkspace(workspace, path);
    const [set] = group.appGroupPermissionSets ?? [];
    const permissionSet = set && findSet(toNamedSet(set), `${path}.appGroupPermissionSets.0`);
    return { group, path, workspaceId: workspace.id, permissionSet };
  });

  const named = groups.flatMap(({ group, workspaceId }) =>
    (group.team ?? []).map((team) => ({ workspaceId, ...toNamedTeam(team) })),
  );
  const teamRows = await findTeams(
    prisma,
    named.map((team) => ({ ...team, id: validId(team.id) })),
  );
  const byWorkspace = new Map(groups.map(({ workspaceId }): [string, NamedRow[]] => [workspaceId, []]));
  for (const team of teamRows) byWorkspace.get(team.workspaceId)?.push(team);
  return groups.map(({ group, path, workspaceId, permissionSet }) => {
    const findTeam = finder(byWorkspace.get(workspaceId) ?? [], 'team', 'team');
    const requireNewTeam = refuseDuplicates('team');
    return {
      workspace: workspaceId,
      permissions: [...new Set(group.appGroupPermissions)],
      ...(permissionSet && { permissionSet: permissionSet.id }),
      teams: (group.team ?? []).map((one, at) => {
        const team = findTeam(toNamedTeam(one), `${path}.team.${at}`);
        requireNewTeam(team, `${path}.team.${at}`);
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

const toNamedWorkspace = ({ appGroupName: name, appGroupId: id }: GivenGroup): Named => ({ name, id });
const toNamedSet = (set: GivenSet): Named => ({
  name: set.appGroupPermissionSetName,
  id: set.appGroupPermissionSetId,
});
const toNamedTeam = (team: GivenTeam): Named => ({ name: team.teamName, id: team.teamId });

/**
 * Returns the id in lower case. Returns undefined if it is not a UUID: no row has such an id, and Postgres would reject
 * it.
 */
function validId(id: string | undefined): string | undefined {
  return id !== undefined && validate(id) ? id.toLowerCase() : undefined;
}

function wantedOf(named: Named[]) {
  return {
    names: named.flatMap(({ name }) => name ?? []),
    ids: named.flatMap(({ id }) => validId(id) ?? []),
  };
}

/**
 * Returns a function that finds a row by name or id.
 * @param field prefix of the two members before `Name` and `Id`
 */
function finder(rows: NamedRow[], field: string, noun: string) {
  const byId = new Map(rows.map((row) => [row.id, row]));
  const byName = new Map(rows.map((row) => [row.name, row]));
  return ({ name, id }: Named, path: string): NamedRow => {
    if (name === undefined && id === undefined)
      throw invalid(`'${path}' is not valid: it needs ${field}Name or ${field}Id`);
    const entry = id === undefined ? byName.get(name!) : byId.get(id.toLowerCase());
    if (!entry) {
      const what = id === undefined ? `name '${name}'` : `id '${id}'`;
      throw invalid(`'${path}' is not valid: no ${noun} has the ${what}`);
    }
    if (name !== undefined && entry.name !== name) {
      throw invalid(`'${path}' is not valid: the ${noun} '${id}' does not have the name '${name}'`);
    }
    return entry;
  };
}

/** Returns a function that refuses a row that occurs a second time in a list. */
function refuseDuplicates(noun: string) {
  const seen = new Set<string>();
  return ({ id, name }: NamedRow, path: string): void => {
    if (seen.has(id)) throw invalid(`'${path}' is not valid: the ${noun} '${name}' is named twice`);
    seen.add(id);
  };
}

/** Maximum number of unknown names in an error message. */
const MAX_NAMED = 10;

/** The valid names of a kind. */
interface AllowedNames {
  noun: string;
  names: ReadonlySet<string>;
}

const allowed = {
  department: { noun: 'department', names: new Set<string>(departments) },
  company: { noun: 'company permission', names: new Set<string>(companyPermissions) },
  workspace: { noun: 'workspace permission', names: new Set<string>(workspacePermissions) },
  team: { noun: 'team permission', names: new Set<string>(teamPermissions) },
} satisfies Record<string, AllowedNames>;

/** The columns of an account that a client may set. */
export interface AccountValues {
  externalId: string | null;
  givenName: string;
  familyName: string;
  displayName: string | null;
  /** Null if the client sent no addresses. */
  emails: Email[] | null;
  department: string;
  active: boolean;
  companyPermissions: string[];
  roles: Role[];
  appGroups: StoredGroup[];
}

interface Given {
  externalId?: string;
  userName?: string;
  name: { givenName: string; familyName: string };
  displayName?: string;
  emails?: (Omit<Email, 'primary'> & { primary?: boolean | string })[];
  department: string;
  active?: boolean | string;
  permissions: { companyPermissions?: string[]; roles?: Role[]; appGroup: GivenGroup[] };
}

interface AccountBody {
  companyId: string;
  body: Record<string, Json>;
  /** The value if the body has no `active`. */
  active: boolean;
}

/**
 * Reads a body that is valid by its schema. Checks names against the lists of departments and permissions, and resolves
 * the company's workspaces, teams and permission sets.
 *
 * @throws {ScimError} 400 with the unknown name
 */
export async function readAccount(
  prisma: Database['prisma'],
  { companyId, body, active }: AccountBody,
): Promise<AccountValues> {
  const given = body as unknown as Given;
  const { permissions } = given;
  requireAllowed([given.department], allowed.department, 'department');
  requireAllowed(permissions.companyPermissions, allowed.company, 'permissions.companyPermissions');
  permissions.appGroup.forEach((group, index) => {
    requireAllowedIn(group, `permissions.appGroup.${index}`);
  });
  return {
    externalId: given.externalId ?? null,
    givenName: given.name.givenName,
    familyName: given.name.familyName,
    displayName: given.displayName ?? null,
    emails: given.emails ? toEmails(given.emails, given.userName) : null,
    department: given.department,
    active: given.active === undefined ? active : truthOf(given.active) === true,
    companyPermissions: [...new Set(permissions.companyPermissions)],
    roles: toRoles(permissions.roles ?? []),
    appGroups: await resolveGroups(prisma, companyId, permissions.appGroup),
  };
}

/**
 * Reduces roles to the stored members.
 *
 * @throws {ScimError} 400 if a role has neither a name nor an id
 */
function toRoles(given: Role[]): Role[] {
  return given.map(({ roleName, roleId }, index) => {
    if (roleName === undefined && roleId === undefined)
      throw invalid(`'permissions.roles.${index}' is not valid: it needs roleName or roleId`);
    return { ...(roleId !== undefined && { roleId }), ...(roleName !== undefined && { roleName }) };
  });
}

/** Converts the values to columns. */
export function toColumns({ emails, ...values }: AccountValues) {
  return { ...values, emails: emails ?? Prisma.DbNull };
}

/**
 * Reduces addresses to the stored members. At most one stays primary: the last one that was set (RFC 7644 §3.5.2).
 * Returns null for the default addresses of the account, so that nothing changes if a provider sends back what it read.
 */
function toEmails(given: NonNullable<Given['emails']>, userName: string | undefined): Email[] | null {
  const lastPrimary = given.findLastIndex(
    ({ primary }) => primary !== undefined && truthOf(primary) === true,
  );
  const emails = given.map(({ value, type, primary, display }, index) => ({
    ...(value !== undefined && { value }),
    ...(type !== undefined && { type }),
    ...(primary !== undefined && { primary: index === lastPrimary }),
    ...(display !== undefined && { display }),
  }));
  return userName !== undefined && isDeepStrictEqual(emails, defaultEmails(userName)) ? null : emails;
}

/**
 * Converts a user name to lower case.
 * @throws {ScimError} 400 if it is not an email address
 */
export function readEmail(userName: string): string {
  const email = normalizeStaffEmail(userName);
  if (email === undefined) throw invalid("'userName' is not valid: it must be an email address");
  return email;
}

function requireAllowedIn(group: GivenGroup, path: string): void {
  const { appGroupPermissions: named, appGroupPermissionSets: sets, team = [] } = group;
  if (named?.length && sets?.length) {
    throw invalid(`'${path}' is not valid: it has appGroupPermissions or appGroupPermissionSets, not both`);
  }
  requireAllowed(named, allowed.workspace, `${path}.appGroupPermissions`);
  team.forEach(({ teamPermissions: given }, index) => {
    requireAllowed(given, allowed.team, `${path}.team.${index}.teamPermissions`);
  });
}

function requireAllowed(given: string[] | undefined, { noun, names }: AllowedNames, path: string): void {
  const unknown = given?.filter((name) => !names.has(name)) ?? [];
  if (unknown.length === 0) return;
  const shown = unknown.slice(0, MAX_NAMED).map((name) => `'${name}'`);
  if (unknown.length > MAX_NAMED) shown.push('…');
  const hint = names.size <= 10 ? `; there are ${[...names].join(', ')}` : '';
  throw invalid(`'${path}' is not valid: there is no ${noun} ${shown.join(', ')}${hint}`);
}
