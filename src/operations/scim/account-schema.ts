import type { Schema } from '../../schemas/schema.ts';
import { companyPermissions, departments } from '../../schemas/scim-permissions.ts';
import { USER } from './messages.ts';

/** Most workspaces, permissions or teams in one list of an account. */
const MOST = 500;

/** Characters of a name. */
const LONGEST = 255;

function text(description: string): Schema {
  return {
    type: 'string',
    minLength: 1,
    maxLength: LONGEST,
    // Postgres has no text with a NUL in it.
    pattern: '^[^\\u0000]*$',
    description,
    rule: `it must be a string of 1 to ${LONGEST} characters`,
  };
}

const listed = (description: string, items: Schema = text('One name.')): Schema => ({
  type: 'array',
  maxItems: MOST,
  items,
  description,
  rule: `it must be an array of at most ${MOST} ${items.type === 'object' ? 'objects' : 'strings'}`,
});

const anObject = 'it must be an object';

const team: Schema = {
  type: 'object',
  rule: anObject,
  properties: {
    teamName: text('A team of the workspace.'),
    teamId: text('The same, by its id.'),
    teamPermissions: listed('Names of permissions in the team.'),
  },
};

const appGroup: Schema = {
  type: 'object',
  rule: anObject,
  properties: {
    appGroupName: text('A workspace of the company.'),
    appGroupId: text('The same, by its id.'),
    appGroupPermissions: listed('Names of permissions in the workspace.'),
    appGroupPermissionSets: {
      type: 'array',
      maxItems: 1,
      description: 'Instead of `appGroupPermissions`: one permission set of the company.',
      rule: 'it must be an array of one object',
      items: {
        type: 'object',
        rule: anObject,
        properties: {
          appGroupPermissionSetName: text('Its name.'),
          appGroupPermissionSetId: text('The same, by its id.'),
        },
      },
    },
    team: listed('Teams of the workspace.', team),
  },
};

const permissions: Schema = {
  type: 'object',
  required: ['appGroup'],
  rule: anObject,
  properties: {
    companyPermissions: listed(`Of the company: ${companyPermissions.join(', ')}.`),
    appGroup: listed('Permissions by workspace.', appGroup),
  },
};

const properties: Record<string, Schema> = {
  schemas: {
    type: 'array',
    contains: { const: USER },
    items: { type: 'string' },
    rule: `it must be an array of strings that holds ${USER}`,
  },
  externalId: text('What the client calls the account.'),
  name: {
    type: 'object',
    required: ['givenName', 'familyName'],
    rule: anObject,
    properties: { givenName: text('First name.'), familyName: text('Last name.') },
  },
  department: text(`One of ${departments.join(', ')}.`),
  active: {
    type: ['boolean', 'string'],
    pattern: '^([Tt]rue|[Ff]alse)$',
    description: 'Whether the account may sign in to the dashboard.',
    rule: 'it must be true or false',
  },
  permissions,
};

const userName = text("The account's email address.");

/** The body of a create. */
export const createSchema: Schema = {
  type: 'object',
  required: ['schemas', 'userName', 'name', 'department', 'permissions'],
  properties: { userName, ...properties },
};

/** The body of a replace, and what a patch has to result in. */
export const replaceSchema: Schema = {
  type: 'object',
  required: ['schemas', 'name', 'department', 'permissions'],
  properties: { userName: { ...userName, description: 'As it is; it cannot be changed.' }, ...properties },
};

/** An account as it is answered. */
export const resourceSchema: Schema = {
  title: 'User',
  type: 'object',
  properties: {
    schemas: { type: 'array', items: { const: USER } },
    id: { type: 'string', description: 'Id of the account.' },
    externalId: { type: 'string', description: 'What the client calls the account.' },
    userName: { type: 'string', description: "The account's email address." },
    name: {
      type: 'object',
      properties: { givenName: { type: 'string' }, familyName: { type: 'string' } },
    },
    department: { enum: departments },
    active: { type: 'boolean', description: 'Whether the account may sign in to the dashboard.' },
    lastSignInAt: {
      type: 'string',
      description: 'UTC time of the last sign-in to the dashboard, or `N/A` before the first.',
    },
    permissions: { type: 'object', description: 'As given, with the names and the ids of what was named.' },
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
