import type { Command } from 'commander';
import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import { parseName } from '../arguments.ts';
import { addNoun, addVerb } from '../command.ts';
import { findWorkspace } from '../find-workspace.ts';
import { withInstallation } from '../installation.ts';
import { addList } from '../listing.ts';
import { printRow, type Row } from '../output.ts';
import { refuseTaken } from '../refusal.ts';

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
  addList(noun, {
    one: 'team',
    many: 'teams',
    sentence: 'List the teams, the oldest first.',
    example: 'teams list --workspace default --json',
    owner: 'workspace',
    find: (prisma, page) => prisma.team.findMany({ ...page, include: named }),
    rowOf,
  });
}

async function create(options: { workspace: string; name: string; json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, options.workspace);
    const team = await database.prisma.team
      .create({ data: { id: v7(), workspaceId, name: options.name }, include: named })
      .catch(refuseTaken(`a team of this workspace is named '${options.name}' already`));
    printRow(options.json, rowOf(team));
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
