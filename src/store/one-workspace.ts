import { NIL_UUID } from '../platform/ids.ts';
import { distributed, views } from './distributed-tables.ts';

/**
 * Statements over whole sets take a workspace with each of their rows: on one Postgres a batch of many workspaces is one
 * transaction. A distributed Postgres has to see which node a statement is for before it plans it. This is the other form
 * of the same statement, for sets of one workspace: it is said once, as a scalar parameter.
 */

/**
 *     unnest($1::uuid[], $2::text[]) as given (workspace_id, email)
 *     (select $1::uuid as workspace_id, given.* from unnest($2::text[]) as given (email)) as given
 */
const COLUMNS =
  /unnest\(\s*\$(?<place>\d+)::uuid\[\](?:,(?<arrays>[^()]*))?\)(?<ordinality>\s+with ordinality)?\s+as (?<name>\w+) \(\s*(?<column>workspace_id|owner_id)(?:,(?<columns>[^()]*))?\)/g;

/**
 *     jsonb_to_recordset($1::jsonb) as given ("workspaceId" uuid, email text)
 *     (select $2::uuid as "workspaceId", given.* from jsonb_to_recordset($1::jsonb) as given (email text)) as given
 *
 * The scalar is a parameter more than the statement has.
 */
const RECORDS =
  /(?<json>jsonb?)_to_recordset\(\$(?<place>\d+)::jsonb?\) as (?<name>\w+) \((?<before>[^()]*?)(?<column>"workspaceId"|\bworkspace_id|\bowner_id) uuid(?:, )?(?<behind>[^()]*)\)/g;

/** Keys of tables that are unique by themselves on one Postgres, and with their workspace where they are distributed. */
const KEYS: [table: string, key: string][] = [
  ['cut_envelopes', 'envelope_id'],
  ['outcomes', 'object_id'],
  ['dead_letters', 'id'],
  ['sync_row_errors', 'job_id, number'],
];

/** A workspace that is given as a scalar. */
const SCALAR = /\bworkspace_id = (\$\d+::uuid)\b/g;

/** Workspaces of two tables that are the same. */
const EQUAL = /\b(\w+)\.workspace_id (?:=|is not distinct from) (\w+)\.workspace_id\b/g;

/** Nobody's: for a set without rows, and for what an earlier release has not said whose it is. */
const NOBODY = NIL_UUID;

/**
 * SQL: the row is of the workspace that is given, or of nobody, as a process of an earlier release writes it. None of
 * those runs on a distributed Postgres.
 */
export function isOf(table: string, given: string): string {
  return `${table}.workspace_id in (${given}.workspace_id, '${NOBODY}')`;
}

const IS_OF = new RegExp(String.raw`\b(\w+)\.workspace_id in \((\w+)\.workspace_id, '${NOBODY}'\)`, 'g');

/** The same as an index of bytes has them: the equality alone tells a distributed Postgres no shard. */
const EQUAL_BYTES = /\buuid_send\((\w+)\.workspace_id\) = uuid_send\((\w+)\.workspace_id\)/g;

