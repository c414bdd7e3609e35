import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/compile.ts';
import { companyPermissions, departments } from '../../schemas/permissions.ts';
import { MAX_LIST_LENGTH, MAX_TEXT_LENGTH, USER } from './messages.ts';

/** Maximum number of email addresses of an account. */
const MAX_EMAILS = 20;

/** Maximum number of roles of an account. */
const MAX_ROLES = 50;

/** Maximum number of URNs in `schemas`: the URN of the core schema and those of extensions. */
const MAX_SCHEMAS = 50;

function text(description: string): Schema {
  return {
    type: 'string',
    minLength: 1,
    maxLength: MAX_TEXT_LENGTH,
    // Postgres cannot store U+0000.
    pattern: '^[^\\u0000]*$',
    description,
    rule: `it must be a string of 1 to ${MAX_TEXT_LENGTH} characters`,
  };
}

/** Schema of a boolean. Some providers send booleans as strings. */
const truth = (description: string): Schema => ({
  type: ['boolean', 'string'],
  pattern: '^(?:[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$',
  description,
  rule: 'it must be true or false',
});

const listed = (
  description: string,
  items: Schema = text('One name.'),
  maxItems = MAX_LIST_LENGTH,
): Schema => ({
  type: 'array',
  maxItems,
  items,
  description,
  rule: `it must be an array of at most ${maxItems} ${items.type === 'object' ? 'objects' : 'strings'}`,
});

const anObject = 'it must be an object';

const team: Schema = {
  type: 'object',
  rule: anObject,
  properties: {
    teamName: text('A team of the workspace.'),
    teamId: text('Id of the workspace.'),
    teamPermissions: listed('Names of permissions in the team.'),
  },
};

const appGroup: Schema = {
  type: 'object',
  rule: anObject,
  properties: {
    appGroupName: text('A workspace of the company.'),
    appGroupId: text('Id of the workspace.'),
    appGroupPermissions: listed('Names of permissions in the workspace.'),
    appGroupPermissionSets: {
      type: 'array',
      maxItems: 1,
      description: 'A permission set of the company, instead of `appGroupPermissions`.',
      rule: 'it must be an array of one object',
      items: {
        type: 'object',
        rule: anObject,
        properties: {
          appGroupPermissionSetName: text('Its name.'),
          appGroupPermissionSetId: text('Id of the workspace.'),
        },
      },
    },
    team: listed('Teams of the workspace.', team),
  },
};

const role: Schema = {
  type: 'object',
  rule: anObject,
  properties: { roleName: text('Name of the role.'), roleId: text('Id of the role.') },
};

const permissions: Schema = {
  type: 'object',
  required: ['appGroup'],
  rule: anObject,
  properties: {
    companyPermissions: listed(`Permissions in the company: ${companyPermissions.join(', ')}.`),
    roles: listed(
      'Roles by name or by id. They are stored and returned, and grant no permission.',
      role,
      MAX_ROLES,
    ),
    appGroup: listed('Permissions by workspace.', appGroup),
  },
};

const properties: Record<string, Schema> = {
  schemas: {
    type: 'array',
    maxItems: MAX_SCHEMAS,
    contains: { const: USER },
    items: { type: 'string' },
    rule: `it must be an array of strings that holds ${USER}, at most ${MAX_SCHEMAS}`,
  },
  externalId: text('Id of the account in the client.'),
  name: {
    type: 'object',
    required: ['givenName', 'familyName'],
    rule: anObject,
    properties: { givenName: text('First name.'), familyName: text('Last name.') },
  },
  displayName: text('Name shown in clients.'),
  emails: {
    type: 'array',
    maxItems: MAX_EMAILS,
    description: 'Email addresses, returned as sent. By default `userName`.',
    rule: `it must be an array of at most ${MAX_EMAILS} objects`,
    items: {
      type: 'object',
      rule: anObject,
      properties: {
        value: text('The address.'),
        type: text('Purpose of the address, for example `work`.'),
        primary: truth('Whether the address is the primary one.'),
        display: text('Display name of the address.'),
      },
    },
  },
  department: text(`One of ${departments.join(', ')}.`),
  active: truth('Whether the account can sign in to the console.'),
  permissions,
};

