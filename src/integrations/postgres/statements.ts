import pg from 'pg';
import type { KnownColumn } from '../columns.ts';
import { type SourceColumn, SourceError } from '../source.ts';
import { assertCanonical, EARLIEST, LATEST, TIME_PATTERN } from '../times.ts';

const FORM = `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'`;
/** As `format_type` calls them. */
const TEXTS = /^(text|character|citext|name)/;

/**
 * The name as in SQL: dots part it, what is in double quotes is taken as it stands, the rest is folded to lower case.
 * The result can be put into a statement, whatever the name.
 * @throws {SourceError} `config` when a part is empty or a quote is not closed
 */
export function quoteTable(name: string): string {
  const parts = [...name.matchAll(/(?:^|\.)(?:"((?:[^"]|"")+)"|([^".]+))/gy)];
  if (parts.length === 0 || parts.reduce((length, [part]) => length + part.length, 0) !== name.length) {
    throw new SourceError(
      'config',
      `the table ${name} is no name: [schema.]table, parts in "…" as they stand`,
    );
  }
  return parts
    .map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain!.toLowerCase())
    .map((part) => pg.escapeIdentifier(part))
    .join('.');
}

interface Time {
  /** The column as a value that can be compared; null for a text that is no time. */
  value: string;
  /** Type of literals beside it. */
  type: 'timestamp' | 'timestamptz';
}

function timeOf(column: SourceColumn, where: string): Time {
  const name = pg.escapeIdentifier(column.name);
  if (column.type.startsWith('timestamp with time zone')) return { value: name, type: 'timestamptz' };
  if (column.type.startsWith('timestamp') || column.type === 'date') {
    // Without a zone it is UTC; a date is its first moment.
    return { value: column.type === 'date' ? `${name}::timestamp` : name, type: 'timestamp' };
  }
  if (TEXTS.test(column.type)) {
    const isTime = `${name} ~ ${pg.escapeLiteral(TIME_PATTERN)} and ${name} not like '0000%'`;
    // The session's zone is UTC, which a text without an offset is read in.
    return { value: `case when ${isTime} then ${name}::timestamptz end`, type: 'timestamptz' };
  }
  throw new SourceError('config', `${where}: ${column.name} is of type ${column.type}, which is no time`);
}

export interface RowStatements {
  /** Of each: UPDATED_AT in its wire form or null, as it stood there, then `columns`. */
  readable: string;
  unreadable: string;
  columns: Exclude<KnownColumn, 'updated_at'>[];
}

/**
 * The statements in the words that Redshift knows, too. Two of them, so that an index on UPDATED_AT serves either.
 * @param table as from `quoteTable`
 */
export function rowStatements(
  table: string,
  found: ReadonlyMap<KnownColumn, string>,
  described: readonly SourceColumn[],
  since: string | undefined,
): RowStatements {
  if (since !== undefined) assertCanonical(since);
  const columnOf = (known: KnownColumn) => described.find(({ name }) => name === found.get(known))!;
  const updatedAt = columnOf('updated_at');
  const time = timeOf(updatedAt, table);
  const columns = [...found.keys()].filter((column) => column !== 'updated_at');
  const rows = [
    `select ${time.value} as at, ${pg.escapeIdentifier(updatedAt.name)}::text as shown`,
    ...columns.map((column, index) => `, ${asText(columnOf(column))} as c${index}`),
    ` from ${table}`,
  ].join('');
  const literal = (text: string) =>
    time.type === 'timestamptz' ? `'${text}+00'::timestamptz` : `'${text}'::timestamp`;
  const from = literal(since === undefined ? EARLIEST : since.replace('T', ' ').replace('Z', ''));
  const text = `to_char(at${time.type === 'timestamptz' ? " at time zone 'UTC'" : ''}, ${FORM})`;
  const others = columns.map((_, index) => `, c${index}`).join('');
  return {
    readable: `select ${text}, null::text${others} from (${rows}) s where at >= ${from} and at <= ${literal(LATEST)} order by at`,
    unreadable: `select null::text, shown${others} from (${rows}) s where at is null or at < ${literal(EARLIEST)} or at > ${literal(LATEST)}`,
    columns,
  };
}

function asText({ name, type }: SourceColumn): string {
  const column = pg.escapeIdentifier(name);
  // Redshift's type for JSON, which it does not cast.
  return type === 'super' ? `json_serialize(${column})` : `${column}::text`;
}
