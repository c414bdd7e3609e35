import { Prisma } from '../generated/prisma/client.ts';
import { uuidOf } from '../profile/values.ts';
import type { Connection, Database, Pool } from './database.ts';
import { inTransaction } from './transactions.ts';

/** Columns that filters can use. */
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

/** A parsed filter. */
export type AccountCondition =
  | { op: 'and' | 'or'; conditions: AccountCondition[] }
  | { op: 'eq' | 'co' | 'sw'; column: FilterColumn; value: string }
  | { op: 'eq'; column: 'active'; value: boolean }
  | { op: 'email'; comparisons: EmailComparison[] };

/**
 * A comparison with a member of an email address. All comparisons of a condition apply to the same address.
 */
export interface EmailComparison {
  op: 'eq' | 'co' | 'sw';
  member: 'value' | 'type' | 'primary';
  value: string;
}

/**
 * SQL expression of each column for comparisons. Only ids are case-sensitive. Each expression has an index,
 * except the full name and the display name, for which all accounts of the company are read.
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

/** SQL of the addresses in responses. An account without addresses has its user name as the only one. */
const EMAILS = `coalesce(accounts.emails, jsonb_build_array(jsonb_build_object(
  'value', accounts.user_name, 'type', 'work', 'primary', true)))`;

const CASE_EXACT: FilterColumn[] = ['id', 'externalId'];

