import type { AcceptedObject } from '../jobs/envelope.ts';
import type { Config } from '../platform/config.ts';
import { takePage } from '../platform/paging.ts';
import type { Renderer } from '../preferences/renderer.ts';
import type { Json } from '../profile/json.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { LaneProducer, Layout } from '../queue/lanes.ts';
import type { Actor } from '../store/audit.ts';
import type { Database } from '../store/database.ts';
import type { Fields, ValuesOf } from './fields.ts';
import type { PagePermit, Permit } from './rights.ts';

/** JSON members, with the names that scripts read. */
export type Row = Record<string, Json>;

/** Dependencies of a description's functions. */
export interface Context {
  database: Database;
  config: Config;
  /** The acting user, for the audit. */
  actor: Actor;
  /** Returns the address of Postgres, for actions that need connections of their own. */
  databaseUrl(): string;
  /** Base URL of the console, without a trailing slash, for links in messages. */
  consoleUrl: string;
  /** Runs `work` with a connection to the queue. @throws {Refusal} if the queue cannot be reached */
  withQueue<T>(work: (queue: Queue) => Promise<T>): Promise<T>;
  /** Runs `work` with a renderer of templates. */
  withRenderer<T>(work: (renderer: Pick<Renderer, 'render'>) => Promise<T>): Promise<T>;
  /** Checks a permit that only some values of a form need. The command line has every permit. @throws if it is missing */
  requirePermit(permit: Permit, workspaceId: string): void;
  /** Returns whether the acting user has a permit. The command line has every permit. */
  hasPermit(permit: Permit, workspaceId: string): boolean;
  /**
   * Adds objects to the queue as a request to the API does, and returns when they are stored.
   * @returns ids of the envelopes that hold the objects
   */
  enqueue(request: QueuedRequest): Promise<string[]>;
}

/** Objects of one request. */
export interface QueuedRequest {
  workspaceId: string;
  requestId: string;
  objects: AcceptedObject[];
}

/** The queue, for actions that add jobs. */
export interface Queue {
  connection: QueueConnection;
  producer: LaneProducer;
  layout: Layout;
}

export type Tone = 'good' | 'bad' | 'warn' | 'calm';

/** Formatted value for the console. */
export interface Shown {
  badge?: string;
  tone?: Tone;
  text?: string | undefined;
  /** Address that the text links to. */
  href?: string;
  /** Text in the font of code. */
  code?: string;
  seconds?: number;
  at?: Date | null | undefined;
}

/** A property of a resource: a JSON member, a column of tables, and a fact on the page. */
export interface Column<One> {
  /** Name of the JSON member, and heading in the command's table. */
  name: string;
  /** Heading in the console; absent if the console does not show the column. */
  title?: string;
  kind?: 'id' | 'code' | 'time' | 'number' | 'list' | 'duration';
  /** Returns the JSON; undefined if this reading of the resource does not have it. */
  value(one: One): Json | undefined;
  /** Formats the value for the console. */
  shown?(one: One): Shown;
  /** Permit that a viewer needs for the link in the list of the console; absent if every viewer of the list may follow it. */
  linkPermit?: PagePermit;
  /** Formats the value for the command's table. */
  cell?(one: One): Json | undefined;
  /**
   * Outputs that omit the column: every JSON (`json`), the JSON of one resource (`one`), the JSON of a list (`rows`), the
   * table of the command, and the list and the page of the console.
   */
  not?: readonly ('json' | 'one' | 'rows' | 'table' | 'list' | 'page')[];
}

/** A page of a list, sorted by id and therefore by time of creation. */
export interface ListPage {
  /** Ids of the workspaces or companies whose entries are listed; absent for all. */
  owners?: readonly string[] | undefined;
  /** The company whose workspaces are listed; absent for all. Only for a resource with `isOwner`. */
  companyId?: string | undefined;
  /** Values of the resource's filters. */
  filters?: Record<string, unknown>;
  after?: string | undefined;
  before?: string | undefined;
  newestFirst?: boolean;
  limit: number;
}

/** A list that ended early or is incomplete. */
export interface PartOfList<One> {
  rows: One[];
  /** Id at which the next page continues, if the list ended before `limit`. */
  next?: string | undefined;
  /** A sentence about the missing part. */
  note?: string | undefined;
}

/** The result of an action. */
export interface Outcome<One> {
  /** The resource after the action. */
  one?: One;
  /** A secret that is shown once, with the name of its JSON member, and the word for it if it is not `secret`. */
  secret?: { name: string; value: string; what?: string } | undefined;
  /** Additional JSON members. */
  more?: Row;
  /** JSON that replaces the JSON of the resource. */
  row?: Row;
  /** The resources of the owner after an action on all of them. */
  rows?: One[];
  /** Reason for which the action ended in a failure, after its result was printed. */
  failure?: string;
  /** A sentence for the user. */
  note?: string | undefined;
}

