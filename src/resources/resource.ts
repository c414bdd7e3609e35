import type { Config } from '../platform/config.ts';
import type { Json } from '../profile/json.ts';
import type { Actor } from '../store/audit.ts';
import type { Database } from '../store/database.ts';
import type { Field, Fields, ValuesOf } from './fields.ts';
import type { Permit } from './rights.ts';

/** Members by the names that scripts read. */
export type Row = Record<string, Json>;

/** What a description works with. */
export interface Context {
  database: Database;
  config: Config;
  /** Who acts, for the audit. */
  actor: Actor;
}

export type Tone = 'good' | 'bad' | 'warn' | 'calm';

/** A value as people see it. */
export interface Shown {
  badge?: string;
  tone?: Tone;
  text?: string | undefined;
  seconds?: number;
  at?: Date | null | undefined;
}

/** One property of a resource. Its value is a member of the JSON, a column of the tables, and a fact of the page. */
export interface Column<One> {
  /** The member of the JSON, and the heading of the command's table. */
  name: string;
  /** The heading in the console; absent: the console does not show it. */
  title?: string;
  kind?: 'id' | 'code' | 'time' | 'number' | 'list' | 'duration';
  value(one: One): Json;
  /** What people see instead of the value, in the console. */
  shown?(one: One): Shown;
  /** What people see instead of the value, in the command's table. */
  cell?(one: One): Json;
  /** Where it is left out. */
  not?: readonly ('json' | 'table' | 'list' | 'page')[];
}

/** A page of a list by the ids, which follow the times of creation. */
export interface ListPage {
  /** Ids of the workspaces or companies whose things are listed; absent: of all. */
  owners?: readonly string[] | undefined;
  after?: string | undefined;
  before?: string | undefined;
  newestFirst?: boolean;
  limit: number;
}

/** What an action has done. */
export interface Outcome<One> {
  /** The thing as it is then. */
  one?: One;
  /** A secret that is shown once: its name in the JSON, and its value. */
  secret?: { name: string; value: string } | undefined;
  /** More members of the JSON. */
  more?: Row;
  /** The JSON instead of that of the thing. */
  row?: Row;
  /** A sentence for people. */
  note?: string | undefined;
}

interface Verb<F extends Fields> {
  /** The verb of the command, and the value of the form's `action`. */
  verb: string;
  /** The button of the form. */
  button: string;
  /** The help of the command. */
  sentence: string;
  /** An example behind `penstock `. */
  example: string;
  permit: Permit;
  fields: F;
  /** A sentence above the form. */
  lead?: string;
  /** What the page that follows says. */
  done: string;
}

/** Creates one. */
export interface Creation<One, F extends Fields = Fields> extends Verb<F> {
  run(context: Context, given: { owner: Owner; values: ValuesOf<F> }): Promise<Outcome<One>>;
}

/** Does something to one. */
export interface Action<One, F extends Fields = Fields> extends Verb<F> {
  /** Whether a button is red. */
  isDanger?: boolean;
  /** A button in each row of the list as well. */
  isInList?: boolean;
  /** A word that the console asks to type, where there is no way back. */
  confirm?(one: One): string;
  /** Whether the console offers it; absent: always. */
  isOffered?(one: One): boolean;
  /** What the fields of the form hold at first. */
  filled?(one: One): Partial<Record<keyof F & string, string>>;
  run(context: Context, given: { one: One; values: ValuesOf<F> }): Promise<Outcome<One>>;
}

/** The workspace, or company, to which a thing belongs. */
export interface Owner {
  id: string;
  name: string;
}

/** How a command names one thing. */
export interface Naming<One> {
  /** `<id>`, or `[id]` where options can name it too. */
  argument: string;
  help: string;
  /** Whether it is looked for in one workspace. */
  within?: 'required' | 'optional';
  /** Options that name it as well. */
  options?: Fields;
  /** What it is named by, in a message; absent: `the id`. */
  by?(given: { text: string | undefined; options: Record<string, unknown> }): string;
  /** Absent: by its id. */
  find?(
    context: Context,
    given: { text: string | undefined; options: Record<string, unknown>; within: Owner | undefined },
  ): Promise<One | undefined>;
}

/** The description of a resource, of which a page of the console and a command are two renderings. */
export interface Resource<One extends { id: string } = { id: string }> {
  /** The noun of the command, and the path of the page without its slash. */
  noun: string;
  /** One of them in a sentence: `key`; `many`: several. */
  one: string;
  many: string;
  /** The member of the JSON list; absent: `many`. */
  nouns?: string;
  /** The heading of the page. */
  title: string;
  /** The help of the noun. */
  sentence: string;
  example: string;
  /** The sentence below the heading of the page. */
  lead: string;
  scope: 'workspace' | 'company' | 'installation';
  /** Whether a list is of one workspace at a time, in both renderings. */
  isOfOne?: boolean;
  /** What a person needs to see it in the console. */
  permit: Permit;
  columns: readonly Column<One>[];
  list(context: Context, page: ListPage): Promise<One[]>;
  listing: { sentence: string; example: string };
  /** By its id. `owners`: where to look; undefined: everywhere. */
  find(context: Context, id: string, owners: readonly string[] | undefined): Promise<One | undefined>;
  /** The name of one, as the heading of its page. */
  nameOf(one: One): string;
  /** The id of the workspace or company to which one belongs. */
  ownerOf(one: One): string;
  naming: Naming<One>;
  showing?: { sentence: string; example: string };
  /** What a person without any is told in the console. */
  empty: string;
  creation?: Creation<One>;
  /** Actions on a workspace, or on a company, as a whole. */
  ownerActions?: readonly Creation<One>[];
  actions: readonly Action<One>[];
}

/** Checks a description where it is written, and keeps the types of its parts. */
export const describeResource = <One extends { id: string }>(resource: Resource<One>): Resource<One> =>
  resource;

export const creation = <One, F extends Fields>(one: Creation<One, F>): Creation<One> =>
  one as unknown as Creation<One>;

export const action = <One, F extends Fields>(one: Action<One, F>): Action<One> =>
  one as unknown as Action<One>;

/** Returns the JSON of one. */
export function rowOf<One extends { id: string }>({ columns }: Resource<One>, one: One): Row {
  return Object.fromEntries(
    columns.filter(({ not }) => !not?.includes('json')).map(({ name, value }) => [name, value(one)]),
  );
}

/** Names one by its id alone. */
export const readById = (noun: string): Naming<never> => ({ argument: '<id>', help: `id of the ${noun}` });

/** Returns what Prisma needs to read a page, with one owner by equality. */
export function keyset<Name extends 'workspaceId' | 'companyId'>(
  owner: Name,
  { owners, after, before, newestFirst = false, limit }: ListPage,
) {
  const [only, ...others] = owners ?? [];
  const owned =
    owners === undefined ? {} : { [owner]: others.length === 0 ? (only ?? '') : { in: [...owners] } };
  return {
    where: {
      ...(owned as { [Column in Name]?: string }),
      ...((after !== undefined || before !== undefined) && {
        id: { ...(after !== undefined && { gt: after }), ...(before !== undefined && { lt: before }) },
      }),
    },
    orderBy: { id: newestFirst ? ('desc' as const) : ('asc' as const) },
    take: limit,
  };
}

/** The time as JSON. */
export const iso = (at: Date | null | undefined): string | null => at?.toISOString() ?? null;

export type { Field, Fields, ValuesOf };
