import { Prisma } from '../generated/prisma/client.ts';
import { uuidOf } from '../profile/values.ts';
import type { Connection, Database, Pool } from './database.ts';
import { inTransaction } from './transactions.ts';

/** What accounts can be found by. */
export type FilterColumn =
  | 'id'
  | 'externalId'
  | 'userName'
  | 'name'
  | 'givenName'
  | 'familyName'
  | 'displayName'
  | 'department'
  | 'active';

/** A filter that has been understood. */
export type AccountCondition =
  | { op: 'and' | 'or'; conditions: AccountCondition[] }
  | { op: 'eq' | 'co' | 'sw'; column: FilterColumn; value: string }
  | { op: 'eq'; column: 'active'; value: boolean }
  | { op: 'email'; comparisons: EmailComparison[] };

/** A comparison with a member of an address; all those of a condition speak of the same one. */
export interface EmailComparison {
  op: 'eq' | 'co' | 'sw';
  member: 'value' | 'type' | 'primary';
  value: string;
}

/**
 * Each column as it is compared. Case counts only in ids. Each expression has an index, except the whole name and the
 * display name, for which all accounts of the company are read.
 */
const expressions: Record<FilterColumn, string> = {
  id: 'accounts.id::text',
  externalId: 'accounts.external_id',
  userName: 'accounts.email',
  name: "lower(accounts.given_name || ' ' || accounts.family_name)",
  givenName: 'lower(accounts.given_name)',
  familyName: 'lower(accounts.family_name)',
  displayName: 'lower(accounts.display_name)',
  department: 'accounts.department',
  active: 'accounts.active',
};

/** Addresses as they are answered: an account that was given none has that of its name. */
const EMAILS = `coalesce(accounts.emails, jsonb_build_array(jsonb_build_object(
  'value', accounts.user_name, 'type', 'work', 'primary', true)))`;

const CASE_EXACT: FilterColumn[] = ['id', 'externalId'];

/** As SQL. What the client wrote goes into `values` only, never into the text. */
function conditionSql(condition: AccountCondition, values: unknown[]): string {
  if ('conditions' in condition) {
    const parts = condition.conditions.map((one) => conditionSql(one, values));
    return `(${parts.join(` ${condition.op} `)})`;
  }
  if (condition.op === 'email') return emailSql(condition.comparisons, values);
  const { op, column, value } = condition;
  const expression = expressions[column];
  if (typeof value === 'boolean') return `${expression} = $${values.push(value)}::boolean`;
  // By the primary key; what is no UUID is nobody's.
  if (column === 'id' && op === 'eq')
    return uuidOf(value) ? `accounts.id = $${values.push(value)}::uuid` : 'false';
  const folded = CASE_EXACT.includes(column) ? value : value.toLowerCase();
  return comparisonSql(op, { expression, text: folded }, values);
}

function comparisonSql(
  op: 'eq' | 'co' | 'sw',
  { expression, text }: { expression: string; text: string },
  values: unknown[],
): string {
  if (op === 'eq') return `${expression} = $${values.push(text)}::text`;
  if (op === 'co') return `position($${values.push(text)}::text in ${expression}) > 0`;
  const pattern = `${text.replace(/[\\%_]/g, '\\$&')}%`;
  return `${expression} like $${values.push(pattern)}::text`;
}

function emailSql(comparisons: EmailComparison[], values: unknown[]): string {
  const parts = comparisons.map(({ op, member, value }) =>
    comparisonSql(op, { expression: `lower(one_email ->> '${member}')`, text: value.toLowerCase() }, values),
  );
  return `exists (select from jsonb_array_elements(${EMAILS}) as emails (one_email) where ${parts.join(' and ')})`;
}

/** Whether a condition compares what no index helps with, so that every account of the company is read. */
function readsEveryone(condition: AccountCondition): boolean {
  if ('conditions' in condition) return condition.conditions.some(readsEveryone);
  if (condition.op === 'email') return true;
  const { op, column } = condition;
  return op === 'co' || column === 'name' || column === 'displayName' || (op === 'sw' && column === 'id');
}

export interface Found {
  /** How many there are in all. */
  total: number;
  /** Of the page, in the order of their making. */
  page: { id: string; position: number }[];
  /** Whether the page has less than was asked for, and others follow. */
  isCut: boolean;
}

/** Longest that a search may take, in ms: less than a client waits. */
const MAX_TIME = 1000;

/** Longest that it waits for a lock that another has, in ms: that is no fault of the search. */
const MAX_WAIT = 500;

/**
 * Bytes that the lists of a page's accounts may take together, as JSON. An account may have a megabyte of permissions;
 * usual pages are far below.
 */
const MAX_PAGE_BYTES = 2_000_000;

/** A search that reads every account, and was ended by its time. */
export class SearchTooLong extends Error {
  override name = 'SearchTooLong';
}

interface Row {
  id: string;
  position: number;
  /** Rows of the page before it was cut. */
  asked: number;
}

export interface AccountSearch {
  /** Absent: all. */
  condition?: AccountCondition | undefined;
  /** How many to leave out at the start. */
  skip?: number;
  /** The position behind which to begin. */
  after?: number;
  limit: number;
}

/**
 * Accounts of one company that fit a condition, a page of them, and how many there are in all. By the indexes of
 * `accounts`, each of which starts with the company; `co` reads all of the company's.
 *
 * A page ends early where it would hold too much, but it has one account at least.
 *
 * @throws {SearchTooLong}
 */
