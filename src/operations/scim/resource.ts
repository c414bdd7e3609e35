import { canonicalText, type Json } from '../../profile/json.ts';
import { isRecord } from '../../profile/values.ts';
import { namesOf } from '../../store/accounts.ts';
import type { Database } from '../../store/database.ts';
import type { Attribute } from './attributes.ts';
import { SCIM_ROOT, type Spend, USER } from './messages.ts';
import type { Member } from './spell.ts';

/** An element of `appGroup`, of the right form. */
export type GivenGroup = {
  appGroupName?: string;
  appGroupId?: string;
  appGroupPermissions?: string[];
  appGroupPermissionSets?: { appGroupPermissionSetName?: string; appGroupPermissionSetId?: string }[];
  team?: { teamName?: string; teamId?: string; teamPermissions?: string[] }[];
};

/** An address as it was given. */
export type Email = { value?: string; type?: string; primary?: boolean; display?: string };

/** A role as it was given. */
export type Role = { roleId?: string; roleName?: string };

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
  const [workspaces, teams, permissionSets] = await Promise.all([
    namesOf(
      prisma,
      'workspaces',
      groups.map((one) => one.workspace),
    ),
    namesOf(
      prisma,
      'teams',
      groups.flatMap((one) => one.teams.map(({ team }) => team)),
    ),
    namesOf(
      prisma,
      'permission_sets',
      groups.flatMap((one) => one.permissionSet ?? []),
    ),
  ]);
  return { workspaces, teams, permissionSets };
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
    ...(account.displayName !== null && { displayName: account.displayName }),
    ...emailsOf(account),
    department: account.department,
    active: account.active,
    lastSignInAt: account.lastSignInAt?.toISOString() ?? 'N/A',
    permissions: {
      companyPermissions: account.companyPermissions,
      ...rolesOf(account),
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

/** Those that were given; of an account that was given none, its name. */
function emailsOf({ emails, userName }: Account): { emails?: Json } {
  if (emails === null) return { emails: defaultEmails(userName) };
  // An empty list is an attribute that is not there (RFC 7643 §2.5).
  return Array.isArray(emails) && emails.length > 0 ? { emails: emails as Json } : {};
}

/** An empty list is an attribute that is not there (RFC 7643 §2.5). */
function rolesOf({ roles }: Account): { roles?: Json } {
  return Array.isArray(roles) && roles.length > 0 ? { roles: roles as Json } : {};
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

/** What an account that was given no address is answered with. */
export function defaultEmails(userName: string): Email[] {
  return [{ value: userName, type: 'work', primary: true }];
}

/** Characters that are compared for the price of one value. */
const PER_VALUE = 32;

/** A value that an attribute gets, and what the work is charged to. */
interface Addition {
  op: 'add' | 'replace';
  value: Json;
  spend: Spend;
}

/**
 * What an attribute is after `add` (RFC 7644 §3.5.2.1) or `replace` (§3.5.2.3) of a value that is of its type. Changes
 * neither.
 */
export function combine(
  current: Json | undefined,
  { op, value, spend }: Addition,
  { multiValued, subAttributes }: Pick<Attribute, 'multiValued' | 'subAttributes'>,
): Json {
  spend(1);
  if (multiValued) {
    if (op === 'replace' || !Array.isArray(current) || !Array.isArray(value)) return value;
    return [...current, ...without(value, current, spend)];
  }
  if (!subAttributes || !isRecord(current) || !isRecord(value)) return value;
  const combined: Member = { ...current };
  for (const sub of subAttributes) {
    const member = value[sub.name];
    if (member !== undefined)
      combined[sub.name] = combine(current[sub.name], { op, value: member, spend }, sub);
  }
  return combined;
}

/** The attribute of compared values, and what the comparison is charged to. */
interface Comparison {
  attribute: Pick<Attribute, 'caseExact' | 'subAttributes'>;
  spend: Spend;
}

/**
 * Whether a value has all that a client names of it: `{"value": "a@x.com"}` matches an address of any type. A list within
 * the value has to match as a whole.
 */
export function matches(stored: Json | undefined, wanted: Json, { attribute, spend }: Comparison): boolean {
  spend(1);
  const { caseExact, subAttributes } = attribute;
  if (Array.isArray(wanted)) {
    if (!Array.isArray(stored) || stored.length !== wanted.length) return false;
    return wanted.every((one) => stored.some((other) => matches(other, one, { attribute, spend })));
  }
  if (subAttributes && isRecord(wanted)) {
    if (!isRecord(stored)) return false;
    return subAttributes.every((sub) => {
      const member = wanted[sub.name];
      return member === undefined || matches(stored[sub.name], member, { attribute: sub, spend });
    });
  }
  if (typeof wanted !== 'string' || typeof stored !== 'string') return stored === wanted;
  spend(Math.min(stored.length, wanted.length) / PER_VALUE);
  return caseExact ? stored === wanted : stored.toLowerCase() === wanted.toLowerCase();
}

/** A list without the values that are equal to one of another list. Its work grows with the sum of both. */
function without(list: Json[], other: Json[], spend: Spend): Json[] {
  const textOf = (value: Json) => {
    const text = canonicalText(value);
    spend(1 + text.length / PER_VALUE);
    return text;
  };
  const texts = new Set(other.map(textOf));
  return list.filter((one) => !texts.has(textOf(one)));
}
