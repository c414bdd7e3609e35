import { duration } from '../platform/format.ts';
import {
  type Permission,
  type PermissionPreset,
  permissionGroups,
  permissionPresets,
  permissions,
} from '../schemas/permissions.ts';
import { apiKeyColumns, createApiKey, revokeApiKey, type ShownApiKey } from '../store/api-keys.ts';
import {
  choice,
  commandOnly,
  ipAllowlist,
  name,
  names,
  optional,
  readId,
  readNames,
  secret,
  text,
  withDefault,
} from './fields.ts';
import { Refusal, refuseTaken } from './refusal.ts';
import { action, creation, describeResource, iso, keyset } from './resource.ts';

/** Matches a secret chosen by the user. A shorter one could be guessed, and a longer one does not fit in a header. */
const SECRET = /^[\x21-\x7e]{32,500}$/;

/** Shortens a list of permissions, so that a table row stays short. */
function brief(given: readonly string[]): string {
  if (permissions.every((one) => given.includes(one))) return 'all';
  return given.length > 4 ? `${given.slice(0, 3).join(', ')} and ${given.length - 3} more` : given.join(', ');
}

/** Text of each preset in the form. */
const presetTexts = Object.fromEntries(
  Object.entries(permissionPresets).map(([preset, { line }]) => [preset, `${preset}: ${line}`]),
);

