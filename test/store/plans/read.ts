import type { Connection, Pool } from '../../../src/store/database.ts';
import type { Sent } from './record.ts';

/** A node of a plan, as EXPLAIN tells it in JSON. */
interface Plan {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  Plans?: Plan[];
}

/** One way into a table. */
export interface Access {
  table: string;
  /** Absent: the table is read from end to end. */
  index?: string;
  /** What is looked up in the index; empty: it is read from end to end. */
  condition: string;
}

/**
 * Tables and indexes by the names that plans have for them; a partition's are those of the whole. Partitions with
 * few rows are missing: of the month that has just begun, or of the next, a plan says nothing.
 */
export async function readCatalog(pool: Pool) {
  const { rows } = await pool.query<{ name: string; root: string; table: string | null; few: boolean }>(`
    select
      pg_class.relname as name,
      pg_class.relispartition and pg_class.reltuples < 1000 as few,
      coalesce(pg_partition_root(pg_class.oid), pg_class.oid)::regclass::text as root,
      coalesce(pg_partition_root(pg_index.indrelid), pg_index.indrelid)::regclass::text as table
    from pg_class
    left join pg_index on pg_index.indexrelid = pg_class.oid
    where pg_class.relnamespace = 'public'::regnamespace and pg_class.relkind in ('r', 'p', 'i', 'I')`);
  return new Map(
    rows.filter(({ few }) => !few).map(({ name, root, table }) => [name, { root, table: table ?? root }]),
  );
}

export type Catalog = Awaited<ReturnType<typeof readCatalog>>;

/** Every way into a table that the plan takes. */
export function* accesses(plan: Plan, catalog: Catalog): Iterable<Access> {
  const index = plan['Index Name'];
  const whole = plan['Node Type'] === 'Seq Scan' ? plan['Relation Name'] : undefined;
  const found = catalog.get(index ?? whole ?? '');
  if (found && index !== undefined) {
    yield { table: found.table, index: found.root, condition: plan['Index Cond'] ?? '' };
  } else if (found) {
    yield { table: found.table, condition: '' };
  }
  for (const child of plan.Plans ?? []) yield* accesses(child, catalog);
}

/** The plan that is made for any values: the one that a session with `plan_cache_mode=force_generic_plan` uses. */
export async function explainGeneric(tx: Connection, { text }: Sent): Promise<Plan> {
  const parameters = new Set(text.match(/\$\d+/g)).size;
  const nulls = Array.from({ length: parameters }, () => 'null').join(', ');
  await tx.query(`prepare plan_of_one as ${text}`);
  const { rows } = await tx.query(`explain (format json) execute plan_of_one${nulls && `(${nulls})`}`);
  await tx.query('deallocate plan_of_one');
  return rows[0]['QUERY PLAN'][0].Plan;
}

/** The plan that is made for these values. */
export async function explainCustom(tx: Connection, { text, values }: Sent): Promise<Plan> {
  const { rows } = await tx.query(`explain (format json) ${text}`, values);
  return rows[0]['QUERY PLAN'][0].Plan;
}

/** Whom a row belongs to: a workspace or a company may have nearly all that there is. */
const OWNER = /^(workspace_id|company_id|uuid_send\(workspace_id\))$/;

/**
 * What is read besides single rows: a table or an index from end to end, all that one owner has in a table, or a range
 * of an index. Undefined: something is looked up.
 */
export function longRead({ table, index, condition }: Access): string | undefined {
  if (condition === '') return `all of ${index ?? table}`;
  const parts = condition
    .split(' AND ')
    .map((part) => /^\(*(.+?) (\S*[=<>@]\S*) (.*?)\)*$/.exec(part)!.slice(1));
  const [columns, bounds] = [new Set<string>(), new Set<string>()];
  for (const [column, operator, value] of parts as [string, string, string][]) {
    if (OWNER.test(column)) continue;
    // From a value to the same value is as good as equal to it.
    const isEqual = !/[<>]/.test(operator.replace('@>', '')) || bounds.has(`${column} ${value}`);
    if (isEqual) return undefined;
    columns.add(column);
    bounds.add(`${column} ${value}`);
  }
  return columns.size === 0 ? `what one owner has in ${table}` : `a range of ${index}`;
}
