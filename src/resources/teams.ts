import type { Prisma } from '../generated/prisma/client.ts';
import { newId } from '../platform/ids.ts';
import { createTeam, deleteTeam, renameTeam } from '../store/permission-sets.ts';
import { requireDone } from './endings.ts';
import { name } from './fields.ts';
import { action, type Context, creation, describeResource, iso, keyset, readById } from './resource.ts';

const include = { workspace: { select: { name: true, companyId: true } } } satisfies Prisma.TeamInclude;

type Team = Prisma.TeamGetPayload<{ include: typeof include }>;

const takenBy = (called: string) => `this workspace already has a team with the name '${called}'`;

const find = ({ database }: Context, id: string) =>
  database.prisma.team.findUniqueOrThrow({ where: { id }, include });

export const teams = describeResource<Team>({
  noun: 'teams',
  one: 'team',
  many: 'teams',
  title: 'Teams',
  sentence: 'Create and list teams: parts of a workspace in which console accounts have permissions.',
  example: 'teams list --workspace default',
  lead: 'Console accounts are assigned to teams, by the identity provider or on their page. Teams give no access to this console.',
  scope: 'workspace',
  permit: 'company',
  columns: [
    { name: 'team_id', title: 'Id', kind: 'id', value: ({ id }) => id },
    { name: 'workspace', title: 'Workspace', value: ({ workspace }) => workspace.name },
    { name: 'name', value: (team) => team.name },
    { name: 'created_at', title: 'Created', kind: 'time', value: ({ createdAt }) => iso(createdAt) },
  ],
  listing: { sentence: 'List the teams, oldest first.', example: 'teams list --workspace default --json' },
  list: ({ database }, page) => database.prisma.team.findMany({ ...keyset('workspaceId', page), include }),
  find: async ({ database }, id) =>
    (await database.prisma.team.findUnique({ where: { id }, include })) ?? undefined,
  nameOf: (team) => team.name,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: readById('team'),
  empty: 'SCIM calls the id of a team teamId.',
  creation: creation({
    verb: 'create',
    button: 'Create team',
    sentence: 'Create a team and show its id, which SCIM calls teamId.',
    example: 'teams create --workspace default --name Berlin',
    permit: 'company',
    done: 'Created. Assign it on the page of an account.',
    fields: { name: name('name, unique among the teams of the workspace') },
    async run(context, { owner, values }) {
      const { database, actor } = context;
      const id = newId();
      const { companyId } = await database.prisma.workspace.findUniqueOrThrow({ where: { id: owner.id } });
      const made = { id, workspaceId: owner.id, companyId, name: values.name };
      requireDone(await createTeam(database, actor, made), { taken: takenBy(values.name) });
      return { one: await find(context, id) };
    },
  }),
  actions: [
    action({
      verb: 'rename',
      button: 'Rename',
      sentence: 'Rename a team. Accounts keep it, because they have it by its id.',
      example: 'teams rename 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f --name Bonn',
      permit: 'company',
      fields: { name: name('new name') },
      filled: (team: Team) => ({ name: team.name }),
      done: 'Renamed.',
      async run(context, { one, values }) {
        const change = { id: one.id, companyId: one.workspace.companyId, name: values.name };
        requireDone(await renameTeam(context.database, context.actor, change), {
          taken: takenBy(values.name),
        });
        return { one: await find(context, one.id) };
      },
    }),
    action({
      verb: 'delete',
      button: 'Delete team',
      sentence: 'Delete a team that no account has.',
      example: 'teams delete 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
      permit: 'company',
      fields: {},
      isDanger: true,
      done: 'Deleted permanently.',
      async run({ database, actor }, { one: { id, name: called, workspace } }) {
        requireDone(await deleteTeam(database.pool, actor, { id, companyId: workspace.companyId }), {
          used: 'accounts still have this team; remove it from them first',
        });
        return { row: { team_id: id, name: called, deleted: true } };
      },
    }),
  ],
});
