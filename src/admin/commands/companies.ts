import { type Command, InvalidArgumentError } from 'commander';
import { v7 } from 'uuid';
import type { Company, Prisma } from '../../generated/prisma/client.ts';
import { settings } from '../../platform/config.ts';
import { readSpread } from '../../store/installation.ts';
import { emptiestShard } from '../../store/queue-shards.ts';
import {
  addNoun,
  addVerb,
  parseCount,
  parseName,
  parseWorkspacePermissions,
  refuseTaken,
} from '../command.ts';
import { change, findCompany, findWorkspace, withInstallation } from '../installation.ts';
import { addList, printRow, type Row } from '../output.ts';

export function addCompanies(program: Command): void {
  const noun = addNoun(program, 'companies', {
    sentence: 'Create and list companies. A company owns workspaces, console accounts and SCIM tokens.',
    example: 'companies list',
  });
  addVerb(noun, 'create', {
    sentence: 'Create a company.',
    example: 'companies create --name "Shop and Sons"',
  })
    .requiredOption('--name <name>', 'name, unique among companies', parseName)
    .action(create);
  addList(noun, {
    one: 'company',
    many: 'companies',
    sentence: 'List the companies, oldest first.',
    example: 'companies list --json',
    find: (prisma, page) => prisma.company.findMany(page),
    rowOf,
  });
}

async function create({ name, json }: { name: string; json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const company = await change(database, async (tx) => {
      const made = await tx.company.create({ data: { id: v7(), name } });
      const subject = { kind: 'company', id: made.id };
      return {
        result: made,
        entries: [{ action: 'companies.create', subject, companyId: made.id, detail: { name } }],
      };
    }).catch(refuseTaken(`a company with the name '${name}' already exists; choose another name`));
    printRow(json, rowOf(company));
  });
}

function rowOf(company: Company): Row {
  return { company_id: company.id, name: company.name, created_at: company.createdAt.toISOString() };
}

export function addTeams(program: Command): void {
  const noun = addNoun(program, 'teams', {
    sentence: 'Create and list teams: parts of a workspace in which console accounts have permissions.',
    example: 'teams list --workspace default',
  });
  addVerb(noun, 'create', {
    sentence: 'Create a team and show its id, which SCIM calls teamId.',
    example: 'teams create --workspace default --name Berlin',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .requiredOption('--name <name>', 'name, unique among the teams of the workspace', parseName)
    .action(createTeam);
  addList(noun, {
    one: 'team',
    many: 'teams',
    sentence: 'List the teams, oldest first.',
    example: 'teams list --workspace default --json',
    owner: 'workspace',
    find: (prisma, page) => prisma.team.findMany({ ...page, include: ofWorkspace }),
    rowOf: rowOfTeam,
  });
}

async function createTeam(options: { workspace: string; name: string; json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, options.workspace);
    const { name } = options;
    const team = await change(database, async (tx) => {
      const made = await tx.team.create({ data: { id: v7(), workspaceId, name }, include: ofWorkspace });
      const subject = { kind: 'team', id: made.id };
      return { result: made, entries: [{ action: 'teams.create', subject, workspaceId, detail: { name } }] };
    }).catch(refuseTaken(`this workspace already has a team with the name '${options.name}'`));
    printRow(options.json, rowOfTeam(team));
  });
}

const ofWorkspace = { workspace: { select: { name: true } } } satisfies Prisma.TeamInclude;

function rowOfTeam(team: Prisma.TeamGetPayload<{ include: typeof ofWorkspace }>): Row {
  return {
    team_id: team.id,
    workspace: team.workspace.name,
    name: team.name,
    created_at: team.createdAt.toISOString(),
  };
}

export function addPermissionSets(program: Command): void {
  const noun = addNoun(program, 'permission-sets', {
    sentence: 'Create and list permission sets: named lists of workspace permissions for console accounts.',
    example: 'permission-sets list --company default',
  });
  addVerb(noun, 'create', {
    sentence: 'Create a permission set and show its id, which SCIM calls appGroupPermissionSetId.',
    example:
      'permission-sets create --company default --name Analyst --permissions basic_access,view_segments',
  })
    .requiredOption('--company <company>', 'name or id of the company')
    .requiredOption('--name <name>', 'name, unique among the permission sets of the company', parseName)
    .requiredOption(
      '--permissions <list>',
      'names of workspace permissions, separated by commas',
      parseWorkspacePermissions,
    )
    .action(createSet);
  addList(noun, {
    one: 'set',
    many: 'sets',
    nouns: 'permission sets',
    sentence: 'List the permission sets, oldest first.',
    example: 'permission-sets list --company default --json',
    owner: 'company',
    find: (prisma, page) => prisma.permissionSet.findMany({ ...page, include: ofCompany }),
    rowOf: rowOfSet,
  });
}

