import type { Command } from 'commander';
import type { Database } from '../store/database.ts';
import { parseCount, parseId } from './arguments.ts';
import { addVerb } from './command.ts';
import { findCompanyId, findWorkspaceId, withInstallation } from './lookup.ts';
import { pageOf, printPage, type Row } from './output.ts';

/** Who may own what is listed, and how a person names one. */
const owners = { company: findCompanyId, workspace: findWorkspaceId };

type Owner = keyof typeof owners;

/** What a page is read by, in Prisma's words: behind an id, of one owner, one more than is shown. */
export interface PageQuery<O extends Owner> {
  where: { [Column in `${O}Id`]?: string } & { id?: { gt: string } };
  orderBy: { id: 'asc' };
  take: number;
}

export interface Listing<Found, O extends Owner> {
  /** What one of them is called in the help, and several; `nouns` is the fuller name that is printed. */
  one: string;
  many: string;
  nouns?: string;
  sentence: string;
  /** Behind `penstock `, as one would type it. */
  example: string;
  /** Lists may be narrowed to those of one owner. */
  owner?: O;
  /** Whether an owner has to be named. */
  required?: boolean;
  find(prisma: Database['prisma'], page: PageQuery<O>): Promise<Found[]>;
  /** As scripts read one. */
  rowOf(found: Found): Row;
  /** As people see one in a table, if in other words. */
  cellsOf?(found: Found): Row;
}

type Options = { limit: number; after?: string; json?: boolean } & { [O in Owner]?: string };

/** Adds the verb `list`: the oldest first, a page at a time. */
export function addList<Found extends { id: string }, O extends Owner = never>(
  noun: Command,
  {
    one,
    many,
    nouns = many,
    sentence,
    example,
    owner,
    required,
    find,
    rowOf,
    cellsOf = rowOf,
  }: Listing<Found, O>,
): void {
  const verb = addVerb(noun, 'list', { sentence, example });
  if (owner !== undefined && required)
    verb.requiredOption(`--${owner} <${owner}>`, `name or id of the ${owner}`);
  else if (owner !== undefined)
    verb.option(`--${owner} <${owner}>`, `only ${many} of this ${owner} (name or id)`);
  verb
    .option('--limit <number>', `most ${many} to show`, parseCount, 100)
    .option('--after <id>', `go on behind this ${one}`, parseId)
    .action(async (options: Options) => {
      await withInstallation(async ({ database }) => {
        const ownerId = owner && (await owners[owner](database, options[owner]));
        const where = {
          ...(ownerId && { [`${owner}Id`]: ownerId }),
          ...(options.after && { id: { gt: options.after } }),
        };
        const found = await find(database.prisma, {
          where: where as PageQuery<O>['where'],
          orderBy: { id: 'asc' },
          take: options.limit + 1,
        });
        const { shown, next } = pageOf(found, options.limit, (last) => last.id);
        printPage(options.json, nouns, { rows: shown.map(options.json ? rowOf : cellsOf), next });
      });
    });
}