interface Verb<F extends Fields> {
  /** Verb of the command, and value of the form's `action` field. */
  verb: string;
  /** Label of the button. */
  button: string;
  /** Label of the button below the form; absent if it equals `button`. */
  submit?: string;
  /** Whether the page has a form of its own for the action, so that none is generated. */
  hasOwnForm?: boolean;
  /** Whether the command line does not have the verb. */
  isConsoleOnly?: boolean;
  /** Help of the command. */
  sentence: string;
  /** Example of the command, without the leading `penstock `. */
  example: string;
  permit: Permit;
  fields: F;
  /** Sentence above the form. */
  lead?: string;
  /** Returns a sentence about a setting that the console needs for the action and does not have. */
  warning?(context: Pick<Context, 'config'>): string | undefined;
  /** Notice on the page after the action. */
  done: string | ((config: Config) => string);
}

/** An action that creates a resource. */
export interface Creation<One, F extends Fields = Fields> extends Verb<F> {
  /** Scope of the owner of the new entry, if it differs from the scope of the resource. */
  scope?: Resource['scope'];
  /** Returns suggestions for text fields of the form, by field. The form has none while the owner is not chosen. */
  suggestions?(context: Context, owner: Owner): Promise<Record<string, string[]>>;
  /** Fields that a link to the form can fill, by query parameters of the same names. */
  linked?: readonly (keyof F & string)[];
  run(context: Context, given: { owner: Owner; values: ValuesOf<F> }): Promise<Outcome<One>>;
}

/** An action on an existing resource. */
export interface Action<One, F extends Fields = Fields> extends Verb<F> {
  /** Whether the button is red. */
  isDanger?: boolean;
  /** Whether each row of the list has the button as well. If the action has a form, the button opens it. */
  isInList?: boolean;
  /** Returns a word that the user must type to confirm an irreversible action. */
  confirm?(one: One): string;
  /** Whether the console offers the action for this resource; absent if it always does. */
  isOffered?(one: One): boolean;
  /** Returns suggestions for text fields of the form, by field. */
  suggestions?(context: Context, one: One): Promise<Record<string, string[]>>;
  /** Links to pages that create the suggested entries, by field. A field without suggestions shows its link. */
  makers?: Record<string, { text: string; path: string }>;
  /** Returns the initial values of the form's fields. */
  filled?(one: One): Partial<Record<keyof F & string, string>>;
  run(context: Context, given: { one: One; values: ValuesOf<F> }): Promise<Outcome<One>>;
}

/** The workspace or company that a resource belongs to. */
export interface Owner {
  id: string;
  name: string;
}

/** How a command identifies a resource. */
export interface Naming<One> {
  /** `<id>`, or `[id]` if options can identify it too; absent if only options identify it. */
  argument?: string;
  help?: string;
  /** Whether the lookup is limited to one workspace, which the command requires as an option. */
  isWithin?: boolean;
  /** Options that identify the resource. */
  options?: Fields;
  /** Describes the given identifier for an error message; absent for `the id`. */
  by?(given: { text: string | undefined; options: Record<string, unknown> }): string;
  /** Finds the resource; absent for a lookup by id. */
  find?(
    context: Context,
    given: { text: string | undefined; options: Record<string, unknown>; owner: Owner | undefined },
  ): Promise<One | undefined>;
}

/** The parts of a description that a command about one record needs. */
export type NamedResource<One extends { id: string }> = Pick<
  Resource<One>,
  'noun' | 'one' | 'scope' | 'columns' | 'naming'
> &
  Partial<Pick<Resource<One>, 'find'>>;

/** Description of a resource, from which the console pages and the commands are generated. */
export interface Resource<One extends { id: string } = { id: string }> {
  /** Noun of the command. */
  noun: string;
  /** Path of the page without the slash; absent if it equals the noun. */
  path?: string;
  /** Singular in a sentence, for example `key`; `many` is the plural. */
  one: string;
  many: string;
  /** JSON member of the list; absent if it equals `many`. */
  nouns?: string;
  /** Heading of the page. */
  title: string;
  /** Help of the noun. */
  sentence: string;
  example: string;
  /** Sentence below the heading of the page. */
  lead: string;
  scope: 'workspace' | 'company' | 'installation';
  /** Whether a single resource has no page. */
  isListOnly?: boolean;
  /** Whether the resource is the workspace itself. */
  isOwner?: boolean;
  /** Whether lists always cover a single workspace, in both interfaces. */
  isOfOne?: boolean;
  /** Permit that each page and form of the resource needs. An action needs its own permit as well. */
  permit: PagePermit;
  /** Whether a text can be an id; absent for UUIDs. */
  isId?(text: string): boolean;
  /** Heading of the column with the name; absent for `Name`. */
  nameTitle?: string;
  columns: readonly Column<One>[];
  list(context: Context, page: ListPage): Promise<One[] | PartOfList<One>>;
  /** Filters of the list. */
  filters?: Fields;
  /** Returns the choices of text filters in the console: the name of each value, by filter. */
  filterChoices?(context: Context, owner: Owner): Promise<Record<string, Record<string, string>>>;
  listing: {
    sentence: string;
    example: string;
    /** Whether the command lists the newest first, as the console does. */
    isNewestFirst?: boolean;
    /** Link to the next page of the console; absent for `Older`. */
    nextText?: string;
    /** Maximum number of entries on a page of the console; absent for 50. */
    pageSize?: number;
    /** Whether the command prints all at once, without paging. */
    isWhole?: boolean;
    /** Lists what applies without an owner. The command then needs no database. */
    withoutOwner?(config: Config): One[];
  };
  /** Finds a resource by id, in the given owners only; undefined means in all. */
  find(context: Context, id: string, owners: readonly string[] | undefined): Promise<One | undefined>;
  /** Returns the name of a resource, which is the heading of its page. */
  nameOf(one: One): string;
  /** Returns the page that the name links to; absent for the page of the resource. */
  pathOf?(one: One): string;
  /** Returns the id of the workspace or company that a resource belongs to. */
  ownerOf(one: One): string;
  /** Returns the seconds after which the page of a resource is loaded again; absent if it is not. */
  refreshSeconds?(one: One): number | undefined;
  naming: Naming<One>;
  showing?: { sentence: string; example: string };
  /** Hint in the console if the list is empty. */
  empty: string;
  creation?: Creation<One>;
  /** Actions on a whole workspace or company. */
  ownerActions?: readonly Creation<One>[];
  actions: readonly Action<One>[];
}

