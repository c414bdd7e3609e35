import { NIL_UUID } from '../platform/ids.ts';
import { distributed, views } from './distributed-tables.ts';

/**
 * Set-based statements take a workspace with each row, so that on a single Postgres a batch of many
 * workspaces is one transaction. A distributed Postgres must know the node of a statement before it plans it.
 * This module rewrites such a statement for a set of one workspace: the workspace becomes a scalar parameter.
 */

/**
 * Matches a set from arrays. Example of a set and its form for one workspace:
 *
 *     unnest($1::uuid[], $2::text[]) as given (workspace_id, email)
 *     (select $1::uuid as workspace_id, given.* from unnest($2::text[]) as given (email)) as given
 */
const COLUMNS =
  /unnest\(\s*\$(?<parameter>\d+)::uuid\[\](?:,(?<arrays>[^()]*))?\)(?<ordinality>\s+with ordinality)?\s+as (?<name>\w+) \(\s*(?<column>workspace_id|owner_id)(?:,(?<columns>[^()]*))?\)/g;

/**
 * Matches a set from JSON. Its form for one workspace has an additional scalar parameter, for example:
 *
 *     jsonb_to_recordset($1::jsonb) as given ("workspaceId" uuid, email text)
 *     (select $2::uuid as "workspaceId", given.* from jsonb_to_recordset($1::jsonb) as given (email text)) as given
 */
const RECORDS =
  /(?<json>jsonb?)_to_recordset\(\$(?<parameter>\d+)::jsonb?\) as (?<name>\w+) \((?<before>[^()]*?)(?<column>"workspaceId"|\bworkspace_id|\bowner_id) uuid(?:, )?(?<after>[^()]*)\)/g;

/**
 * Keys that are unique by themselves on a single Postgres, and together with the workspace if the tables are
 * distributed.
 */
const KEYS: [table: string, key: string][] = [
  ['cut_envelopes', 'envelope_id'],
  ['outcomes', 'object_id'],
  ['dead_letters', 'id'],
  ['sync_row_errors', 'job_id, number'],
];

/** Matches a workspace that is given as a scalar parameter. */
const SCALAR = /\bworkspace_id = (\$\d+::uuid)\b/g;

/** Matches an equality between the workspaces of two tables. */
const EQUAL = /\b(\w+)\.workspace_id (?:=|is not distinct from) (\w+)\.workspace_id\b/g;

/** Workspace of a set without rows, and of rows that an earlier release wrote without a workspace. */
const NO_WORKSPACE = NIL_UUID;

/**
 * Returns SQL for the condition that a row belongs to the given workspace, or to none because a process of an
 * earlier release wrote it. Such processes do not run on a distributed Postgres.
 */
export function isOf(table: string, given: string): string {
  return `${table}.workspace_id in (${given}.workspace_id, '${NO_WORKSPACE}')`;
}

const IS_OF = new RegExp(
  String.raw`\b(\w+)\.workspace_id in \((\w+)\.workspace_id, '${NO_WORKSPACE}'\)`,
  'g',
);

/** Matches the same equality on bytes, as an index has it. By itself it does not tell Citus the shard. */
const EQUAL_BYTES = /\buuid_send\((\w+)\.workspace_id\) = uuid_send\((\w+)\.workspace_id\)/g;

