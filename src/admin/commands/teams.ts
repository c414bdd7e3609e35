import type { Command } from 'commander';
import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import { parseCount, parseId, parseName } from '../arguments.ts';
import { addNoun, addVerb } from '../command.ts';
import { findWorkspace, findWorkspaceId } from '../find-workspace.ts';
import { withInstallation } from '../installation.ts';
import { pageOf, printPage, printRow, type Row } from '../output.ts';
import { codeOf, Refusal } from '../refusal.ts';

export function addTeams(program: Command): void {
  const noun = addNoun(program, 'teams', {
    sentence: 'Make and list teams: parts of a workspace that dashboard accounts get permissions in.',
    example: 'teams list --workspace default',
  });
  addVerb(noun, 'create', {
    sentence: 'Make a team and show its id, which SCIM takes as teamId.',
    example: 'teams create --workspace default --name Berlin',
  })
    .requiredOption('--workspace <workspace>', 'name or id of its workspace')
    .requiredOption('--name <name>', 'name, unlike that of any other team of the workspace', parseName)
    .action(create);
  addVerb(noun, 'list', {
    sentence: 'List the teams, the oldest first.',
    example: 'teams list --workspace default --json',
  })
    .option('--workspace <workspace>', 'only teams of this workspace (name or id)')
    .option('--limit <number>', 'most teams to show', parseCount, 100)
    .option('--after <id>', 'go on behind this team', parseId)
    .action(list);
}

async function create(options: { workspace: string; name: string; json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, options.workspace);
    const team = await database.prisma.team
      .create({ data: { id: v7(), workspaceId, name: options.name }, include: named })
      .catch((error) => {
        if (codeOf(error) !== 'P2002') throw error;
        throw new Refusal(`a team of this workspace is named '${options.name}' already`);
      });
    printRow(options.json, rowOf(team));
  });
}

interface ListOptions {
  workspace?: string;
  limit: number;
  after?: string;
  json?: boolean;
}

async function list(options: ListOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const workspaceId = await findWorkspaceId(database, options.workspace);
    const found = await database.prisma.team.findMany({
      where: { ...(workspaceId && { workspaceId }), ...(options.after && { id: { gt: options.after } }) },
      orderBy: { id: 'asc' },
      take: options.limit + 1,
      include: named,
    });
    const { shown, next } = pageOf(found, options.limit, (last) => last.id);
    printPage(options.json, 'teams', { rows: shown.map(rowOf), next });
  });
}

const named = { workspace: { select: { name: true } } } satisfies Prisma.TeamInclude;

function rowOf(team: Prisma.TeamGetPayload<{ include: typeof named }>): Row {
  return {
    team_id: team.id,
    workspace: team.workspace.name,
    name: team.name,
    created_at: team.createdAt.toISOString(),
  };
}
