import type { Command } from 'commander';
import { v7 } from 'uuid';
import type { Company } from '../../generated/prisma/client.ts';
import { parseName } from '../arguments.ts';
import { addNoun, addVerb } from '../command.ts';
import { withInstallation } from '../installation.ts';
import { addList } from '../listing.ts';
import { printRow, type Row } from '../output.ts';
import { refuseTaken } from '../refusal.ts';

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
    const company = await database.prisma.company
      .create({ data: { id: v7(), name } })
      .catch(refuseTaken(`a company is named '${name}' already; names of companies are unique`));
    printRow(json, rowOf(company));
  });
}

function rowOf(company: Company): Row {
  return { company_id: company.id, name: company.name, created_at: company.createdAt.toISOString() };
}