/** Matches a tuple with a workspace that is looked up in another table. */
const TUPLE = /\((\w+)\.workspace_id, [^()]*\) (?:not )?in \(/g;

/** Matches a view that excludes rows of deleted users. */
const KEPT = /\bkept_(?<table>dead_letters|row_errors)(?: as (?<name>\w+))?(?=\s)(?!\.)/g;

/** Returns the query of the view for one workspace, with the condition on the workspace in each table. */
function queryOfView(table: string, scalar: string): string {
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

/** Positions of the sets in a statement's parameters. */
interface Sets {
  /** Indexes (from 0) of parameters that are arrays of workspaces and become scalars. */
  arrays: number[];
  /** Indexes of parameters that are JSON rows, and the member of a row that has its workspace. */
  records: { index: number; member: string }[];
}

interface Form extends Sets {
  text: string;
  /**
   * Form for a transaction that has its workspace's row in `workspace_places`. Absent if the statement does
   * not insert a set.
   */
  declared?: string;
  /** Sequences whose last values are appended to the statement's parameters. */
  sequences: string[];
}

/**
 * Matches a read of a sequence's last value. Nodes cannot answer it, since the coordinator assigns the
 * values.
 */
const LAST_VALUE = /pg_sequence_last_value\('(?<sequence>\w+)'\)/g;

/**
 * Matches statements that insert a set. If the query reads a table of the workspace's shard, the rows go
 * there in one statement. Otherwise they would go through the coordinator, and the transaction would need two
 * phases to commit.
 */
const INSERTS = /^\s*(?:with claimed as \(\s*)?insert into /;
const FROM_PLACE = 'workspace_places as place cross join ';

/**
 * Matches distributed tables and views. A statement without any of them is sent unchanged; the audit log, for
 * example, may cover several workspaces or none.
 */
const DISTRIBUTED = new RegExp(
  String.raw`\b(?:${[...Object.keys(distributed), ...Object.keys(views)].join('|')})\b`,
);

const forms = new Map<string, Form>();

/**
 * Returns the form of a statement for one workspace; unchanged if the statement has no set with workspaces. Tests use
 * it to send statements of their own.
 */
export function ofOneWorkspace(text: string): string {
  return formOf(text).text;
}

/** Returns every form in which a statement is sent to a distributed Postgres. Tests check that Postgres plans each. */
export function formsOf(text: string): string[] {
  const { text: plain, declared } = formOf(text);
  return declared === undefined ? [plain] : [plain, declared];
}

function formOf(text: string): Form {
  let form = forms.get(text);
  if (!form) {
    form = buildForm(text);
    forms.set(text, form);
  }
  return form;
}

function buildForm(text: string): Form {
  if (!DISTRIBUTED.test(text)) return { text, arrays: [], records: [], sequences: [] };
  const scalars = new Set<string>([...text.matchAll(SCALAR)].map(([, scalar]) => scalar!));
  const arrays = new Set<number>();
  const records = new Map<number, string>();
  const rowsOf = (name: string, column: string, { scalar, rows }: { scalar: string; rows: string }) =>
    `(select ${scalar} as ${column}, ${name}.* from ${rows}) as ${name}`;
  const rowsOfDeclared = (name: string, column: string, { scalar, rows }: { scalar: string; rows: string }) =>
    `(select place.workspace_id as ${column}, ${name}.* from ${FROM_PLACE}${rows} where place.workspace_id = ${scalar}) as ${name}`;
  const declared = new Map<string, string>();
  const more = 1 + Math.max(0, ...[...text.matchAll(/\$(\d+)/g)].map(([, parameter]) => Number(parameter)));
  let form = text
    .replace(IS_OF, '$1.workspace_id = $2.workspace_id')
    .replace(COLUMNS, (...match) => {
      const { parameter, arrays: others = '', ordinality = '', name, column, columns = '' } = match.at(-1);
      const scalar = `$${parameter}::uuid`;
      arrays.add(parameter - 1);
      scalars.add(scalar);
      if (columns.trim() === '') return `(select ${scalar} as ${column}) as ${name}`;
      const rows = `unnest(${others.trim()})${ordinality} as ${name} (${columns.trim()})`;
      const plain = rowsOf(name, column, { scalar, rows });
      declared.set(plain, rowsOfDeclared(name, column, { scalar, rows }));
      return plain;
    })
    .replace(RECORDS, (...match) => {
      const { json, parameter, name, before, column, after } = match.at(-1);
      const scalar = `$${more}::uuid`;
      records.set(parameter - 1, column.replaceAll('"', ''));
      scalars.add(scalar);
      const rows = `${json}_to_recordset($${parameter}::${json}) as ${name} (${before}${after})`;
      const plain = rowsOf(name, column, { scalar, rows });
      declared.set(plain, rowsOfDeclared(name, column, { scalar, rows }));
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
    records: [...records].map(([index, member]) => ({ index, member })),
  };
  // Every set has the same workspace, so each table at any depth gets the condition on it.
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
      return `${queryOfView(table === 'row_errors' ? 'sync_row_errors' : table, scalar)} as ${name}`;
    });
  if (!INSERTS.test(text) || text.includes(' lateral (')) return { text: form, ...sets };
  let own = form;
  for (const [plain, declaredForm] of declared) own = own.replaceAll(plain, declaredForm);
  return { text: form, declared: own, ...sets };
}

/** State of the current transaction. */
export interface TransactionScope {
  /** Last values of sequences that the transaction has read. */
  lastValues: ReadonlyMap<string, string>;
  /** Workspace whose row in `workspace_places` the transaction has inserted. */
  workspaceId: string | undefined;
}

/**
 * A statement cannot be sent for one workspace. This is a bug in Penstock and does not depend on user data.
 */
export class NotOfOneWorkspace extends Error {
  /** SQLSTATE feature_not_supported, as for a statement that Citus cannot plan. */
  readonly code = '0A000';
}

/**
 * Returns a statement and its parameters in the form for one workspace.
 *
 * @throws {NotOfOneWorkspace} if the sets have rows of several workspaces, which would all be stored for the
 * first one
 */
export function statementForWorkspace(
  text: string,
  values: readonly unknown[],
  { lastValues, workspaceId: declaredWorkspace }: TransactionScope,
): { text: string; values: unknown[]; isDeclared: boolean } {
  const { text: plain, declared, arrays, records, sequences } = formOf(text);
  const workspaces = new Set<string>();
  for (const at of arrays) for (const id of workspacesOf(values[at])) workspaces.add(id.toLowerCase());
  for (const { index: at, member } of records)
    for (const row of JSON.parse(String(values[at])) as Record<string, string>[])
      workspaces.add(row[member]!.toLowerCase());
  const [workspace = NO_WORKSPACE, ...others] = workspaces;
  if (others.length > 0)
    throw new NotOfOneWorkspace(`a statement for one workspace is given ${workspaces.size}: ${text}`);
  const isDeclared = declared !== undefined && workspace === declaredWorkspace?.toLowerCase();
  const form = isDeclared ? declared : plain;
  const given = [...values];
  for (const at of arrays) given[at] = workspace;
  if (records.length > 0) given.push(workspace);
  for (const sequence of sequences) {
    if (!lastValues.has(sequence))
      throw new NotOfOneWorkspace(`the position of the sequence ${sequence} is unknown: ${text}`);
    given.push(lastValues.get(sequence));
  }
  return { text: form, values: given, isDeclared };
}

/** Bytes of a binary array's header, of one element, and of the element's length field. */
const [HEADER, ELEMENT, LENGTH] = [20, 20, 4];

/** @param array binary, as `uuidArray` encodes it, or a list */
function workspacesOf(array: unknown): Iterable<string> {
  if (!Buffer.isBuffer(array)) return array as string[];
  const ids = new Set<string>();
  for (let at = HEADER; at < array.length; at += ELEMENT)
    ids.add(array.toString('hex', at + LENGTH, at + ELEMENT));
  return [...ids].map((hex) => hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-'));
}
