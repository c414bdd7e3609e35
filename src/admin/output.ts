import type { Command } from 'commander';
import type { Json } from '../profile/json.ts';
import { cutPage, type ListPage, type PartOfList } from '../resources/resource.ts';
import { addVerb, parseCount, parseId } from './command.ts';
import { findCompanyId, findWorkspaceId, type Installation, withInstallation } from './installation.ts';

/** One output record. Its keys are the member names of JSON output and the headings of tables. */
export type Row = Record<string, Json>;

interface Page {
  rows: Row[];
  /** Value for `--after` that continues after the last row; null on the last page. */
  next: string | null;
  /** A sentence about the missing part. */
  note?: string | undefined;
}

/** Prints a list as a table, or as one JSON document with the rows under `nouns`. */
export function printPage(json: boolean | undefined, nouns: string, { rows, next, note }: Page): void {
  if (json) {
    printJson({ [nouns.replaceAll(' ', '_')]: rows, next });
    if (note !== undefined) process.stderr.write(`${note}\n`);
    return;
  }
  process.stdout.write(rows.length === 0 ? `no ${nouns}\n` : table(rows));
  // On stderr, so that a piped table has no extra line.
  if (note !== undefined) process.stderr.write(`${note}\n`);
  if (next !== null) process.stderr.write(`more ${nouns}: add --after ${next}\n`);
}

/** Prints one record as a JSON document, or as one line per member followed by `note`. */
export function printRow(json: boolean | undefined, row: Row, note?: string): void {
  if (json) {
    printJson(row);
    return;
  }
  const width = Math.max(...Object.keys(row).map((name) => name.length));
  for (const [name, value] of Object.entries(row)) {
    const nested = value !== null && typeof value === 'object' && !Array.isArray(value);
    process.stdout.write(`${name.padEnd(width)}  ${nested ? indented(value) : cell(value)}\n`);
  }
  if (note !== undefined) process.stdout.write(`\n${note}\n`);
}

export function printJson(document: Json): void {
  process.stdout.write(`${indented(document)}\n`);
}

/** Maximum width of a table, in characters. */
const MAX_WIDTH = 100;

/** Minimum width of a cut column, in characters. */
const MIN_COLUMN = 6;

/** Characters between two columns. */
const GAP = 2;

/**
 * Formats rows as aligned columns, in the order of the first row's members; numbers are aligned right. A table has at
 * most 100 columns of text: the widest values are cut with `…`. Ids are cut last, because other commands need them.
 */
export function table(rows: Row[]): string {
  const names = Object.keys(rows[0] ?? {});
  const lines = [names, ...rows.map((row) => names.map((name) => shortTime(cell(row[name]))))];
  const widths = fitWidths(
    names.map((name, column) => ({
      rank: rankOf(name),
      width: Math.max(...lines.map((line) => line[column]?.length ?? 0)),
    })),
  );
  return lines
    .map((line) => {
      const cells = widths.map((width, column) => {
        const text = cut(line[column] ?? '', width);
        return typeof rows[0]?.[names[column]!] === 'number' ? text.padStart(width) : text.padEnd(width);
      });
      return `${cells.join(' '.repeat(GAP)).trimEnd()}\n`;
    })
    .join('');
}

/** Columns of a lower rank are cut first: text, then times, then ids. */
function rankOf(name: string): number {
  if (/(?:^|_)id$|^identifier$/.test(name)) return 2;
  return name.endsWith('_at') ? 1 : 0;
}

/** Returns the widths of columns that fit a line, by narrowing the widest of them one character at a time. */
function fitWidths(columns: { rank: number; width: number }[]): number[] {
  const widths = columns.map(({ width }) => width);
  let excess = widths.reduce((sum, width) => sum + width, GAP * (widths.length - 1)) - MAX_WIDTH;
  for (const rank of [0, 1, 2])
    for (; excess > 0; excess--) {
      const candidates = widths.map((width, column) => (columns[column]!.rank === rank ? width : 0));
      const widest = Math.max(...candidates);
      if (widest <= MIN_COLUMN) break;
      widths[candidates.indexOf(widest)]!--;
    }
  return widths;
}