export const keys = describeResource<ShownApiKey>({
  noun: 'keys',
  one: 'key',
  many: 'keys',
  title: 'API keys',
  sentence: 'Create, list and revoke API keys. To change permissions or the allowlist, create a new key.',
  example: 'keys list --workspace default',
  lead: 'Clients authenticate with a key. Permissions and allowed IPs of a key never change: create another key, and revoke the old one.',
  scope: 'workspace',
  permit: 'keys',
  columns: [
    { name: 'api_key_id', title: 'Id (as in log lines)', kind: 'id', not: ['list'], value: ({ id }) => id },
    { name: 'workspace', title: 'Workspace', value: ({ workspace }) => workspace.name },
    { name: 'name', value: (key) => key.name },
    { name: 'identifier', title: 'Begins with', kind: 'code', value: (key) => key.identifier },
    {
      name: 'permissions',
      title: 'Permissions',
      kind: 'list',
      value: (key) => key.permissions,
      shown: (key) => ({ text: brief(key.permissions) }),
      cell: ({ permissions: given }) =>
        permissions.every((one) => given.includes(one)) ? 'all' : String(given.length),
      not: ['page'],
    },
    {
      name: 'all_permissions',
      title: 'Permissions',
      kind: 'list',
      value: (key) => key.permissions,
      not: ['json', 'table', 'list'],
    },
    {
      name: 'ip_allowlist',
      title: 'Allowed IPs',
      value: (key) => key.ipAllowlist,
      shown: (key) => ({ text: key.ipAllowlist.join(', ') || 'any' }),
      not: ['table', 'list'],
    },
    {
      name: 'state',
      title: 'State',
      value: ({ revokedAt }) => (revokedAt === null ? 'active' : 'revoked'),
      shown: ({ revokedAt }) =>
        revokedAt === null ? { badge: 'active', tone: 'good' } : { badge: 'revoked', at: revokedAt },
      not: ['json'],
    },
    {
      name: 'created_at',
      title: 'Created',
      kind: 'time',
      value: (key) => iso(key.createdAt),
      not: ['table'],
    },
    { name: 'last_seen_at', title: 'Last seen', kind: 'time', value: (key) => iso(key.lastSeenAt) },
    { name: 'revoked_at', value: (key) => iso(key.revokedAt), not: ['table'] },
  ],
  listing: {
    sentence: 'List the API keys, oldest first, without their secrets.',
    example: 'keys list --workspace default --json',
  },
  list: ({ database }, page) =>
    database.prisma.apiKey.findMany({ ...keyset('workspaceId', page), select: apiKeyColumns }),
  find: async ({ database }, id) =>
    (await database.prisma.apiKey.findUnique({ where: { id }, select: apiKeyColumns })) ?? undefined,
  nameOf: (key) => key.name,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: {
    argument: '[id]',
    help: 'id of the key',
    options: {
      id: optional(text({ label: 'Id', help: 'id of the key, as an option', value: 'id' }, readId)),
      identifier: optional(
        text(
          {
            label: 'Identifier',
            help: 'first characters of the key, as keys list shows them',
            value: 'identifier',
          },
          (given) => given,
        ),
      ),
    },
    by: ({ options }) => (options.identifier === undefined ? 'the id' : 'the identifier'),
    async find({ database }, { text: argument, options }) {
      const { id: option, identifier } = options as { id?: string; identifier?: string };
      if (argument !== undefined && option !== undefined)
        throw new Refusal('name the key once: by its id or with --id');
      const id = argument ?? option;
      if ((id === undefined) === (identifier === undefined))
        throw new Refusal('name one key: by its id (keys revoke <id>) or with --identifier');
      const matches = await database.prisma.apiKey.findMany({
        where: id === undefined ? { identifier: identifier ?? '' } : { id },
        select: apiKeyColumns,
        take: 10,
      });
      // Identifiers are short and can collide, so an identifier of several keys selects none.
      if (matches.length > 1) {
        const ids = matches.map((key) => key.id).join(', ');
        throw new Refusal(`several keys have the identifier '${identifier}'; name one with --id: ${ids}`);
      }
      return matches[0];
    },
  },
  empty: 'Its secret is shown once.',
  creation: creation({
    verb: 'create',
    button: 'Create key',
    sentence: 'Create an API key and show its secret once.',
    example:
      'keys create --workspace default --permissions users.track,users.merge --ip-allowlist 10.0.0.0/8',
    permit: 'edit_keys',
    done: 'Created.',
    fields: {
      name: withDefault(name('name that lists show'), 'API key'),
      preset: optional(
        choice<PermissionPreset>(
          { label: 'Preset', help: 'permissions for a common client; the list adds further permissions' },
          Object.keys(permissionPresets) as PermissionPreset[],
          { texts: presetTexts, unset: 'None: choose permissions below' },
        ),
      ),
      permissions: optional(
        names<Permission>(
          { label: 'Permissions', help: 'names separated by commas, or all' },
          permissionGroups.map(({ title, permissions: choices }) => ({ title, choices })),
          readNames('permission', permissions, { all: true }),
        ),
      ),
      secret: commandOnly(
        secret({
          label: 'Existing secret',
          help: 'file with an existing secret that clients already use; - reads standard input',
          fileOnly: true,
        }),
      ),
      ip_allowlist: ipAllowlist(
        'addresses and subnets from which it can be used, separated by commas (default: any)',
      ),
    },
    async run({ database, actor }, { owner, values }) {
      const { preset, permissions: listed = [] } = values;
      const ofPreset: readonly Permission[] =
        preset === undefined ? [] : permissionPresets[preset].permissions;
      const given = permissions.filter((one) => listed.includes(one) || ofPreset.includes(one));
      if (given.length === 0)
        throw new Refusal('at least one permission or a preset is required', 'permissions');
      const own = values.secret.isGiven ? (await values.secret.read('Secret')).trim() : undefined;
      if (own !== undefined && !SECRET.test(own))
        throw new Refusal(
          '--secret-file: a secret must have 32 to 500 characters without spaces, on one line',
        );
      const { secret: made, key } = await createApiKey(database, actor, {
        ...{ workspaceId: owner.id, name: values.name, permissions: given },
        ...{ ipAllowlist: values.ip_allowlist, ...(own !== undefined && { secret: own }) },
      }).catch(refuseTaken('another key already has this secret'));
      return own === undefined
        ? {
            one: key,
            secret: { name: 'api_key', value: made },
            note: 'Save the api_key now: it is not stored and cannot be shown again.',
          }
        : { one: key };
    },
  }),
  actions: [
    action({
      verb: 'revoke',
      button: 'Revoke key',
      sentence: 'Revoke an API key permanently. Takes effect within KEY_CACHE_MS.',
      example: 'keys revoke 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
      permit: 'edit_keys',
      fields: {},
      lead: 'Permanent. Web processes refuse the key within seconds.',
      done: ({ KEY_CACHE_MS }) =>
        `Revoked permanently. Web processes refuse the key within ${duration(KEY_CACHE_MS / 1000)}.`,
      isDanger: true,
      isOffered: ({ revokedAt }: ShownApiKey) => revokedAt === null,
      confirm: ({ identifier }: ShownApiKey) => identifier,
      run: async ({ database, actor }, { one }) => ({ one: await revokeApiKey(database, actor, one.id) }),
    }),
  ],
});
