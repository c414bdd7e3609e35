import type { DuckDBConnection } from '@duckdb/node-api';
import { type KnownColumn, MOST_UNREADABLE, mostCharacters } from '../columns.ts';
import { EARLIEST, LATEST } from '../schedule.ts';
import { literal, type Part } from './part.ts';

export type ValueColumn = Exclude<KnownColumn, 'updated_at'>;

/**
 * DuckDB cannot sort wide rows that do not fit into its memory: it ends with an error, or worse, with no rows. So rows are
 * read window by window of time, each with so many bytes as can be sorted, and each in a reading of its own.
 */
const WINDOW_BYTES = 33_554_432;
/** Quantiles of the time that windows are made of, and so the most of them. */
const QUANTILES = 1000;

export interface Window {
  /** Condition on `moment`. */
  condition: string;
  /** Rows of one moment need not be sorted, however many they are; those without one cannot be. */
  ordered: boolean;
}

export interface Survey {
  /** In the order of time; what is no time comes first. */
  windows: Window[];
  /** In all windows. */
  rows: number;
}

const IS_TIME = `coalesce(moment between timestamp '${EARLIEST}' and timestamp '${LATEST}', false)`;

/**
 * Counts the rows since then and parts them into windows.
 * @param since in the form of `SourceRow.updatedAt`
 */
export async function surveyRows(
  connection: DuckDBConnection,
  { parts, columns }: { parts: readonly Part[]; columns: readonly ValueColumn[] },
  since: string | undefined,
): Promise<Survey> {
  const from =
    since === undefined ? IS_TIME : `${IS_TIME} and moment >= timestamp ${literal(since.replace('Z', ''))}`;
  const bytes = ['0', ...columns.map((_, index) => `coalesce(strlen(v${index}), 0)`)].join(' + ');
  const quantiles = Array.from({ length: QUANTILES - 1 }, (_, index) => (index + 1) / QUANTILES);
  const reader = await connection.runAndReadAll(
    `select count(*) filter (${from}), count(*) filter (not ${IS_TIME}), sum(${bytes}) filter (${from}),
       approx_quantile(epoch_us(moment), [${quantiles.join(', ')}]) filter (${from})
     from (${rowsOf(parts, columns, 'fromKeeping')})`,
  );
  const [readable, unreadable, size, moments] = reader.getRowsJson()[0] as [
    string,
    string,
    string,
    string[] | null,
  ];
  const windows: Window[] = Number(unreadable) > 0 ? [{ condition: `not ${IS_TIME}`, ordered: false }] : [];
  if (Number(readable) > 0) {
    const count = Math.min(QUANTILES, Math.ceil(Number(size) / WINDOW_BYTES));
    const bounds = Array.from({ length: Math.max(0, count - 1) }, (_, index) =>
      BigInt(moments![Math.floor(((index + 1) * QUANTILES) / count) - 1]!),
    );
    for (const { condition, ordered } of windowsBetween(bounds)) {
      windows.push({ condition: `${from} and ${condition}`, ordered });
    }
  }
  return { windows, rows: Number(readable) + Number(unreadable) };
}

/** A bound that comes twice is a moment with more rows than a window should have: it is a window of its own. */
function windowsBetween(bounds: readonly bigint[]): Window[] {
  const moment = (bound: bigint) => `make_timestamp(${bound})`;
  const distinct = [...new Set(bounds)].sort((one, other) => (one < other ? -1 : 1));
  let above = 'true';
  const windows: Window[] = [];
  for (const bound of distinct) {
    windows.push({ condition: `${above} and moment < ${moment(bound)}`, ordered: true });
    above = `moment >= ${moment(bound)}`;
    if (bounds.filter((other) => other === bound).length === 1) continue;
    windows.push({ condition: `moment = ${moment(bound)}`, ordered: false });
    above = `moment > ${moment(bound)}`;
  }
  windows.push({ condition: above, ordered: true });
  return windows;
}

/** Of each row of a window: UPDATED_AT in its wire form or null; what stood there when it is no time; then `columns`. */
export function rowsStatement(
  parts: readonly Part[],
  columns: readonly ValueColumn[],
  { condition, ordered }: Window,
): string {
  const values = columns.map((_, index) => `, v${index}`).join('');
  return [
    `select case when ${IS_TIME} then strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ') end, shown${values}`,
    // What is not needed is not sorted either.
    `from (select moment, case when not ${IS_TIME} then shown end as shown${values}`,
    `from (${rowsOf(parts, columns, 'from')}) where ${condition})`,
    ordered ? 'order by moment' : '',
  ].join(' ');
}

function rowsOf(
  parts: readonly Part[],
  columns: readonly ValueColumn[],
  relation: 'from' | 'fromKeeping',
): string {
  const rows = parts.map((part) => {
    const values = columns.map((column, index) => {
      const value = part.values.get(column);
      return `, ${value === undefined ? 'null::varchar' : `left(${value}, ${mostCharacters(column)})`} as v${index}`;
    });
    return `select ${part.at} as moment, left(${part.shown}, ${MOST_UNREADABLE}) as shown${values.join('')} from ${part[relation]}`;
  });
  return rows.join(' union all ');
}
