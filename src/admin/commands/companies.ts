import type { Command } from 'commander';
import { v7 } from 'uuid';
import type { Company } from '../../generated/prisma/client.ts';
import { parseCount, parseId, parseName } from '../arguments.ts';
import { addNoun, addVerb } from '../command.ts';
import { withInstallation } from '../installation.ts';
import { pageOf, printPage, printRow, type Row } from '../output.ts';
import { codeOf, Refusal } from '../refusal.ts';

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
  addVerb(noun, 'list', {
    sentence: 'List the companies, the oldest first.',
    example: 'companies list --json',
  })
    .option('--limit <number>', 'most companies to show', parseCount, 100)
    .option('--after <id>', 'go on behind this company', parseId)
    .action(list);
}

async function create({ name, json }: { name: string; json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const company = await database.prisma.company.create({ data: { id: v7(), name } }).catch((error) => {
      if (codeOf(error) !== 'P2002') throw error;
      throw new Refusal(`a company is named '${name}' already; names of companies are unique`);
    });
    printRow(json, rowOf(company));
  });
}

async function list(options: { limit: number; after?: string; json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const found = await database.prisma.company.findMany({
      where: options.after ? { id: { gt: options.after } } : {},
      orderBy: { id: 'asc' },
      take: options.limit + 1,
    });
    const { shown, next } = pageOf(found, options.limit, (last) => last.id);
    printPage(options.json, 'companies', { rows: shown.map(rowOf), next });
  });
}

function rowOf(company: Company): Row {
  return { company_id: company.id, name: company.name, created_at: company.createdAt.toISOString() };
}
