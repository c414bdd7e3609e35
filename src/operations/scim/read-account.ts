import { normalizeStaffEmail } from '../../profile/email.ts';
import type { Json } from '../../profile/json.ts';
import {
  companyPermissions,
  departments,
  teamPermissions,
  workspacePermissions,
} from '../../schemas/scim-permissions.ts';
import type { Database } from '../../store/database.ts';
import { resolveGroups } from './resolve-groups.ts';
import type { StoredGroup } from './resource.ts';
import { invalid } from './scim-error.ts';

/** What a client may set of an account. */
export interface AccountValues {
  externalId: string | null;
  givenName: string;
  familyName: string;
  department: string;
  active: boolean;
  companyPermissions: string[];
  appGroups: StoredGroup[];
}

/** An element of `appGroup`, of the right form. */
export type GivenGroup = {
  appGroupName?: string;
  appGroupId?: string;
  appGroupPermissions?: string[];
  appGroupPermissionSets?: { appGroupPermissionSetName?: string; appGroupPermissionSetId?: string }[];
  team?: { teamName?: string; teamId?: string; teamPermissions?: string[] }[];
};

interface Given {
  externalId?: string;
  name: { givenName: string; familyName: string };
  department: string;
  active?: boolean | string;
  permissions: { companyPermissions?: string[]; appGroup: GivenGroup[] };
}

/**
 * Reads a body that has passed its schema: what the lists and the rows of the company say about it.
 *
 * @param active what holds when the body does not say
 * @throws {ScimError} 400, naming what is unknown
 */
export async function readAccount(
  prisma: Database['prisma'],
  companyId: string,
  body: Record<string, Json>,
  active: boolean,
): Promise<AccountValues> {
  const given = body as unknown as Given;
  const { permissions } = given;
  requireKnown([given.department], departments, 'department', 'department');
  requireKnown(
    permissions.companyPermissions,
    companyPermissions,
    'permissions.companyPermissions',
    'company permission',
  );
  permissions.appGroup.forEach((group, index) => {
    requireKnownIn(group, `permissions.appGroup.${index}`);
  });
  return {
    externalId: given.externalId ?? null,
    givenName: given.name.givenName,
    familyName: given.name.familyName,
    department: given.department,
    active: given.active === undefined ? active : String(given.active).toLowerCase() === 'true',
    companyPermissions: [...new Set(permissions.companyPermissions)],
    appGroups: await resolveGroups(prisma, companyId, permissions.appGroup),
  };
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
  requireKnown(named, workspacePermissions, `${place}.appGroupPermissions`, 'workspace permission');
  team.forEach(({ teamPermissions: given }, index) => {
    requireKnown(given, teamPermissions, `${place}.team.${index}.teamPermissions`, 'team permission');
  });
}

function requireKnown(
  given: string[] | undefined,
  known: readonly string[],
  place: string,
  noun: string,
): void {
  const unknown = given?.filter((name) => !known.includes(name)) ?? [];
  if (unknown.length === 0) return;
  const names = unknown.map((name) => `'${name}'`).join(', ');
  const hint = known.length <= 10 ? `; there are ${known.join(', ')}` : '';
  throw invalid(`'${place}' is not valid: there is no ${noun} ${names}${hint}`);
}