const userName = text("The account's email address.");

/** Schema of the body of a create, and of a patched account. */
export const createSchema: Schema = {
  type: 'object',
  required: ['schemas', 'userName', 'name', 'department', 'permissions'],
  properties: { userName, ...properties },
};

/** Schema of the body of a replace. */
export const replaceSchema: Schema = {
  type: 'object',
  required: ['schemas', 'name', 'department', 'permissions'],
  properties: {
    userName: { ...userName, description: 'The current value. It cannot change.' },
    ...properties,
  },
};

/** Schema of an account in an answer. */
export const resourceSchema: Schema = {
  title: 'User',
  type: 'object',
  properties: {
    schemas: { type: 'array', items: { const: USER } },
    id: { type: 'string', description: 'Id of the account.' },
    externalId: { type: 'string', description: 'Id of the account in the client.' },
    userName: { type: 'string', description: "The account's email address." },
    name: {
      type: 'object',
      properties: { givenName: { type: 'string' }, familyName: { type: 'string' } },
    },
    displayName: { type: 'string', description: 'As sent. Absent if none was sent.' },
    emails: {
      type: 'array',
      description: 'As sent. If none was sent, `userName`.',
      items: {
        type: 'object',
        properties: {
          value: { type: 'string' },
          type: { type: 'string' },
          primary: { type: 'boolean' },
          display: { type: 'string' },
        },
      },
    },
    department: { enum: departments },
    active: { type: 'boolean', description: 'Whether the account can sign in to the console.' },
    lastSignInAt: {
      type: 'string',
      description: 'UTC time of the last sign-in to the console, or `N/A` before the first sign-in.',
    },
    permissions: {
      type: 'object',
      description: 'As sent, with the names and the ids of workspaces, teams and permission sets.',
    },
    meta: {
      type: 'object',
      properties: {
        resourceType: { const: 'User' },
        created: { type: 'string', format: 'date-time' },
        lastModified: { type: 'string', format: 'date-time' },
        location: { type: 'string' },
        version: { type: 'string' },
      },
    },
  },
};

/** Id of the account in the documented examples. */
export const EXAMPLE_ID = '019c13ec-a2e2-7b61-8f0c-55a3d7e9c210';
const WORKSPACE_ID = '019c13ec-9a10-7c1e-b0d4-3f5a6c7d8e90';

export const exampleGiven: Record<string, Json> = {
  schemas: [USER],
  userName: 'ada@example.com',
  name: { givenName: 'Ada', familyName: 'Lovelace' },
  department: 'engineering',
  permissions: {
    companyPermissions: ['manage_company_settings'],
    appGroup: [{ appGroupName: 'default', appGroupPermissions: ['basic_access', 'export_user_data'] }],
  },
};

/** The account of `exampleGiven` as an answer returns it. */
export const exampleResource: Record<string, Json> = {
  ...exampleGiven,
  id: EXAMPLE_ID,
  active: true,
  emails: [{ value: 'ada@example.com', type: 'work', primary: true }],
  lastSignInAt: 'N/A',
  permissions: {
    companyPermissions: ['manage_company_settings'],
    appGroup: [
      {
        appGroupId: WORKSPACE_ID,
        appGroupName: 'default',
        appGroupPermissions: ['basic_access', 'export_user_data'],
        team: [],
      },
    ],
  },
  meta: {
    resourceType: 'User',
    created: '2026-01-31T12:00:00.000Z',
    lastModified: '2026-01-31T12:00:00.000Z',
    location: `https://penstock.example/scim/v2/Users/${EXAMPLE_ID}`,
    version: 'W/"1"',
  },
};
