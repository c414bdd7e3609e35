import type { Command } from 'commander';
import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import { parseCount, parseId, parseName, parseWorkspacePermissions } from '../arguments.ts';
import { addNoun, addVerb } from '../command.ts';
import { findCompany, findCompanyId } from '../find-company.ts';
import { withInstallation } from '../installation.ts';
import { pageOf, printPage, printRow, type Row } from '../output.ts';
import { codeOf, Refusal } from '../refusal.ts';

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
    .action(create);
  addVerb(noun, 'list', {
    sentence: 'List the permission sets, the oldest first.',
    example: 'permission-sets list --company default --json',
  })
    .option('--company <company>', 'only sets of this company (name or id)')
    .option('--limit <number>', 'most sets to show', parseCount, 100)
    .option('--after <id>', 'go on behind this set', parseId)
    .action(list);
}

interface CreateOptions {
  company: string;
  name: string;
  permissions: string[];
  json?: boolean;
}

async function create({ company, name, permissions, json }: CreateOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: companyId } = await findCompany(database, company);
    const set = await database.prisma.permissionSet
      .create({ data: { id: v7(), companyId, name, permissions }, include: named })
      .catch((error) => {
        if (codeOf(error) !== 'P2002') throw error;
        throw new Refusal(`a permission set of this company is named '${name}' already`);
      });
    printRow(json, rowOf(set));
  });
}

interface ListOptions {
  company?: string;
  limit: number;
  after?: string;
  json?: boolean;
}

async function list(options: ListOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const companyId = await findCompanyId(database, options.company);
    const found = await database.prisma.permissionSet.findMany({
      where: { ...(companyId && { companyId }), ...(options.after && { id: { gt: options.after } }) },
      orderBy: { id: 'asc' },
      take: options.limit + 1,
      include: named,
    });
    const { shown, next } = pageOf(found, options.limit, (last) => last.id);
    printPage(options.json, 'permission sets', { rows: shown.map(rowOf), next });
  });
}

const named = { company: { select: { name: true } } } satisfies Prisma.PermissionSetInclude;

function rowOf(set: Prisma.PermissionSetGetPayload<{ include: typeof named }>): Row {
  return {
    permission_set_id: set.id,
    company: set.company.name,
    name: set.name,
    permissions: set.permissions,
    created_at: set.createdAt.toISOString(),
  };
}