/** Checks the type of a description at its definition and keeps its type parameter. */
export const describeResource = <One extends { id: string }>(resource: Resource<One>): Resource<One> =>
  resource;

export const creation = <One, F extends Fields>(one: Creation<One, F>): Creation<One> =>
  one as unknown as Creation<One>;

export const action = <One, F extends Fields>(one: Action<One, F>): Action<One> =>
  one as unknown as Action<One>;

/** Returns a resource as JSON, alone or as a row of a list, or as a row of the command's table. */
export function rowOf<One>(
  { columns }: { columns: readonly Column<One>[] },
  one: One,
  output: 'one' | 'rows' | 'table' = 'one',
): Row {
  return Object.fromEntries(
    columns
      .filter(({ not }) => !not?.includes(output) && (output === 'table' || !not?.includes('json')))
      .map(({ name, value, cell = value }) => [name, (output === 'table' ? cell : value)(one)] as const)
      .filter((member): member is [string, Json] => member[1] !== undefined),
  );
}

/**
 * Cuts a list that was read with a limit of `limit + 1` into a page.
 * @returns `next`: id at which the next page continues; null on the last page
 */
export function cutPage<One extends { id: string }>(
  listed: One[] | PartOfList<One>,
  limit: number,
): { rows: One[]; next: string | null; note: string | undefined } {
  const { rows, next = null, note } = Array.isArray(listed) ? ({ rows: listed } as PartOfList<One>) : listed;
  const page = takePage(rows, limit, ({ id }) => id);
  return { rows: page.rows, next: page.next ?? next, note };
}

/** Creates the naming of a resource that is identified by its id only. */
export const readById = (noun: string): Naming<never> => ({ argument: '<id>', help: `id of the ${noun}` });

/** Returns the Prisma arguments to read a page. A single owner becomes an equality filter. */
export function keyset<Name extends 'workspaceId' | 'companyId'>(
  owner: Name,
  { owners, after, before, newestFirst = false, limit }: ListPage,
) {
  const owned = owners && { [owner]: owners.length === 1 ? owners[0] : { in: [...owners] } };
  return {
    where: {
      ...(owned as { [Column in Name]?: string } | undefined),
      ...((after !== undefined || before !== undefined) && {
        id: { ...(after !== undefined && { gt: after }), ...(before !== undefined && { lt: before }) },
      }),
    },
    orderBy: { id: newestFirst ? ('desc' as const) : ('asc' as const) },
    take: limit,
  };
}

/** Resources per read of a small table, while a page is filled. */
const READ = 200;

/**
 * Reads a page from a small table whose statement takes a single owner. With several owners, it reads all rows and skips
 * those of other owners.
 */
export async function listOfOwners<One extends { id: string; workspaceId: string }>(
  { owners, after, before, newestFirst = false, limit }: ListPage,
  read: (part: {
    workspaceId?: string | undefined;
    after?: string | undefined;
    before?: string | undefined;
    newestFirst: boolean;
    limit: number;
  }) => Promise<One[]>,
): Promise<One[]> {
  const workspaceId = owners?.length === 1 ? owners[0] : undefined;
  const listed: One[] = [];
  for (let cursor = after ?? before; listed.length < limit; ) {
    const position = newestFirst ? { before: cursor } : { after: cursor };
    const rows = await read({ workspaceId, ...position, newestFirst, limit: READ });
    listed.push(...rows.filter((one) => owners?.includes(one.workspaceId) ?? true));
    if (rows.length < READ) break;
    cursor = rows.at(-1)!.id;
  }
  return listed.slice(0, limit);
}

/** Formats a time for JSON: ISO 8601 or null. */
export const iso = (at: Date | null | undefined): string | null => at?.toISOString() ?? null;
