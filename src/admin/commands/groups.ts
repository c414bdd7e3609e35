import { type Command, Option } from 'commander';
import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import { parseId, parseName } from '../arguments.ts';
import { change } from '../audit.ts';
import { addNoun, addVerb, PENSTOCK, Refusal, refuseTaken } from '../command.ts';
import { findWorkspace, withInstallation } from '../lookup.ts';
import { addList, printRow, type Row } from '../output.ts';

const channels = ['email', 'sms', 'whatsapp'];

export function addGroups(program: Command): void {
  const noun = addNoun(program, 'groups', {
    sentence: 'Make, list and archive subscription groups: what users subscribe to and unsubscribe from.',
    example: 'groups list --workspace default',
  });
  addVerb(noun, 'create', {
    sentence: 'Make a subscription group and show its id, which clients send as subscription_group_id.',
    example: 'groups create --workspace default --name News --channel email',
  })
    .requiredOption('--workspace <workspace>', 'name or id of its workspace')
    .requiredOption('--name <name>', 'name, unlike that of any other group of the workspace', parseName)
    .addOption(
      new Option('--channel <channel>', 'what its messages are sent by')
        .choices(channels)
        .makeOptionMandatory(),
    )
    .action(create);
  addList(noun, {
    one: 'group',
    many: 'groups',
    nouns: 'subscription groups',
    sentence: 'List the subscription groups, the oldest first, archived ones too.',
    example: 'groups list --workspace default --json',
    owner: 'workspace',
    find: (prisma, page) => prisma.subscriptionGroup.findMany({ ...page, include: named }),
    rowOf,
  });
  addVerb(noun, 'archive', {
    sentence: 'Archive a subscription group: its states stay, and changes to them are ignored from then on.',
    example: 'groups archive 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
  })
    .argument('<id>', 'id of the group', parseId)
    .action(archive);
}

interface CreateOptions {
  workspace: string;
  name: string;
  channel: string;
  json?: boolean;
}

async function create({ workspace, name, channel, json }: CreateOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, workspace);
    const group = await change(database, async (tx) => {
      const data = { id: v7(), workspaceId, name, channel };
      const made = await tx.subscriptionGroup.create({ data, include: named });
      const subject = { kind: 'subscription_group', id: made.id };
      const detail = { name, channel };
      return {
        result: made,
        entries: [{ action: 'subscription_groups.create', subject, workspaceId, detail }],
      };
    }).catch(
      refuseTaken(`a group of this workspace is named '${name}' already; archived groups keep their names`),
    );
    printRow(json, rowOf(group));
  });
}

async function archive(id: string, { json }: { json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const group = await change(database, async (tx) => {
      // Guarded, so that the time of the first archiving stands.
      const { count } = await tx.subscriptionGroup.updateMany({
        where: { id, archivedAt: null },
        data: { archivedAt: new Date() },
      });
      const found = await tx.subscriptionGroup.findUnique({ where: { id }, include: named });
      const subject = { kind: 'subscription_group', id };
      const entry = { subject, workspaceId: found?.workspaceId, detail: { name: found?.name ?? '' } };
      return {
        result: found,
        entries: count === 0 ? [] : [{ action: 'subscription_groups.archive', ...entry }],
      };
    });
    if (group === null)
      throw new Refusal(`no subscription group has the id ${id}; see ${PENSTOCK} groups list`);
    printRow(json, rowOf(group));
  });
}

const named = { workspace: { select: { name: true } } } satisfies Prisma.SubscriptionGroupInclude;

function rowOf(group: Prisma.SubscriptionGroupGetPayload<{ include: typeof named }>): Row {
  return {
    subscription_group_id: group.id,
    workspace: group.workspace.name,
    name: group.name,
    channel: group.channel,
    created_at: group.createdAt.toISOString(),
    archived_at: group.archivedAt?.toISOString() ?? null,
  };
}
