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

/** Returns the columns by their lower-case names in a source. */
function wireNames(serviceIdField: string): Map<string, KnownColumn> {
  const names = new Map<string, KnownColumn>(withoutServiceId.map((column) => [column, column]));
  return names.set(serviceIdField.toLowerCase(), 'service_id');
}

/** Returns the lower-case names of the columns that a sync uses. */
export function knownNames(serviceIdField: string): string[] {
  return [...wireNames(serviceIdField).keys()];
}

/**
 * Finds the columns that a sync uses, regardless of case, and returns their names in the source.
 * @param serviceIdField name of the column with the service id
 * @param where table or file, for messages
 * @throws {SourceError} `config` if two names differ only in case
 */
export function findColumns(
  names: readonly string[],
  serviceIdField: string,
  where: string,
): Map<KnownColumn, string> {
  const columnsByName = wireNames(serviceIdField);
  const nameByColumn = new Map<KnownColumn, string>();
  for (const name of names) {
    const column = columnsByName.get(name.toLowerCase());
    if (!column) continue;
    const other = nameByColumn.get(column);
    if (other !== undefined) {
      throw new SourceError(
        'config',
        other === name
          ? `${where}: the column ${name} exists twice; rename or remove one of them`
          : `${where}: the columns ${other} and ${name} differ only in case; rename one of them`,
      );
    }
    nameByColumn.set(column, name);
  }
  return nameByColumn;
}

/** @throws {SourceError} `config` */
export function requireUpdatedAt(columns: { has(column: 'updated_at'): boolean }, where: string): void {
  if (!columns.has('updated_at'))
    throw new SourceError('config', `${where}: the column UPDATED_AT is missing`);
}

/** Maximum characters of an invalid time that are kept, which is enough to find it. */
export const MAX_UNREADABLE = 1000;

/** Maximum bytes of a row's PAYLOAD. */
export const MAX_PAYLOAD_BYTES = 1_048_576;
/** Maximum characters of an identifier that are read; all valid identifiers are shorter. */
const MAX_IDENTIFIER = 10_000;

/**
 * Returns the maximum characters of a value that are read. A longer value is refused for its length anyway
 * and would fill the memory, so the source truncates it.
 */
export function maxCharacters(column: Exclude<KnownColumn, 'updated_at'>): number {
  return column === 'payload' ? MAX_PAYLOAD_BYTES + 1 : MAX_IDENTIFIER;
}

/** Returns the characters of a row, as a measure of its memory. */
export function charactersOf({ identifiers, payload, unreadable }: SourceRow): number {
  const named = Object.values(identifiers).reduce((sum, value) => sum + value.length, 0);
  return named + (payload?.length ?? 0) + (unreadable?.length ?? 0);
}

/** Number of cells before the values of `columns`: UPDATED_AT, and its original text. */
const TIME_CELLS = 2;

/**
 * Converts the cells of a row.
 * @param cells UPDATED_AT in the form of `SourceRow`, or null; its original text, which is used only if
 * UPDATED_AT is null; then the values of `columns`, in their order
 */
export function toRow(
  cells: readonly (string | null)[],
  columns: readonly Exclude<KnownColumn, 'updated_at'>[],
): SourceRow {
  const [updatedAt, shown] = cells;
  const row: SourceRow = { identifiers: {} };
  if (updatedAt === undefined || updatedAt === null) row.unreadable = (shown ?? '').slice(0, MAX_UNREADABLE);
  else row.updatedAt = updatedAt;
  for (const [index, column] of columns.entries()) {
    const value = cells[index + TIME_CELLS];
    if (value === null || value === undefined) continue;
    if (column === 'payload') row.payload = value;
    else row.identifiers[column] = value;
  }
  return row;
}

/** Returns a row for a line that could not be read at all. */
export function brokenRow(reason: string, text: string): SourceRow {
  const broken = { reason: reason.slice(0, MAX_UNREADABLE), text: text.slice(0, MAX_UNREADABLE) };
  const unreadable = [reason, text]
    .filter((part) => part !== '')
    .join(': ')
    .slice(0, MAX_UNREADABLE);
  return { identifiers: {}, unreadable, broken };
}

/** Combinations of columns that identify a user. An alias takes two columns. */
const identifiers: readonly (readonly IdentifierColumn[])[] = [
  ['external_id'],
  ['alias_name', 'alias_label'],
  ['service_id'],
  ['email'],
  ['phone'],
];

/** Deletes accept only unique identifiers. */
const ofDeletes: readonly (readonly IdentifierColumn[])[] = identifiers.slice(0, 3);

/** Returns the identifiers of a kind of sync. Columns of other identifiers are ignored. */
function identifiersOf(kind: IntegrationKind): readonly (readonly IdentifierColumn[])[] {
  return kind === 'deletes' ? ofDeletes : identifiers;
}

/**
 * Checks that the columns are sufficient for a sync: UPDATED_AT, an identifier, and PAYLOAD, which is not
 * allowed for a sync of deletes. Case is ignored, and so are other columns.
 *
 * @param serviceIdField API name of the service id, and name of its column
 * @throws {SourceError} `config`, naming the column and the rule
 */
export function checkColumns(
  kind: IntegrationKind,
  columns: readonly SourceColumn[],
  serviceIdField: string,
): void {
  const names = columns.map(({ name }) => name.toLowerCase());
  const wireName = (column: IdentifierColumn) => (column === 'service_id' ? serviceIdField : column);
  const combinations = identifiersOf(kind).map((combination) =>
    combination.map((column) => wireName(column).toLowerCase()),
  );

  const supported = ['updated_at', 'payload', ...combinations.flat()];
  const duplicate = supported.find((name) => names.indexOf(name) !== names.lastIndexOf(name));
  if (duplicate !== undefined)
    throw wrong(`the column ${upper(duplicate)} exists more than once; rename or remove the others`, columns);
  if (!names.includes('updated_at')) throw wrong('the column UPDATED_AT is missing', columns);
  if (kind === 'deletes' && names.includes('payload'))
    throw wrong('the column PAYLOAD is not allowed in a sync of deletes; remove it from the source', columns);
  if (kind !== 'deletes' && !names.includes('payload')) throw wrong('the column PAYLOAD is missing', columns);
  if (!combinations.some((combination) => combination.every((name) => names.includes(name)))) {
    const wanted = combinations.map((combination) => combination.map(upper).join(' with ')).join(', ');
    throw wrong(`a column with an identifier is missing; add one of ${wanted}`, columns);
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
 * Regular expression for times in text columns, with the same meaning in Postgres, Redshift and DuckDB. A
 * time is an ISO 8601 date, optionally with a time of day after a T or a space, and then optionally with an
 * offset; without an offset it is in UTC. Days that do not exist in a month do not match, because a database
 * would fail the whole statement at the first of them. Numbers do not match, because seconds and milliseconds
 * are ambiguous. Year 0 must be excluded separately.
 */
export const TIME_PATTERN = `^${DATE}([T ]${CLOCK}${OFFSET})?$`;

/** The form of `SourceRow.updatedAt`. */
const CANONICAL = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

/**
 * @throws {RangeError} if the text is not in the form of `SourceRow.updatedAt`, because it becomes part of a
 * statement
 */
export function assertCanonical(time: string): void {
  if (!CANONICAL.test(time))
    throw new RangeError(
      `a time must be in UTC with six decimal places, for example 2026-01-31T12:00:00.000000Z, and not ${time}`,
    );
}

/** Range of times whose texts sort like the times. */
export const EARLIEST = '0001-01-01 00:00:00';
export const LATEST = '9999-12-31 23:59:59.999999';