export async function findAccounts(pool: Pool, companyId: string, search: AccountSearch): Promise<Found> {
  const { fits, values } = fitting(companyId, search.condition);
  const count = `select count(*)::integer as total from accounts where ${fits}`;
  return searching(pool, search, async (tx) => {
    const counted = await tx.query<{ total: number }>(count, values);
    return { total: counted.rows[0]!.total, ...(await readPage(tx, companyId, search)) };
  });
}

/** The same without the number, which costs as much as there are accounts. @throws {SearchTooLong} */
export function findAccountPage(
  pool: Pool,
  companyId: string,
  search: AccountSearch,
): Promise<Omit<Found, 'total'>> {
  return searching(pool, search, (tx) => readPage(tx, companyId, search));
}

function fitting(companyId: string, condition: AccountCondition | undefined) {
  const values: unknown[] = [companyId];
  const fits = `accounts.company_id = $1::uuid${condition ? ` and ${conditionSql(condition, values)}` : ''}`;
  return { fits, values };
}

async function readPage(
  tx: Connection,
  companyId: string,
  { condition, skip = 0, after, limit }: AccountSearch,
): Promise<Omit<Found, 'total'>> {
  if (limit === 0) return { page: [], isCut: false };
  const { fits, values } = fitting(companyId, condition);
  const behind = after === undefined ? '' : ` and accounts.position > $${values.push(after)}::bigint`;
  const text = `
    select whole.id, whole.position, whole.asked
    from (
      select page.id, page.position, page.bytes, count(*) over () as asked,
        sum(page.bytes) over (order by page.position) as bytes_so_far
      from (
        select accounts.id, accounts.position, accounts.list_bytes + octet_length(accounts.roles::text) as bytes
        from accounts
        where ${fits}${behind}
        order by accounts.position
        limit $${values.push(limit)}::integer offset $${values.push(skip)}::integer
      ) as page
    ) as whole
    where whole.bytes_so_far <= ${MAX_PAGE_BYTES} or whole.bytes_so_far = whole.bytes
    order by whole.position`;
  const { rows } = await tx.query<Row>(text, values);
  return { page: rows, isCut: rows.length > 0 && rows.length < rows[0]!.asked };
}

/** In one snapshot, so that the page and the count are of one moment, and within its time. */
async function searching<T>(
  pool: Pool,
  { condition }: AccountSearch,
  work: (tx: Connection) => Promise<T>,
): Promise<T> {
  try {
    return await inTransaction(pool, async (tx) => {
      await tx.query(`set transaction isolation level repeatable read, read only`);
      await tx.query(`set local statement_timeout = ${MAX_TIME}`);
      await tx.query(`set local lock_timeout = ${MAX_WAIT}`);
      return work(tx);
    });
  } catch (error) {
    const tooLong = (error as { code?: string }).code === '57014';
    throw tooLong && condition && readsEveryone(condition) ? new SearchTooLong() : error;
  }
}

type Client = Database['prisma'];

/** What accounts name beside themselves. */
export type NamedTable = 'workspaces' | 'teams' | 'permission_sets';

export interface NamedRow {
  id: string;
  name: string;
}

/** Names and ids, in any number: each list is one parameter. */
interface NamesAndIds {
  companyId: string;
  names: string[];
  ids: string[];
}

/** The names of rows by id, by the primary key; no statement for none. */
export async function namesOf(
  prisma: Client,
  table: NamedTable,
  ids: string[],
): Promise<Map<string, string>> {
  const different = [...new Set(ids)];
  if (different.length === 0) return new Map();
  const rows = await prisma.$queryRaw<NamedRow[]>`
    select named.id, named.name
    from ${tables[table]} as named
    where named.id = any(${different}::uuid[])`;
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/** Workspaces or permission sets of a company that have one of the names or ids; no statement for none. */
export async function findNamed(
  prisma: Client,
  table: 'workspaces' | 'permission_sets',
  { companyId, names, ids }: NamesAndIds,
): Promise<NamedRow[]> {
  if (names.length === 0 && ids.length === 0) return [];
  return prisma.$queryRaw<NamedRow[]>`
    select named.id, named.name
    from ${tables[table]} as named
    where named.company_id = ${companyId}::uuid
      and (named.name = any(${names}::text[]) or named.id = any(${ids}::uuid[]))`;
}

/**
 * Teams of workspaces, each by its name or its id; no statement for none. By the key of workspace and name, and by the
 * primary key.
 */
export async function findTeams(
  prisma: Client,
  wanted: { workspaceId: string; name: string | undefined; id: string | undefined }[],
): Promise<(NamedRow & { workspaceId: string })[]> {
  if (wanted.length === 0) return [];
  const named = wanted.filter(({ name }) => name !== undefined);
  const known = wanted.filter(({ id }) => id !== undefined);
  return prisma.$queryRaw<(NamedRow & { workspaceId: string })[]>`
    select teams.id, teams.name, teams.workspace_id as "workspaceId"
    from unnest(
      ${named.map((one) => one.workspaceId)}::uuid[],
      ${named.map((one) => one.name)}::text[]
    ) as wanted (workspace_id, name)
    join teams on teams.workspace_id = wanted.workspace_id and teams.name = wanted.name
    union
    select teams.id, teams.name, teams.workspace_id as "workspaceId"
    from unnest(
      ${known.map((one) => one.workspaceId)}::uuid[],
      ${known.map((one) => one.id)}::uuid[]
    ) as wanted (workspace_id, id)
    join teams on teams.id = wanted.id and teams.workspace_id = wanted.workspace_id`;
}

const tables: Record<NamedTable, Prisma.Sql> = {
  workspaces: Prisma.sql`workspaces`,
  teams: Prisma.sql`teams`,
  permission_sets: Prisma.sql`permission_sets`,
};
