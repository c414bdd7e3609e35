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
 * Workspaces, teams and permission sets of a company, by the names or ids that a client has given: a
 * statement for each kind that is named. Rows of other companies are as unknown as those that there are not.
 *
 * @throws {ScimError} 400, naming what is unknown and where it stands
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
  const requireNewWorkspace = onlyOnce('workspace');
  const groups = given.map((group, index) => {
    const place = `permissions.appGroup.${index}`;
    const workspace = findWorkspace(toNamedWorkspace(group), place);
    requireNewWorkspace(workspace, place);
    const [set] = group.appGroupPermissionSets ?? [];
    const permissionSet = set && findSet(toNamedSet(set), `${place}.appGroupPermissionSets.0`);
    return { group, place, workspaceId: workspace.id, permissionSet };
  });

  const named = groups.flatMap(({ group, workspaceId }) =>
    (group.team ?? []).map((team) => ({ workspaceId, ...toNamedTeam(team) })),
  );
  const teamRows = await findTeams(
    prisma,
    named.map((team) => ({ ...team, id: knownId(team.id) })),
  );
  const byWorkspace = new Map(groups.map(({ workspaceId }): [string, NamedRow[]] => [workspaceId, []]));
  for (const team of teamRows) byWorkspace.get(team.workspaceId)?.push(team);
  return groups.map(({ group, place, workspaceId, permissionSet }) => {
    const findTeam = finder(byWorkspace.get(workspaceId) ?? [], 'team', 'team');
    const requireNewTeam = onlyOnce('team');
    return {
      workspace: workspaceId,
      permissions: [...new Set(group.appGroupPermissions)],
      ...(permissionSet && { permissionSet: permissionSet.id }),
      teams: (group.team ?? []).map((one, at) => {
        const team = findTeam(toNamedTeam(one), `${place}.team.${at}`);
        requireNewTeam(team, `${place}.team.${at}`);
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

/** Ids that are no UUID are nobody's, and Postgres would refuse them. */
function knownId(id: string | undefined): string | undefined {
  return id !== undefined && validate(id) ? id.toLowerCase() : undefined;
}

function wantedOf(named: Named[]) {
  return {
    names: named.flatMap(({ name }) => name ?? []),
    ids: named.flatMap(({ id }) => knownId(id) ?? []),
  };
}

/** @param field what the two members are called before `Name` and `Id` */
function finder(rows: NamedRow[], field: string, noun: string) {
  const byId = new Map(rows.map((row) => [row.id, row]));
  const byName = new Map(rows.map((row) => [row.name, row]));
  return ({ name, id }: Named, place: string): NamedRow => {
    if (name === undefined && id === undefined)
      throw invalid(`'${place}' is not valid: it needs ${field}Name or ${field}Id`);
    const found = id === undefined ? byName.get(name!) : byId.get(id.toLowerCase());
    if (!found) {
      const what = id === undefined ? `name '${name}'` : `id '${id}'`;
      throw invalid(`'${place}' is not valid: no ${noun} has the ${what}`);
    }
    if (name !== undefined && found.name !== name) {
      throw invalid(`'${place}' is not valid: the ${noun} '${id}' does not have the name '${name}'`);
    }
    return found;
  };
}

/** Refuses a row of a list that has come before. */
function onlyOnce(noun: string) {
  const seen = new Set<string>();
  return ({ id, name }: NamedRow, place: string): void => {
    if (seen.has(id)) throw invalid(`'${place}' is not valid: the ${noun} '${name}' is named twice`);
    seen.add(id);
  };
}

/** Names that an error repeats. */
const MOST_NAMED = 10;

/** Names that there are, and what each of them names. */
interface KnownNames {
  noun: string;
  names: ReadonlySet<string>;
}

const known = {
  department: { noun: 'department', names: new Set<string>(departments) },
  company: { noun: 'company permission', names: new Set<string>(companyPermissions) },
  workspace: { noun: 'workspace permission', names: new Set<string>(workspacePermissions) },
  team: { noun: 'team permission', names: new Set<string>(teamPermissions) },
} satisfies Record<string, KnownNames>;

/** What a client may set of an account. */
export interface AccountValues {
  externalId: string | null;
  givenName: string;
  familyName: string;
  displayName: string | null;
  /** Null: none were given. */
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
  /** What holds when the body does not say. */
  active: boolean;
}

/**
 * Reads a body that has passed its schema: what the lists and the rows of the company say about it.
 *
 * @throws {ScimError} 400, naming what is unknown
 */
export async function readAccount(
  prisma: Database['prisma'],
  { companyId, body, active }: AccountBody,
): Promise<AccountValues> {
  const given = body as unknown as Given;
  const { permissions } = given;
  requireKnown([given.department], known.department, 'department');
  requireKnown(permissions.companyPermissions, known.company, 'permissions.companyPermissions');
  permissions.appGroup.forEach((group, index) => {
    requireKnownIn(group, `permissions.appGroup.${index}`);
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
 * Keeps the members of roles that we know.
 *
 * @throws {ScimError} 400 when a role has neither a name nor an id
 */
function toRoles(given: Role[]): Role[] {
  return given.map(({ roleName, roleId }, index) => {
    if (roleName === undefined && roleId === undefined)
      throw invalid(`'permissions.roles.${index}' is not valid: it needs roleName or roleId`);
    return { ...(roleId !== undefined && { roleId }), ...(roleName !== undefined && { roleName }) };
  });
}

/** The same as it is written. */
export function toColumns({ emails, ...values }: AccountValues) {
  return { ...values, emails: emails ?? Prisma.DbNull };
}

/**
 * With the members that we know, and one of them primary at most: the last that was made so (RFC 7644 §3.5.2). Null for
 * what an account has without any, so that nothing changes when a provider sends back what it read.
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

/** The lower-case form of a user name. @throws {ScimError} 400 when it is no email address */
export function readEmail(userName: string): string {
  const email = normalizeStaffEmail(userName);
  if (email === undefined) throw invalid("'userName' is not valid: it must be an email address");
  return email;
}

function requireKnownIn(group: GivenGroup, place: string): void {
  const { appGroupPermissions: named, appGroupPermissionSets: sets, team = [] } = group;
  if (named?.length && sets?.length) {
    throw invalid(`'${place}' is not valid: it has appGroupPermissions or appGroupPermissionSets, not both`);
  }
  requireKnown(named, known.workspace, `${place}.appGroupPermissions`);
  team.forEach(({ teamPermissions: given }, index) => {
    requireKnown(given, known.team, `${place}.team.${index}.teamPermissions`);
  });
}

function requireKnown(given: string[] | undefined, { noun, names }: KnownNames, place: string): void {
  const unknown = given?.filter((name) => !names.has(name)) ?? [];
  if (unknown.length === 0) return;
  const shown = unknown.slice(0, MOST_NAMED).map((name) => `'${name}'`);
  if (unknown.length > MOST_NAMED) shown.push('…');
  const hint = names.size <= 10 ? `; there are ${[...names].join(', ')}` : '';
  throw invalid(`'${place}' is not valid: there is no ${noun} ${shown.join(', ')}${hint}`);
}