/** A workspace in front of what is looked for in another table. */
const TUPLE = /\((\w+)\.workspace_id, [^()]*\) (?:not )?in \(/g;

/** A view of what a delete has not taken away. */
const KEPT = /\bkept_(?<table>dead_letters|row_errors)(?: as (?<name>\w+))?(?=\s)(?!\.)/g;

/** The view for one workspace: each table of its query says so for itself. */
function keptOf(table: string, scalar: string): string {
  return `(
    select ${table}.* from ${table}
    where ${table}.workspace_id = ${scalar} and not exists (
      with recursive owners as (
        select substr(named.name, 3)::uuid as id
        from unnest(${table}.identifiers) as named (name)
        where named.name like 'u:%'
        union
        select hit.owner_id
        from unnest(${table}.identifiers) as named (name)
        cross join lateral (
          select left_names.owner_id, left_names.after, left_names.up_to
          from left_names
          where left_names.workspace_id = ${scalar} and left_names.name = named.name
          offset 0
        ) as hit
        where ${table}.place > hit.after and ${table}.place <= hit.up_to
        union
        select hit.kept_id
        from owners
        cross join lateral (
          select merged_profiles.kept_id
          from merged_profiles
          where merged_profiles.workspace_id = ${scalar} and merged_profiles.profile_id = owners.id
          limit 1
        ) as hit
      )
      select
      from owners
      where (
        select removed_profiles.fate
        from removed_profiles
        where removed_profiles.workspace_id = ${scalar} and removed_profiles.profile_id = owners.id
        limit 1) = 'deleted'))`;
}

/** Where a statement has its sets. */
interface Sets {
  /** Parameters that are arrays of workspaces, from 0: they become scalars. */
  arrays: number[];
  /** Parameters that are JSON of rows, and the member of those that says whose they are. */
  records: { place: number; member: string }[];
}

interface Form extends Sets {
  text: string;
  /** The same for a transaction that has its workspace's row in `workspace_places`; absent: it inserts nothing. */
  inPlace?: string;
  /** Sequences whose last values are parameters more, behind those of the statement. */
  sequences: string[];
}

/** Where a sequence stands: a node has no answer, since values are given out at the coordinator. */
const LAST_VALUE = /pg_sequence_last_value\('(?<sequence>\w+)'\)/g;

/**
 * A set that is inserted comes from its workspace's shard if a table of it is in the query: it goes there in one statement.
 * Else it would go by way of the coordinator, and the transaction would need two phases to commit.
 */
const INSERTS = /^\s*(?:with claimed as \(\s*)?insert into /;
const FROM_PLACE = 'workspace_places as place cross join ';

/** Of none of these tables a statement is as on one Postgres: the audit may tell of several workspaces at once, and of none. */
const APART = new RegExp(
  String.raw`\b(?:${[...Object.keys(distributed), ...Object.keys(views)].join('|')})\b`,
);

const known = new Map<string, Form>();

/** The form of a statement for sets of one workspace; of one without such sets, itself. */
export function ofOneWorkspace(text: string): string {
  return formOf(text).text;
}

/** Every form in which a statement is sent to a distributed Postgres. */
export function formsOf(text: string): string[] {
  const { text: plain, inPlace } = formOf(text);
  return inPlace === undefined ? [plain] : [plain, inPlace];
}

function formOf(text: string): Form {
  let form = known.get(text);
  if (!form) {
    form = makeForm(text);
    known.set(text, form);
  }
  return form;
}

function makeForm(text: string): Form {
  if (!APART.test(text)) return { text, arrays: [], records: [], sequences: [] };
  const scalars = new Set<string>([...text.matchAll(SCALAR)].map(([, scalar]) => scalar!));
  const arrays = new Set<number>();
  const records = new Map<number, string>();
  const rowsOf = (name: string, column: string, { scalar, rows }: { scalar: string; rows: string }) =>
    `(select ${scalar} as ${column}, ${name}.* from ${rows}) as ${name}`;
  const rowsInPlace = (name: string, column: string, { scalar, rows }: { scalar: string; rows: string }) =>
    `(select place.workspace_id as ${column}, ${name}.* from ${FROM_PLACE}${rows} where place.workspace_id = ${scalar}) as ${name}`;
  const inPlace = new Map<string, string>();
  const more = 1 + Math.max(0, ...[...text.matchAll(/\$(\d+)/g)].map(([, place]) => Number(place)));
  let form = text
    .replace(IS_OF, '$1.workspace_id = $2.workspace_id')
    .replace(COLUMNS, (...match) => {
      const { place, arrays: others = '', ordinality = '', name, column, columns = '' } = match.at(-1);
      const scalar = `$${place}::uuid`;
      arrays.add(place - 1);
      scalars.add(scalar);
      if (columns.trim() === '') return `(select ${scalar} as ${column}) as ${name}`;
      const rows = `unnest(${others.trim()})${ordinality} as ${name} (${columns.trim()})`;
      const plain = rowsOf(name, column, { scalar, rows });
      inPlace.set(plain, rowsInPlace(name, column, { scalar, rows }));
      return plain;
    })
    .replace(RECORDS, (...match) => {
      const { json, place, name, before, column, behind } = match.at(-1);
      const scalar = `$${more}::uuid`;
      records.set(place - 1, column.replaceAll('"', ''));
      scalars.add(scalar);
      const rows = `${json}_to_recordset($${place}::${json}) as ${name} (${before}${behind})`;
      const plain = rowsOf(name, column, { scalar, rows });
      inPlace.set(plain, rowsInPlace(name, column, { scalar, rows }));
      return plain;
    });
  for (const [table, key] of KEYS)
    if (text.includes(`insert into ${table} `))
      form = form.replace(`on conflict (${key})`, `on conflict (workspace_id, ${key})`);
  const sequences: string[] = [];
  const last = more + (records.size > 0 ? 1 : 0);
  form = form.replace(LAST_VALUE, (...match) => {
    const { sequence } = match.at(-1);
    if (!sequences.includes(sequence)) sequences.push(sequence);
    return `$${last + sequences.indexOf(sequence)}::bigint`;
  });
  const sets = {
    sequences,
    arrays: [...arrays],
    records: [...records].map(([place, member]) => ({ place, member })),
  };
  // All workspaces of the statement are the one: each table says so for itself, however deep it stands.
  const [scalar] = scalars;
  if (!scalar) return { text: form, ...sets };
  form = form
    .replace(
      EQUAL,
      (_, one, other) => `${one}.workspace_id = ${scalar} and ${other}.workspace_id = ${scalar}`,
    )
    .replace(
      EQUAL_BYTES,
      (_, one, other) =>
        `${one}.workspace_id = ${scalar} and ${other}.workspace_id = ${scalar} and uuid_send(${one}.workspace_id) = uuid_send(${scalar})`,
    )
    .replace(TUPLE, (tuple, one) => `${one}.workspace_id = ${scalar} and ${tuple}`)
    .replace(KEPT, (...match) => {
      const { table, name = `kept_${table}` } = match.at(-1);
      return `${keptOf(table === 'row_errors' ? 'sync_row_errors' : table, scalar)} as ${name}`;
    });
  if (!INSERTS.test(text) || text.includes(' lateral (')) return { text: form, ...sets };
  let own = form;
  for (const [plain, placed] of inPlace) own = own.replaceAll(plain, placed);
  return { text: form, inPlace: own, ...sets };
}

/** What a transaction has said before. */
export interface Said {
  /** Of sequences, as it has asked for them. */
  lastValues: ReadonlyMap<string, string>;
  /** The workspace whose row in `workspace_places` it has. */
  place: string | undefined;
}

/** A statement cannot be said for one workspace as it was asked for: ours to mend, whatever it is given. */
export class NotOfOneWorkspace extends Error {
  /** As of a statement that a distributed Postgres cannot plan. */
  readonly code = '0A000';
}

/**
 * A statement and its parameters in the form for one workspace.
 *
 * @throws {NotOfOneWorkspace} where its sets have rows of several: it would write down all of them for the first
 */
export function sayWorkspace(
  text: string,
  values: readonly unknown[],
  { lastValues, place }: Said,
): { text: string; values: unknown[]; isInPlace: boolean } {
  const { text: plain, inPlace, arrays, records, sequences } = formOf(text);
  const found = new Set<string>();
  for (const at of arrays) for (const id of workspacesOf(values[at])) found.add(id.toLowerCase());
  for (const { place: at, member } of records)
    for (const row of JSON.parse(String(values[at])) as Record<string, string>[])
      found.add(row[member]!.toLowerCase());
  const [workspace = NOBODY, ...others] = found;
  if (others.length > 0)
    throw new NotOfOneWorkspace(`a statement for one workspace is given ${found.size}: ${text}`);
  const isInPlace = inPlace !== undefined && workspace === place?.toLowerCase();
  const form = isInPlace ? inPlace : plain;
  const given = [...values];
  for (const at of arrays) given[at] = workspace;
  if (records.length > 0) given.push(workspace);
  for (const sequence of sequences) {
    if (!lastValues.has(sequence))
      throw new NotOfOneWorkspace(`the position of the sequence ${sequence} is unknown: ${text}`);
    given.push(lastValues.get(sequence));
  }
  return { text: form, values: given, isInPlace };
}

/** Bytes in front of the elements of a binary array, of one, and of its length. */
const [HEADER, ELEMENT, LENGTH] = [20, 20, 4];

/** @param array binary, as `uuidArray` makes it, or a list */
function workspacesOf(array: unknown): Iterable<string> {
  if (!Buffer.isBuffer(array)) return array as string[];
  const ids = new Set<string>();
  for (let at = HEADER; at < array.length; at += ELEMENT)
    ids.add(array.toString('hex', at + LENGTH, at + ELEMENT));
  return [...ids].map((hex) => hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-'));
}
