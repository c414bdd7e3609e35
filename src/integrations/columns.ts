import {
  type IdentifierColumn,
  type IntegrationKind,
  type SourceColumn,
  SourceError,
  type SourceRow,
} from './source.ts';

export type KnownColumn = 'updated_at' | IdentifierColumn | 'payload';

const withoutServiceId = [
  'updated_at',
  'external_id',
  'alias_name',
  'alias_label',
  'email',
  'phone',
  'payload',
] as const satisfies KnownColumn[];

/** Columns by the names that they have in a source, in lower case. */
function wireNames(serviceIdField: string): Map<string, KnownColumn> {
  const names = new Map<string, KnownColumn>(withoutServiceId.map((column) => [column, column]));
  return names.set(serviceIdField.toLowerCase(), 'service_id');
}

/** Names of the columns that a sync knows, in lower case. */
export function knownNames(serviceIdField: string): string[] {
  return [...wireNames(serviceIdField).keys()];
}

/**
 * Which of the columns a sync knows, whatever their case, by their names in the source.
 * @param serviceIdField column that holds the service's own id
 * @param where for the message: table or file
 * @throws {SourceError} `config` when two names differ only in case
 */
export function findColumns(
  names: readonly string[],
  serviceIdField: string,
  where: string,
): Map<KnownColumn, string> {
  const known = wireNames(serviceIdField);
  const found = new Map<KnownColumn, string>();
  for (const name of names) {
    const column = known.get(name.toLowerCase());
    if (!column) continue;
    const other = found.get(column);
    if (other !== undefined) {
      throw new SourceError(
        'config',
        other === name
          ? `${where}: there are two columns ${name}`
          : `${where}: the columns ${other} and ${name} differ only in case; rename one of them`,
      );
    }
    found.set(column, name);
  }
  return found;
}

/** @throws {SourceError} `config` */
export function requireUpdatedAt(found: { has(column: 'updated_at'): boolean }, where: string): void {
  if (!found.has('updated_at')) throw new SourceError('config', `${where}: there is no column UPDATED_AT`);
}

/** Longest text of a value that is no time, in characters: enough to find it by. */
export const MOST_UNREADABLE = 1000;

/** Bytes of a row's PAYLOAD. */
export const MAX_PAYLOAD_BYTES = 1_048_576;
/** More than any identifier may have. */
const MOST_IDENTIFIER = 10_000;

/**
 * Characters of a value that are read. What is longer is refused for its length whatever follows, and would fill the
 * memory; so the source itself cuts it there.
 */
export function mostCharacters(column: Exclude<KnownColumn, 'updated_at'>): number {
  return column === 'payload' ? MAX_PAYLOAD_BYTES + 1 : MOST_IDENTIFIER;
}

/** How much of the memory a row takes. */
export function charactersOf({ identifiers, payload, unreadable }: SourceRow): number {
  const named = Object.values(identifiers).reduce((sum, value) => sum + value.length, 0);
  return named + (payload?.length ?? 0) + (unreadable?.length ?? 0);
}

/** Cells of a row before those of its `columns`: UPDATED_AT, and what stood there. */
const TIME_CELLS = 2;

/**
 * @param cells UPDATED_AT in the form of `SourceRow`, or null; what stood there, read only when that is null; then the
 *   values of `columns`, in their order
 */
export function toRow(
  cells: readonly (string | null)[],
  columns: readonly Exclude<KnownColumn, 'updated_at'>[],
): SourceRow {
  const [updatedAt, shown] = cells;
  const row: SourceRow = { identifiers: {} };
  if (updatedAt === undefined || updatedAt === null) row.unreadable = (shown ?? '').slice(0, MOST_UNREADABLE);
  else row.updatedAt = updatedAt;
  for (const [index, column] of columns.entries()) {
    const value = cells[index + TIME_CELLS];
    if (value === null || value === undefined) continue;
    if (column === 'payload') row.payload = value;
    else row.identifiers[column] = value;
  }
  return row;
}