interface SetOptions {
  company: string;
  name: string;
  permissions: string[];
  json?: boolean;
}

async function createSet({ company, name, permissions, json }: SetOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: companyId } = await findCompany(database, company);
    const set = await change(database, async (tx) => {
      const data = { id: v7(), companyId, name, permissions };
      const made = await tx.permissionSet.create({ data, include: ofCompany });
      const subject = { kind: 'permission_set', id: made.id };
      const detail = { name, permissions };
      return { result: made, entries: [{ action: 'permission_sets.create', subject, companyId, detail }] };
    }).catch(refuseTaken(`this company already has a permission set with the name '${name}'`));
    printRow(json, rowOfSet(set));
  });
}

const ofCompany = { company: { select: { name: true } } } satisfies Prisma.PermissionSetInclude;

function rowOfSet(set: Prisma.PermissionSetGetPayload<{ include: typeof ofCompany }>): Row {
  return {
    permission_set_id: set.id,
    company: set.company.name,
    name: set.name,
    permissions: set.permissions,
    created_at: set.createdAt.toISOString(),
  };
}

/** Seconds that a move waits for a moment at which little of the workspace waits. */
const WAIT = 60;

export function addWorkspaces(program: Command): void {
  const noun = addNoun(program, 'workspaces', {
    sentence:
      'Create, list and move workspaces. A workspace has its own users, keys and limits, and belongs to one shard.',
    example: 'workspaces list',
  });
  addVerb(noun, 'create', {
    sentence: 'Create a workspace in the shard with the fewest workspaces.',
    example: 'workspaces create --name shop',
  })
    .requiredOption('--name <name>', 'name, unique among workspaces', parseName)
    .option('--company <company>', 'name or id of the company that owns it', 'default')
    .action(createWorkspace);
  addList(noun, {
    one: 'workspace',
    many: 'workspaces',
    sentence: 'List the workspaces, oldest first.',
    example: 'workspaces list --limit 20',
    find: (prisma, page) => prisma.workspace.findMany({ ...page, include: ofOwner }),
    rowOf: workspaceRowOf,
  });
  addVerb(noun, 'move', {
    sentence:
      'Move a workspace to another shard while clients send requests. Requests wait for less than a second; nothing is lost or reordered.',
    example: 'workspaces move shop --shard 3',
  })
    .argument('<workspace>', 'name or id of the workspace')
    .requiredOption('--shard <number>', 'target shard, counted from 0', parseShard)
    .option('--wait <seconds>', 'maximum time to wait until few of its jobs are waiting', parseCount, WAIT)
    .action(move);
}

function parseShard(text: string): number {
  const shard = Number(text);
  const most = settings.SHARDS.maximum! - 1;
  if (text.trim() === '' || !Number.isInteger(shard) || shard < 0 || shard > most)
    throw new InvalidArgumentError(`Must be a whole number from 0 to ${most}.`);
  return shard;
}

interface CreateOptions {
  name: string;
  company: string;
  json?: boolean;
}

async function createWorkspace({ name, company, json }: CreateOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: companyId } = await findCompany(database, company);
    const { shards = 1 } = (await readSpread(database.pool)) ?? {};
    const shard = await emptiestShard(database.pool, shards);
    const workspace = await change(database, async (tx) => {
      const data = { id: v7(), companyId, name, shard };
      const made = await tx.workspace.create({ data, include: ofOwner });
      const subject = { kind: 'workspace', id: made.id };
      const entry = { subject, workspaceId: made.id, companyId, detail: { name } };
      return { result: made, entries: [{ action: 'workspaces.create', ...entry }] };
    }).catch(refuseTaken(`a workspace with the name '${name}' already exists; choose another name`));
    printRow(json, workspaceRowOf(workspace));
  });
}

const ofOwner = { company: { select: { name: true } } } satisfies Prisma.WorkspaceInclude;

function workspaceRowOf(workspace: Prisma.WorkspaceGetPayload<{ include: typeof ofOwner }>): Row {
  return {
    workspace_id: workspace.id,
    company: workspace.company.name,
    name: workspace.name,
    shard: workspace.shard,
    created_at: workspace.createdAt.toISOString(),
  };
}

async function move(
  named: string,
  { shard, wait, json }: { shard: number; wait: number; json?: boolean },
): Promise<void> {
  // Loaded here alone: the others need no queue.
  const { moveWorkspace } = await import('../move-workspace.ts');
  await withInstallation(async (installation) => {
    const { id, name } = await findWorkspace(installation.database, named);
    const { from, held } = await moveWorkspace(installation, id, {
      ...{ to: shard, wait },
      say: (hindrance) => void process.stderr.write(`waiting: ${hindrance}\n`),
    });
    printRow(json, { workspace_id: id, name, from, shard, held_ms: held });
  });
}
