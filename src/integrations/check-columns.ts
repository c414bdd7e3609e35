import type { IntegrationKind } from './definition.ts';
import { type IdentifierColumn, type SourceColumn, SourceError } from './source.ts';

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
    throw wrong(`there is no column that names the user, which takes one of ${wanted}`, columns);
  }
}

function upper(name: string): string {
  return name.toUpperCase();
}

function wrong(rule: string, columns: readonly SourceColumn[]): SourceError {
  const names = columns.map(({ name }) => name).join(', ');
  return new SourceError('config', `${rule} (the columns are: ${names || 'none'})`);
}
