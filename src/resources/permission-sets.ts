import type { Prisma } from '../generated/prisma/client.ts';
import { newId } from '../platform/ids.ts';
import { workspacePermissions } from '../schemas/permissions.ts';
import { changePermissionSet, createPermissionSet, deletePermissionSet } from '../store/permission-sets.ts';
import { requireDone } from './endings.ts';
import { name, names, optional, readNames } from './fields.ts';
import { Refusal } from './refusal.ts';
import { action, type Context, creation, describeResource, iso, keyset, readById } from './resource.ts';
import { type Right, rightMeanings, rights } from './rights.ts';

const include = { company: { select: { name: true } } } satisfies Prisma.PermissionSetInclude;

type PermissionSet = Prisma.PermissionSetGetPayload<{ include: typeof include }>;

const takenBy = (called: string) => `this company already has a permission set with the name '${called}'`;

const find = ({ database }: Context, id: string) =>
  database.prisma.permissionSet.findUniqueOrThrow({ where: { id }, include });

/** Describes the pages and actions that a permission opens in the console; empty if there are no such pages. */
function lineOf(permission: string): string {
  if (permission === 'admin') return 'Everything in the workspace';
  const opened = (Object.keys(rights) as Right[]).filter((right) =>
    (rights[right] as readonly string[]).includes(permission),
  );
  return opened.map((right) => rightMeanings[right]).join('; ');
}

const lines = workspacePermissions.map((permission) => [permission, lineOf(permission)] as const);

const groups = [
  {
    title: 'Open pages of this console',
    choices: Object.fromEntries(lines.filter(([, line]) => line !== '')),
  },
  {
    title: 'Accepted from identity providers, without effect in this console',
    choices: Object.fromEntries(lines.filter(([, line]) => line === '')),
  },
];

const permissions = (help: string) =>
  names({ label: 'Permissions', help }, groups, readNames('workspace permission', workspacePermissions));

export const permissionSets = describeResource<PermissionSet>({
  noun: 'permission-sets',
  one: 'permission set',
  many: 'sets',
  nouns: 'permission sets',
  title: 'Permission sets',
  sentence: 'Create and list permission sets: named lists of workspace permissions for console accounts.',
  example: 'permission-sets list --company default',
  lead: 'Console accounts are given permission sets, by the identity provider or on their page. A change of a set applies to its accounts at their next request.',
  scope: 'company',
  permit: 'company',
  columns: [
    { name: 'permission_set_id', title: 'Id', kind: 'id', value: ({ id }) => id },
    { name: 'company', title: 'Company', value: ({ company }) => company.name, not: ['list'] },
    { name: 'name', value: (set) => set.name },
    { name: 'permissions', title: 'Permissions', kind: 'list', value: (set) => set.permissions },
    { name: 'created_at', title: 'Created', kind: 'time', value: ({ createdAt }) => iso(createdAt) },
  ],
  listing: {
    sentence: 'List the permission sets, oldest first.',
    example: 'permission-sets list --company default --json',
  },
  list: ({ database }, page) =>
    database.prisma.permissionSet.findMany({ ...keyset('companyId', page), include }),
  find: async ({ database }, id) =>
    (await database.prisma.permissionSet.findUnique({ where: { id }, include })) ?? undefined,
  nameOf: (set) => set.name,
  ownerOf: ({ companyId }) => companyId,
  naming: readById('permission set'),
  empty: 'A set is a named list of permissions that go together.',
  creation: creation({
    verb: 'create',
    button: 'Create permission set',
    sentence: 'Create a permission set and show its id, which SCIM calls appGroupPermissionSetId.',
    example:
      'permission-sets create --company default --name Analyst --permissions basic_access,view_segments',
    permit: 'company',
    done: 'Created. Assign it on the page of an account.',
    fields: {
      name: name('name, unique among the permission sets of the company'),
      permissions: permissions('names of workspace permissions, separated by commas'),
    },
    async run(context, { owner, values }) {
      const id = newId();
      const made = { id, companyId: owner.id, ...values };
      requireDone(await createPermissionSet(context.database, context.actor, made), {
        taken: takenBy(values.name),
      });
      return { one: await find(context, id) };
    },
  }),
  actions: [
    action({
      verb: 'change',
      button: 'Save permission set',
      sentence: 'Change the name or the permissions of a permission set.',
      example: 'permission-sets change 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f --permissions basic_access',
      permit: 'company',
      fields: {
        name: optional(name('new name')),
        permissions: optional(permissions('new list of permissions, separated by commas')),
      },
      filled: (set: PermissionSet) => ({ name: set.name, permissions: set.permissions.join(',') }),
      done: 'Changed.',
      async run(context, { one, values }) {
        if (values.name === undefined && values.permissions === undefined)
          throw new Refusal('nothing to change: set --name or --permissions');
        const { name: called = one.name, permissions: given = one.permissions } = values;
        const change = { id: one.id, companyId: one.companyId, name: called, permissions: given };
        requireDone(await changePermissionSet(context.database, context.actor, change), {
          taken: takenBy(called),
        });
        return { one: await find(context, one.id) };
      },
    }),
    action({
      verb: 'delete',
      button: 'Delete permission set',
      sentence: 'Delete a permission set that no account has.',
      example: 'permission-sets delete 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
      permit: 'company',
      fields: {},
      isDanger: true,
      done: 'Deleted permanently.',
      async run({ database, actor }, { one: { id, companyId, name: called } }) {
        requireDone(await deletePermissionSet(database.pool, actor, { id, companyId }), {
          used: 'accounts still have this permission set; remove it from them first',
        });
        return { row: { permission_set_id: id, name: called, deleted: true } };
      },
    }),
  ],
});