/** A line that could not be read at all. */
export function brokenRow(reason: string, text: string): SourceRow {
  const broken = { reason: reason.slice(0, MOST_UNREADABLE), text: text.slice(0, MOST_UNREADABLE) };
  const unreadable = [reason, text]
    .filter((part) => part !== '')
    .join(': ')
    .slice(0, MOST_UNREADABLE);
  return { identifiers: {}, unreadable, broken };
}

/** Each of these names a user; an alias takes two columns. */
const identifiers: readonly (readonly IdentifierColumn[])[] = [
  ['external_id'],
  ['alias_name', 'alias_label'],
  ['service_id'],
  ['email'],
  ['phone'],
];

/** Deletes name users by what only one user has. */
const ofDeletes: readonly (readonly IdentifierColumn[])[] = identifiers.slice(0, 3);

/** What may name the user of a row, by kind; columns of others are passed over. */
export function identifiersOf(kind: IntegrationKind): readonly (readonly IdentifierColumn[])[] {
  return kind === 'deletes' ? ofDeletes : identifiers;
}

/**
 * Whether a sync can be made of these columns: UPDATED_AT, one that names the user, and PAYLOAD, which a sync of
 * deletes must not have. Case does not count; other columns are passed over.
 *
 * @param serviceIdField wire name of the service id, and so of its column
 * @throws {SourceError} `config`, naming the column and the rule
 */
export function checkColumns(
  kind: IntegrationKind,
  columns: readonly SourceColumn[],
  serviceIdField: string,
): void {
  const found = columns.map(({ name }) => name.toLowerCase());
  const wireName = (column: IdentifierColumn) => (column === 'service_id' ? serviceIdField : column);
  const ways = identifiersOf(kind).map((way) => way.map((column) => wireName(column).toLowerCase()));

  const known = ['updated_at', 'payload', ...ways.flat()];
  const twice = known.find((name) => found.indexOf(name) !== found.lastIndexOf(name));
  if (twice !== undefined) throw wrong(`there are several columns ${upper(twice)}`, columns);
  if (!found.includes('updated_at')) throw wrong('there is no column UPDATED_AT', columns);
  if (kind === 'deletes' && found.includes('payload'))
    throw wrong('there is a column PAYLOAD, which a sync of deletes must not have', columns);
  if (kind !== 'deletes' && !found.includes('payload')) throw wrong('there is no column PAYLOAD', columns);
  if (!ways.some((way) => way.every((name) => found.includes(name)))) {
    const wanted = ways.map((way) => way.map(upper).join(' with ')).join(', ');
    throw wrong(`no column has an identifier; one of ${wanted} is required`, columns);
  }
}

function upper(name: string): string {
  return name.toUpperCase();
}

function wrong(rule: string, columns: readonly SourceColumn[]): SourceError {
  const names = columns.map(({ name }) => name).join(', ');
  return new SourceError('config', `${rule} (the columns are: ${names || 'none'})`);
}

const DATE = [
  '([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])',
  '[0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30)',
  '[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])',
  '[0-9]{2}(0[48]|[2468][048]|[13579][26])-02-29',
  '([02468][048]|[13579][26])00-02-29)',
].join('|');
const CLOCK = '([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?';
const OFFSET = '( ?(Z|UTC|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?))?';

/**
 * What is a time in a column of texts, as an expression that Postgres, Redshift and DuckDB read alike. It is an ISO
 * 8601 date, alone or with a time of day behind a T or a space. An offset may follow; none means UTC. Days that no
 * month has do not match: a database would end the whole statement at the first of them. A number is no time, since
 * seconds and milliseconds look alike. Year 0 has to be refused beside it.
 */
export const TIME_PATTERN = `^${DATE}([T ]${CLOCK}${OFFSET})?$`;

/** The form of `SourceRow.updatedAt`. */
const CANONICAL = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

/** @throws {RangeError} when it is not in the form of `SourceRow.updatedAt`: it becomes part of a statement */
export function assertCanonical(time: string): void {
  if (!CANONICAL.test(time)) throw new RangeError(`no time to the microsecond in UTC: ${time}`);
}

/** Times outside of these have no text that compares as they do. */
export const EARLIEST = '0001-01-01 00:00:00';
export const LATEST = '9999-12-31 23:59:59.999999';