const cut = (text: string, width: number): string =>
  text.length <= width ? text : `${text.slice(0, width - 1)}…`;

/** Shortens a time to the minute, in UTC. JSON output has the full time. */
const shortTime = (text: string): string =>
  text.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(?:\.\d+)?Z$/, '$1 $2Z');

function indented(value: Json): string {
  return JSON.stringify(value, null, 2).split('\n').map(harmless).join('\n');
}

function cell(value: Json | undefined): string {
  if (value === null || value === undefined || value === '') return '-';
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) {
    return value.length === 0 ? '-' : harmless(value.join(','));
  }
  return harmless(typeof value === 'object' ? JSON.stringify(value) : String(value));
}

/** Escapes control characters as JSON does, because the terminal would execute escape sequences in client data. */
function harmless(text: string): string {
  let shown = '';
  for (const character of text) {
    const code = character.charCodeAt(0);
    const control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
    shown += control ? `\\u${code.toString(16).padStart(4, '0')}` : character;
  }
  return shown;
}

/** Kinds of owners of listed records, with the function that finds the id of an owner by name or id. */
const owners = { company: findCompanyId, workspace: findWorkspaceId };

type Owner = keyof typeof owners;

interface Listing<Found> {
  /** Singular and plural for the help; `nouns` is the longer plural that is printed. */
  one: string;
  many: string;
  nouns?: string;
  sentence: string;
  /** Example command line without `penstock`. */
  example: string;
  /** Kind of owner by which the list can be filtered. */
  owner?: Owner | undefined;
  /** Whether the owner option is required. */
  required?: boolean | undefined;
  /** Adds the options of the list's filters. */
  addOptions?(verb: Command): void;
  /** Whether the list begins with the newest. */
  isNewestFirst?: boolean | undefined;
  /** Reads a page. */
  list(
    installation: Installation,
    page: ListPage,
    options: Record<string, unknown>,
  ): Promise<Found[] | PartOfList<Found>>;
  /** Converts a record for JSON output. */
  rowOf(record: Found): Row;
  /** Converts a record for the table; default: `rowOf`. */
  cellsOf?(record: Found): Row;
}

type Options = { limit: number; after?: string; json?: boolean } & { [O in Owner]?: string };

/** Adds the verb `list`, which prints one page. */
export function addList<Found extends { id: string }>(
  noun: Command,
  {
    one,
    many,
    nouns = many,
    sentence,
    example,
    owner,
    required,
    addOptions,
    isNewestFirst = false,
    list,
    rowOf,
    cellsOf = rowOf,
  }: Listing<Found>,
): void {
  const verb = addVerb(noun, 'list', { sentence, example });
  if (owner !== undefined && required)
    verb.requiredOption(`--${owner} <${owner}>`, `name or id of the ${owner}`);
  else if (owner !== undefined)
    verb.option(`--${owner} <${owner}>`, `only ${many} of this ${owner} (name or id)`);
  addOptions?.(verb);
  verb
    .option('--limit <number>', `maximum number of ${many} to show`, parseCount, 100)
    .option('--after <id>', `start after this ${one} (paging)`, parseId)
    .action(async (_: Options, command: Command) => {
      // A noun that is a command itself takes the options that it has as well.
      const options = command.optsWithGlobals<Options>();
      await withInstallation(async (installation) => {
        const ownerId = owner && (await owners[owner](installation.database, options[owner]));
        const ownerIds = ownerId === undefined ? undefined : [ownerId];
        const { limit, after } = options;
        const start = isNewestFirst ? { before: after, newestFirst: true } : { after };
        const listed = await list(installation, { owners: ownerIds, ...start, limit: limit + 1 }, options);
        const { rows, ...rest } = cutPage(listed, limit);
        printPage(options.json, nouns, { rows: rows.map(options.json ? rowOf : cellsOf), ...rest });
      });
    });
}
