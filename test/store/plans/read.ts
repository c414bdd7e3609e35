import type { Connection, Pool } from '../../../src/store/database.ts';
import type { Sent } from './record.ts';

/** A node of a plan, as EXPLAIN prints it in JSON. */
interface Plan {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  Plans?: Plan[];
}

/** One access to a table. */
export interface Access {
  table: string;
  /** Absent if the whole table is scanned. */
  index?: string;
  /** Index condition; empty: the index is read from end to end. */
  condition: string;
  /** Columns of the index in order; absent for an index that is not a B-tree. */
  columns?: string[] | undefined;
}

/**
 * Reads tables and indexes by the names that plans use; a partition has the entry of its partitioned table.
 * Partitions with
 * few rows are omitted: a plan for a month that has just begun, or for the next one, is not representative.
 */
export async function readCatalog(pool: Pool) {
  const { rows } = await pool.query<{
    name: string;
    root: string;
    table: string | null;
    few: boolean;
    columns: string[] | null;
  }>(`
    select
      pg_class.relname as name,
      pg_class.relispartition and pg_class.reltuples < 1000 as few,
      coalesce(pg_partition_root(pg_class.oid), pg_class.oid)::regclass::text as root,
      coalesce(pg_partition_root(pg_index.indrelid), pg_index.indrelid)::regclass::text as table,
      (
        select array_agg(regexp_replace(pg_get_indexdef(pg_class.oid, place, true), ' COLLATE .*', '') order by place)
        from generate_series(1, pg_index.indnkeyatts) as place
        join pg_am on pg_am.oid = pg_class.relam and pg_am.amname = 'btree'
      ) as columns
    from pg_class
    left join pg_index on pg_index.indexrelid = pg_class.oid
    where pg_class.relnamespace = 'public'::regnamespace and pg_class.relkind in ('r', 'p', 'i', 'I')`);
  return new Map(
    rows
      .filter(({ few }) => !few)
      .map(({ name, root, table, columns }) => [
        name,
        { root, table: table ?? root, columns: columns ?? undefined },
      ]),
  );
}

export type Catalog = Awaited<ReturnType<typeof readCatalog>>;

/** Yields every access to a table in the plan. */
export function* accesses(plan: Plan, catalog: Catalog): Iterable<Access> {
  const index = plan['Index Name'];
  const whole = plan['Node Type'] === 'Seq Scan' ? plan['Relation Name'] : undefined;
  const result = catalog.get(index ?? whole ?? '');
  if (result && index !== undefined) {
    const { table, root, columns } = result;
    yield { table, index: root, condition: plan['Index Cond'] ?? '', columns };
  } else if (result) {
    yield { table: result.table, condition: '' };
  }
  for (const child of plan.Plans ?? []) yield* accesses(child, catalog);
}

/** Returns the generic plan, as a session with `plan_cache_mode=force_generic_plan` uses it. */
export async function explainGeneric(tx: Connection, { text }: Sent): Promise<Plan> {
  const parameters = new Set(text.match(/\$\d+/g)).size;
  const nulls = Array.from({ length: parameters }, () => 'null').join(', ');
  await tx.query(`prepare plan_of_one as ${text}`);
  const { rows } = await tx.query(`explain (format json) execute plan_of_one${nulls && `(${nulls})`}`);
  await tx.query('deallocate plan_of_one');
  return rows[0]['QUERY PLAN'][0].Plan;
}

/** Returns the plan for these values. */
export async function explainCustom(tx: Connection, { text, values }: Sent): Promise<Plan> {
  const { rows } = await tx.query(`explain (format json) ${text}`, values);
  return rows[0]['QUERY PLAN'][0].Plan;
}

/** Columns that name an owner: a workspace or a company may own almost all rows. */
const OWNER = /^(workspace_id|company_id|uuid_send\(workspace_id\))$/;

/**
 * Describes a read beyond single rows: a table or an index from end to end, all rows of one owner in a table,
 * or a range of
 * an index. Undefined: rows are looked up.
 */
export function longRead({ table, index, condition, columns: ordered }: Access): string | undefined {
  if (condition === '') return `all of ${index ?? table}`;
  const parts = condition
    .split(' AND ')
    .map((part) => /^\(*(.+?) (\S*[=<>@]\S*) (.*?)\)*$/.exec(part)!.slice(1));
  const [ranges, bounds, equal] = [new Set<string>(), new Set<string>(), new Set<string>()];
  for (const [column, operator, value] of parts as [string, string, string][]) {
    // A range with equal bounds is an equality.
    const isEqual = !/[<>]/.test(operator.replace('@>', '')) || bounds.has(`${column} ${value}`);
    const row = /^ROW\((.*)\)$/.exec(column)?.[1]?.split(', ');
    for (const name of row ?? [column]) {
      if (isEqual) equal.add(name);
      else if (row || !OWNER.test(name)) ranges.add(name);
    }
    bounds.add(`${column} ${value}`);
  }
  // Conditions on columns after the first unbound one filter rows only within the range of the columns before
  // it.
  const gap = ordered?.findIndex((column) => !equal.has(column)) ?? -1;
  const used = gap === -1 ? [...equal] : ordered!.slice(0, gap);
  if (used.some((column) => !OWNER.test(column))) return undefined;
  // A plan may write an expression differently from the index: it is assumed to be the next column.
  const isBehind = (column: string) => ordered!.indexOf(column) > gap;
  if (gap >= 0 && [...ranges].every(isBehind)) return `what one owner has in ${table}`;
  return ranges.size === 0 ? `what one owner has in ${table}` : `a range of ${index}`;
}
