import type { Command } from 'commander';
import { v7 } from 'uuid';
import type { Company, Prisma } from '../../generated/prisma/client.ts';
import { parseName, parseWorkspacePermissions } from '../arguments.ts';
import { change } from '../audit.ts';
import { addNoun, addVerb, refuseTaken } from '../command.ts';
import { findCompany, findWorkspace, withInstallation } from '../lookup.ts';
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
