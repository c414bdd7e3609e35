import { canonicalText, type Json } from '../../profile/json.ts';
import { isRecord } from '../../profile/values.ts';
import { namesOf } from '../../store/accounts.ts';
import type { Database } from '../../store/database.ts';
import type { Attribute } from './attributes.ts';
import { SCIM_ROOT, type Spend, USER } from './messages.ts';
import type { Member } from './spell.ts';

/** A validated element of `appGroup`. */
export type GivenGroup = {
  appGroupName?: string;
  appGroupId?: string;
  appGroupPermissions?: string[];
  appGroupPermissionSets?: { appGroupPermissionSetName?: string; appGroupPermissionSetId?: string }[];
  team?: { teamName?: string; teamId?: string; teamPermissions?: string[] }[];
};

/** A stored email address. */
export type Email = { value?: string; type?: string; primary?: boolean; display?: string };

/** A stored role. */
export type Role = { roleId?: string; roleName?: string };

/** A row of `accounts`. */
export type Account = NonNullable<Awaited<ReturnType<Database['prisma']['account']['findFirst']>>>;

/** An element of `accounts.app_groups`, with ids only. */
export type StoredGroup = {
  workspace: string;
  permissions: string[];
  /** Id of the permission set, instead of permissions. */
  permissionSet?: string;
  teams: { team: string; permissions: string[] }[];
};

/** Names by id. */
interface Names {
  workspaces: Map<string, string>;
  teams: Map<string, string>;
  permissionSets: Map<string, string>;
}

/** Reads the names of everything that the accounts refer to, with one statement per kind in use. */
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

/** Returns the entity tag of an account (RFC 7644 §3.14). */
export function versionOf({ version }: Account): string {
  return `W/"${version}"`;
}

/**
 * Returns the URL of an account.
 * @param baseUrl scheme and host of the request's URL
 */
export function locationOf({ id }: Pick<Account, 'id'>, baseUrl: string): string {
  return `${baseUrl}${SCIM_ROOT}/Users/${id}`;
}

/** Converts an account to a complete resource. */
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

/** Returns the stored addresses, or the user name as the default address if the client set none. */
function emailsOf({ emails, userName }: Account): { emails?: Json } {
  if (emails === null) return { emails: defaultEmails(userName) };
  // An empty list means that the attribute is absent (RFC 7643 §2.5).
  return Array.isArray(emails) && emails.length > 0 ? { emails: emails as Json } : {};
}

/** Returns the roles. An empty list means that the attribute is absent (RFC 7643 §2.5). */
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

function groupsOf({ appGroups }: Pick<Account, 'appGroups'>): StoredGroup[] {
  return appGroups as StoredGroup[];
}

/** Returns the addresses of an account whose client set none. */
export function defaultEmails(userName: string): Email[] {
  return [{ value: userName, type: 'work', primary: true }];
}

/** Number of compared characters that cost as much as one value. */
const PER_VALUE = 32;

/** A new value of an attribute, with the budget for the work. */
interface Addition {
  op: 'add' | 'replace';
  value: Json;
  spend: Spend;
}

/**
 * Returns the value of an attribute after `add` (RFC 7644 §3.5.2.1) or `replace` (§3.5.2.3) of a value with the right
 * type. Changes neither argument.
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

/** The attribute of the compared values, with the budget for the comparison. */
interface Comparison {
  attribute: Pick<Attribute, 'caseExact' | 'subAttributes'>;
  spend: Spend;
}

/**
 * Returns whether a value has all members that a client named: `{"value": "a@x.com"}` matches an address of any type. A
 * list within the value must match completely.
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

/** Returns the list without values that equal one of the other list. The work grows with the sum of both lengths. */
function without(list: Json[], other: Json[], spend: Spend): Json[] {
  const textOf = (value: Json) => {
    const text = canonicalText(value);
    spend(1 + text.length / PER_VALUE);
    return text;
  };
  const texts = new Set(other.map(textOf));
  return list.filter((one) => !texts.has(textOf(one)));
}
