import type { Command } from 'commander';
import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import { parseName } from '../arguments.ts';
import { addNoun, addVerb } from '../command.ts';
import { findCompany } from '../find-company.ts';
import { withInstallation } from '../installation.ts';
import { addList } from '../listing.ts';
import { printRow, type Row } from '../output.ts';
import { refuseTaken } from '../refusal.ts';

export function addWorkspaces(program: Command): void {
  const noun = addNoun(program, 'workspaces', {
    sentence: 'Make and list workspaces: each has users, keys and limits of its own.',
    example: 'workspaces list',
  });
  addVerb(noun, 'create', {
    sentence: 'Make a workspace.',
    example: 'workspaces create --name shop',
  })
    .requiredOption('--name <name>', 'name, unlike that of any other workspace', parseName)
    .option('--company <company>', 'name or id of the company that owns it', 'default')
    .action(create);
  addList(noun, {
    one: 'workspace',
    many: 'workspaces',
    sentence: 'List the workspaces, the oldest first.',
    example: 'workspaces list --limit 20',
    find: (prisma, page) => prisma.workspace.findMany({ ...page, include: named }),
    rowOf,
  });
}

interface CreateOptions {
  name: string;
  company: string;
  json?: boolean;
}

async function create({ name, company, json }: CreateOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: companyId } = await findCompany(database, company);
    const workspace = await database.prisma.workspace
      .create({ data: { id: v7(), companyId, name }, include: named })
      .catch(refuseTaken(`a workspace is named '${name}' already; names of workspaces are unique`));
    printRow(json, rowOf(workspace));
  });
}

const named = { company: { select: { name: true } } } satisfies Prisma.WorkspaceInclude;

function rowOf(workspace: Prisma.WorkspaceGetPayload<{ include: typeof named }>): Row {
  return {
    workspace_id: workspace.id,
    company: workspace.company.name,
    name: workspace.name,
    created_at: workspace.createdAt.toISOString(),
  };
}
