import { departments } from '../../schemas/scim-permissions.ts';

/** An attribute as RFC 7643 §7 describes one. From these follow /Schemas, paths of PATCH, and what is shown. */
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
 * The attributes of a dashboard account. `department`, `lastSignInAt` and `permissions` are this protocol's own; it
 * has them beside those of the core schema, not under a URN of an extension.
 */
export const userAttributes: Attribute[] = [
  attribute('userName', "The account's email address.", {
    required: true,
    mutability: 'immutable',
    uniqueness: 'server',
  }),
  attribute('name', 'What the person is called.', {
    required: true,
    subAttributes: [
      attribute('givenName', 'First name.', { required: true }),
      attribute('familyName', 'Last name.', { required: true }),
    ],
  }),
  attribute('department', 'Where the person works.', { required: true, canonicalValues: departments }),
  attribute('active', 'Whether the account may sign in.', { type: 'boolean' }),
  attribute('lastSignInAt', 'UTC time of the last sign-in to the dashboard, or N/A.', readOnly),
  attribute('permissions', 'What the account may do.', {
    required: true,
    subAttributes: [
      attribute('companyPermissions', 'Names of company-level permissions.', { ...many, caseExact: true }),
      attribute('appGroup', 'What it may do in each workspace.', { ...many, subAttributes: appGroup() }),
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
    attribute('team', 'What it may do in teams of the workspace.', {
      ...many,
      subAttributes: [
        attribute('teamId', 'Id of the team.', { caseExact: true }),
        attribute('teamName', 'Name of the team, instead of its id.', { caseExact: true }),
        attribute('teamPermissions', 'Names of permissions.', { ...many, caseExact: true }),
      ],
    }),
  ];
}

/** Those of RFC 7643 §3.1, which every resource has and no schema lists. */
export const commonAttributes: Attribute[] = [
  attribute('schemas', 'URNs of the schemas.', { ...readOnly, ...many, returned: 'always' }),
  attribute('id', 'Id of the account.', { ...readOnly, caseExact: true, returned: 'always' }),
  attribute('externalId', 'What the client calls it.', { caseExact: true }),
  attribute('meta', 'When it was made and changed.', {
    ...readOnly,
    subAttributes: ['resourceType', 'created', 'lastModified', 'location', 'version'].map((name) =>
      attribute(name, name, readOnly),
    ),
  }),
];

export const allAttributes = [...commonAttributes, ...userAttributes];

/** Names of attributes have no case (RFC 7643 §2.1). */
export function findAttribute(among: Attribute[] | undefined, name: string): Attribute | undefined {
  const wanted = name.toLowerCase();
  return among?.find((one) => one.name.toLowerCase() === wanted);
}

/** A path without the URN of the core schema, which may stand before it (RFC 7644 §3.10). */
export function withoutUrn(path: string, urn: string): string {
  return path.toLowerCase().startsWith(`${urn.toLowerCase()}:`) ? path.slice(urn.length + 1) : path;
}