/** Returns the SQL of a condition. Client input only goes into `values`, never into the text. */
function conditionSql(condition: AccountCondition, values: unknown[]): string {
  if ('conditions' in condition) {
    const parts = condition.conditions.map((one) => conditionSql(one, values));
    return `(${parts.join(` ${condition.op} `)})`;
  }
  if (condition.op === 'email') return emailSql(condition.comparisons, values);
  const { op, column, value } = condition;
  const expression = expressions[column];
  if (typeof value === 'boolean') return `${expression} = $${values.push(value)}::boolean`;
  // Uses the primary key. A value that is not a UUID matches no account.
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

/**
 * Returns whether a condition needs a comparison that no index supports, so that all accounts of the company
 * are read.
 */
function readsEveryone(condition: AccountCondition): boolean {
  if ('conditions' in condition) return condition.conditions.some(readsEveryone);
  if (condition.op === 'email') return true;
  const { op, column } = condition;
  return op === 'co' || column === 'name' || column === 'displayName' || (op === 'sw' && column === 'id');
}

interface Found {
  /** Total number of matching accounts. */
  total: number;
  /** Accounts of the page, in order of creation. */
  page: { id: string; position: number }[];
  /** Whether the page was cut because of its size, although more accounts follow. */
  isCut: boolean;
}

/** Time limit of a search in milliseconds. Shorter than the timeouts of clients. */
const MAX_TIME = 1000;

/**
 * Time limit in milliseconds for waiting for a lock. Separate, so that a lock wait is not reported as a slow
 * search.
 */
const MAX_WAIT = 500;

/**
 * Maximum total size in bytes of the JSON lists of a page's accounts. One account may have a megabyte of
 * permissions; usual pages are far smaller.
 */
const MAX_PAGE_BYTES = 2_000_000;

/** A search that reads all accounts exceeded its time limit. */
export class SearchTooLong extends Error {
  override name = 'SearchTooLong';
}

interface Row {
  id: string;
  position: number;
  /** Number of rows of the page before it was cut. */
  asked: number;
}

interface AccountSearch {
  /** Condition on the accounts; all accounts if absent. */
  condition?: AccountCondition | undefined;
  /** Number of accounts to skip. */
  skip?: number;
  /** Position after which to begin. */
  after?: number | undefined;
  /** Position before which the page ends. */
  before?: number | undefined;
  newestFirst?: boolean | undefined;
  limit: number;
}

/**
 * Returns a page of the accounts of a company that match a condition, and their total number. Uses the
 * indexes of `accounts`, which start with the company; `co` reads all accounts of the company.
 *
 * A page that would be too large is cut, but has at least one account.
 *
 * @throws {SearchTooLong}
 */
export async function findAccounts(pool: Pool, companyId: string, search: AccountSearch): Promise<Found> {
  const { where, values } = whereOf(companyId, search.condition);
  const count = `select count(*)::integer as total from accounts where ${where}`;
  return inSearch(pool, search, async (tx) => {
    const counted = await tx.query<{ total: number }>(count, values);
    return { total: counted.rows[0]!.total, ...(await readPage(tx, companyId, search)) };
  });
}

/**
 * Returns a page without the total number, whose cost grows with the number of accounts.
 *
 * @throws {SearchTooLong}
 */
export function findAccountPage(
  pool: Pool,
  companyId: string,
  search: AccountSearch,
): Promise<Omit<Found, 'total'>> {
  return inSearch(pool, search, (tx) => readPage(tx, companyId, search));
}

function whereOf(companyId: string, condition: AccountCondition | undefined) {
  const values: unknown[] = [companyId];
  const where = `accounts.company_id = $1::uuid${condition ? ` and ${conditionSql(condition, values)}` : ''}`;
  return { where, values };
}

async function readPage(
  tx: Connection,
  companyId: string,
  { condition, skip = 0, after, before, newestFirst, limit }: AccountSearch,
): Promise<Omit<Found, 'total'>> {
  if (limit === 0) return { page: [], isCut: false };
  const { where, values } = whereOf(companyId, condition);
  const afterCondition = after === undefined ? '' : ` and accounts.position > $${values.push(after)}::bigint`;
  const beforeCondition =
    before === undefined ? '' : ` and accounts.position < $${values.push(before)}::bigint`;
  const direction = newestFirst ? 'desc' : 'asc';
  const text = `
    select whole.id, whole.position, whole.asked
    from (
      select page.id, page.position, page.bytes, count(*) over () as asked,
        sum(page.bytes) over (order by page.position ${direction}) as bytes_so_far
      from (
        select accounts.id, accounts.position, accounts.list_bytes + octet_length(accounts.roles::text) as bytes
        from accounts
        where ${where}${afterCondition}${beforeCondition}
        order by accounts.position ${direction}
        limit $${values.push(limit)}::integer offset $${values.push(skip)}::integer
      ) as page
    ) as whole
    where whole.bytes_so_far <= ${MAX_PAGE_BYTES} or whole.bytes_so_far = whole.bytes
    order by whole.position ${direction}`;
  const { rows } = await tx.query<Row>(text, values);
  return { page: rows, isCut: rows.length > 0 && rows.length < rows[0]!.asked };
}

/** Runs a search with a time limit in one snapshot, so that page and count are consistent. */
async function inSearch<T>(
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

/** Tables whose rows accounts refer to. */
type NamedTable = 'workspaces' | 'teams' | 'permission_sets';

export interface NamedRow {
  id: string;
  name: string;
}

/** Any number of names and ids. Each list is one parameter. */
interface NamesAndIds {
  companyId: string;
  names: string[];
  ids: string[];
}

/** Returns the names of rows by id, by primary key. Sends no statement for an empty list. */
export async function namesOf(
  prisma: Client,
  table: NamedTable,
  ids: string[],
): Promise<Map<string, string>> {
  const unique = [...new Set(ids)];
  if (unique.length === 0) return new Map();
  const rows = await prisma.$queryRaw<NamedRow[]>`
    select named.id, named.name
    from ${tables[table]} as named
    where named.id = any(${unique}::uuid[])`;
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/**
 * Returns workspaces or permission sets of a company that have one of the names or ids. Sends no statement if
 * both lists are empty.
 */
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
 * Returns teams of workspaces by name or id, by the key of workspace and name and the primary key. Sends no
 * statement for an empty list.
 */
export async function findTeams(
  prisma: Client,
  wanted: { workspaceId: string; name: string | undefined; id: string | undefined }[],
): Promise<(NamedRow & { workspaceId: string })[]> {
  if (wanted.length === 0) return [];
  const named = wanted.filter(({ name }) => name !== undefined);
  const withId = wanted.filter(({ id }) => id !== undefined);
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
      ${withId.map((one) => one.workspaceId)}::uuid[],
      ${withId.map((one) => one.id)}::uuid[]
    ) as wanted (workspace_id, id)
    join teams on teams.id = wanted.id and teams.workspace_id = wanted.workspace_id`;
}

const tables: Record<NamedTable, Prisma.Sql> = {
  workspaces: Prisma.sql`workspaces`,
  teams: Prisma.sql`teams`,
  permission_sets: Prisma.sql`permission_sets`,
};
