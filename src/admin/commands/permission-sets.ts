import type { Command } from 'commander';
import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import { parseName, parseWorkspacePermissions } from '../arguments.ts';
import { addNoun, addVerb } from '../command.ts';
import { findCompany } from '../find-company.ts';
import { withInstallation } from '../installation.ts';
import { addList } from '../listing.ts';
import { printRow, type Row } from '../output.ts';
import { refuseTaken } from '../refusal.ts';

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
  addList(noun, {
    one: 'set',
    many: 'sets',
    nouns: 'permission sets',
    sentence: 'List the permission sets, the oldest first.',
    example: 'permission-sets list --company default --json',
    owner: 'company',
    find: (prisma, page) => prisma.permissionSet.findMany({ ...page, include: named }),
    rowOf,
  });
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
      .catch(refuseTaken(`a permission set of this company is named '${name}' already`));
    printRow(json, rowOf(set));
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
