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
    sentence: 'Make and list companies: each owns workspaces, and has dashboard accounts and SCIM tokens.',
    example: 'companies list',
  });
  addVerb(noun, 'create', {
    sentence: 'Make a company.',
    example: 'companies create --name "Shop and Sons"',
  })
    .requiredOption('--name <name>', 'name, unlike that of any other company', parseName)
    .action(create);
  addList(noun, {
    one: 'company',
    many: 'companies',
    sentence: 'List the companies, the oldest first.',
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
    }).catch(refuseTaken(`a company is named '${name}' already; names of companies are unique`));
    printRow(json, rowOf(company));
  });
}

function rowOf(company: Company): Row {
  return { company_id: company.id, name: company.name, created_at: company.createdAt.toISOString() };
}

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
    .action(createTeam);
  addList(noun, {
    one: 'team',
    many: 'teams',
    sentence: 'List the teams, the oldest first.',
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
    }).catch(refuseTaken(`a team of this workspace is named '${options.name}' already`));
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
    sentence: 'Make and list permission sets: workspace permissions of dashboard accounts, under one name.',
    example: 'permission-sets list --company default',
  });
  addVerb(noun, 'create', {
    sentence: 'Make a permission set and show its id, which SCIM takes as appGroupPermissionSetId.',
    example:
      'permission-sets create --company default --name Analyst --permissions basic_access,view_segments',
  })
    .requiredOption('--company <company>', 'name or id of its company')
    .requiredOption('--name <name>', 'name, unlike that of any other set of the company', parseName)
    .requiredOption(
      '--permissions <list>',
      'names of workspace permissions, with commas between them',
      parseWorkspacePermissions,
    )
    .action(createSet);
  addList(noun, {
    one: 'set',
    many: 'sets',
    nouns: 'permission sets',
    sentence: 'List the permission sets, the oldest first.',
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
    }).catch(refuseTaken(`a permission set of this company is named '${name}' already`));
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
      'Make, list and move workspaces: each has users, keys and limits of its own, and a shard of the lanes.',
    example: 'workspaces list',
  });
  addVerb(noun, 'create', {
    sentence: 'Make a workspace, in the shard that has fewest.',
    example: 'workspaces create --name shop',
  })
    .requiredOption('--name <name>', 'name, unlike that of any other workspace', parseName)
    .option('--company <company>', 'name or id of the company that owns it', 'default')
    .action(createWorkspace);
  addList(noun, {
    one: 'workspace',
    many: 'workspaces',
    sentence: 'List the workspaces, the oldest first.',
    example: 'workspaces list --limit 20',
    find: (prisma, page) => prisma.workspace.findMany({ ...page, include: ofOwner }),
    rowOf: workspaceRowOf,
  });
  addVerb(noun, 'move', {
    sentence:
      'Move a workspace to another shard, while it sends: its requests are held for less than a second, and nothing is lost or out of order.',
    example: 'workspaces move shop --shard 3',
  })
    .argument('<workspace>', 'name or id of the workspace')
    .requiredOption('--shard <number>', 'shard that it is to have, counted from 0', parseShard)
    .option('--wait <seconds>', 'longest wait for a moment at which little of it waits', parseCount, WAIT)
    .action(move);
}

function parseShard(text: string): number {
  const shard = Number(text);
  const most = settings.SHARDS.maximum! - 1;
  if (text.trim() === '' || !Number.isInteger(shard) || shard < 0 || shard > most)
    throw new InvalidArgumentError(`It is a whole number from 0 to ${most}.`);
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
    }).catch(refuseTaken(`a workspace is named '${name}' already; names of workspaces are unique`));
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
