import { departments } from '../../schemas/permissions.ts';
import { USER } from './messages.ts';

/** Maximum number of characters of a path, and so of an attribute name. */
export const MAX_PATH_LENGTH = 500;

/** Number of parts of the deepest path, `permissions.appGroup.team.teamPermissions`. */
const MAX_PARTS = 4;

/** An attribute in the form of RFC 7643 §7. /Schemas, the paths of PATCH and the shown members are derived from it. */
export interface Attribute {
  name: string;
  type: 'string' | 'boolean' | 'complex' | 'reference' | 'dateTime';
  description: string;
  multiValued: boolean;
  required: boolean;
  caseExact: boolean;
  mutability: 'readOnly' | 'readWrite' | 'immutable';
  returned: 'always' | 'default';
  uniqueness: 'none' | 'server';
  canonicalValues?: readonly string[];
  subAttributes?: Attribute[];
}

function attribute(name: string, description: string, change: Partial<Attribute> = {}): Attribute {
  return {
    name,
    type: change.subAttributes ? 'complex' : 'string',
    description,
    multiValued: false,
    required: false,
    caseExact: false,
    mutability: 'readWrite',
    returned: 'default',
    uniqueness: 'none',
    ...change,
  };
}

const many = { multiValued: true } as const;
const readOnly = { mutability: 'readOnly' } as const;

/**
 * The attributes of a console account. `department`, `lastSignInAt` and `permissions` are specific to this API. They
 * are attributes of the core schema instead of an extension with its own URN.
 */
export const userAttributes: Attribute[] = [
  attribute('userName', "The account's email address.", {
    required: true,
    mutability: 'immutable',
    uniqueness: 'server',
  }),
  attribute('name', 'The name of the person.', {
    required: true,
    subAttributes: [
      attribute('givenName', 'First name.', { required: true }),
      attribute('familyName', 'Last name.', { required: true }),
    ],
  }),
  attribute('displayName', 'Name shown in clients.'),
  attribute('emails', 'Addresses as the provider knows them; without any, userName.', {
    ...many,
    subAttributes: [
      attribute('value', 'The address.'),
      attribute('type', 'The purpose of the address or number.', {
        canonicalValues: ['work', 'home', 'other'],
      }),
      attribute('primary', 'Whether the address is the primary one.', { type: 'boolean' }),
      attribute('display', 'Display name of the address.'),
    ],
  }),
  attribute('department', 'Where the person works.', { required: true, canonicalValues: departments }),
  attribute('active', 'Whether the account may sign in.', { type: 'boolean' }),
  attribute('lastSignInAt', 'UTC time of the last sign-in to the dashboard, or N/A.', readOnly),
  attribute('permissions', 'The permissions of the account.', {
    required: true,
    subAttributes: [
      attribute('companyPermissions', 'Names of company-level permissions.', { ...many, caseExact: true }),
      attribute('roles', 'Roles of the identity provider. They grant no permission.', {
        ...many,
        subAttributes: [
          attribute('roleId', 'Id of the role.', { caseExact: true }),
          attribute('roleName', 'Name of the role.', { caseExact: true }),
        ],
      }),
      attribute('appGroup', 'The permissions in each workspace.', {
        ...many,
        required: true,
        subAttributes: appGroup(),
      }),
    ],
  }),
];

function appGroup(): Attribute[] {
  return [
    attribute('appGroupId', 'Id of the workspace.', { caseExact: true }),
    attribute('appGroupName', 'Name of the workspace, instead of its id.', { caseExact: true }),
    attribute('appGroupPermissions', 'Names of permissions.', { ...many, caseExact: true }),
    attribute('appGroupPermissionSets', 'One permission set, instead of permissions.', {
      ...many,
      subAttributes: [
        attribute('appGroupPermissionSetId', 'Its id.', { caseExact: true }),
        attribute('appGroupPermissionSetName', 'Its name, instead of its id.', { caseExact: true }),
      ],
    }),
    attribute('team', 'The permissions in teams of the workspace.', {
      ...many,
      subAttributes: [
        attribute('teamId', 'Id of the team.', { caseExact: true }),
        attribute('teamName', 'Name of the team, instead of its id.', { caseExact: true }),
        attribute('teamPermissions', 'Names of permissions.', { ...many, caseExact: true }),
      ],
    }),
  ];
}

/** The attributes of RFC 7643 §3.1, which every resource has and which are not in a schema. */
const commonAttributes: Attribute[] = [
  attribute('schemas', 'URNs of the schemas.', { ...readOnly, ...many, returned: 'always' }),
  attribute('id', 'Id of the account.', { ...readOnly, caseExact: true, returned: 'always' }),
  attribute('externalId', 'The identifier of the client.', { caseExact: true }),
  attribute('meta', 'When it was made and changed.', {
    ...readOnly,
    subAttributes: ['resourceType', 'created', 'lastModified', 'location', 'version'].map((name) =>
      attribute(name, name, readOnly),
    ),
  }),
];

export const allAttributes = [...commonAttributes, ...userAttributes];

/** Attributes by lower-case name. The lists of attributes are constants, so an entry stays valid. */
const byName = new WeakMap<Attribute[], Map<string, Attribute>>();

/** Finds an attribute by its name, ignoring case (RFC 7643 §2.1). */
export function findAttribute(among: Attribute[] | undefined, name: string): Attribute | undefined {
  if (!among || name.length > MAX_PATH_LENGTH) return undefined;
  const named = byName.get(among) ?? new Map(among.map((one) => [one.name.toLowerCase(), one]));
  byName.set(among, named);
  return named.get(name.toLowerCase());
}

/** Removes the URN of the core schema, which a path may begin with (RFC 7644 §3.10). */
export function withoutUrn(path: string, urn: string): string {
  const start = path.slice(0, urn.length + 1);
  return start.toLowerCase() === `${urn.toLowerCase()}:` ? path.slice(urn.length + 1) : path;
}

/**
 * Lower-case paths of attributes that Penstock does not store: those of RFC 7643 §4.1 and §2.4, and those that newer
 * services with this API return.
 */
const NOT_STORED = new Set(
  [
    ...['password', 'nickName', 'profileUrl', 'title', 'userType', 'preferredLanguage', 'locale', 'timezone'],
    ...['phoneNumbers', 'ims', 'photos', 'addresses', 'groups', 'entitlements', 'roles', 'x509Certificates'],
    ...['formatted', 'middleName', 'honorificPrefix', 'honorificSuffix'].map((name) => `name.${name}`),
    ...['emails.$ref', 'createdAt', 'permissions.roles.appGroup'],
    'permissions.appGroup.appGroupPermissionSets.permissions',
  ].map((name) => name.toLowerCase()),
);

/**
 * Returns whether a path of a PATCH, or a name in its value, leads to an attribute that the standard, an extension or
 * this API defines and that Penstock does not store. Such an attribute is ignored, because a refusal would also refuse
 * the rest of the request, for example `active: false`.
 */
export function isNotStored(path: string): boolean {
  const plain = withoutUrn(path, USER).toLowerCase();
  if (plain.startsWith('urn:')) return plain !== USER.toLowerCase();
  const names = plain.replace(/\[(?:[^"\]]|"(?:[^"\\]|\\.)*")*\]/g, '').split('.', MAX_PARTS);
  return names.some((_, index) => NOT_STORED.has(names.slice(0, index + 1).join('.')));
}
