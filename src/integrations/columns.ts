import { type IdentifierColumn, SourceError, type SourceRow } from './source.ts';

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
          : `${where}: the columns ${other} and ${name} differ only in case, so that which is meant cannot be told`,
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
const MOST_UNREADABLE = 1000;

/**
 * @param updatedAt in the form of `SourceRow`, or null
 * @param shown what stood in UPDATED_AT; read only when `updatedAt` is null
 * @param values of `columns`, in their order
 */
export function toRow(
  updatedAt: string | null,
  shown: string | null,
  columns: readonly Exclude<KnownColumn, 'updated_at'>[],
  values: readonly (string | null | undefined)[],
): SourceRow {
  const row: SourceRow = { identifiers: {} };
  if (updatedAt === null) row.unreadable = (shown ?? '').slice(0, MOST_UNREADABLE);
  else row.updatedAt = updatedAt;
  for (const [index, column] of columns.entries()) {
    const value = values[index];
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
