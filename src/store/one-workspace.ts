import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../platform/files.ts';
import { NIL_UUID } from '../platform/ids.ts';
import { distributed, views } from './distributed-tables.ts';

/**
 * Set-based statements take a workspace with each row, so that on a single Postgres a batch of many
 * workspaces is one transaction. A distributed Postgres must know the node of a statement before it plans it.
 * Such a statement has a form for a set of one workspace, in which the workspace is a scalar parameter.
 * `npm run generate` writes the forms into generated/citus-forms.json.
 */

/** Form of a statement for one workspace. */
export interface Form {
  text: string;
  /**
   * Form for a transaction that has its workspace's row in `workspace_places`. Absent if the statement does
   * not insert a set.
   */
  declared?: string;
  /** Indexes (from 0) of parameters that are arrays of workspaces and become scalars. */
  arrays: number[];
  /** Indexes of parameters that are JSON rows, and the member of a row that has its workspace. */
  records: { index: number; member: string }[];
  /**
   * Sequences whose last values are appended to the statement's parameters. Nodes cannot read them, because the
   * coordinator assigns the values.
   */
  sequences: string[];
}

const registered = new Set<string>();

/** Statements for which `npm run generate` writes a form. */
export const statementsWithForm: ReadonlySet<string> = registered;

/**
 * Marks a statement that needs a form for one workspace. Call it when the module is loaded, because the generator only
 * loads the modules of src/store.
 */
export function withCitusForm(text: string): string {
  registered.add(text);
  return text;
}

/** Forms by the text of the statement. */
type Forms = ReadonlyMap<string, Form>;

let generated: Forms | undefined;

function generatedForms(): Forms {
  generated ??= new Map(
    Object.entries(JSON.parse(readFileSync(path.join(packageRoot, 'generated/citus-forms.json'), 'utf8'))),
  );
  return generated;
}

/** Workspace of a set without rows, and of rows that an earlier release wrote without a workspace. */
const NO_WORKSPACE = NIL_UUID;

/**
 * Returns SQL for the condition that a row belongs to the given workspace, or to none because a process of an
 * earlier release wrote it. Such processes do not run on a distributed Postgres.
 */
export function isOf(table: string, given: string): string {
  return `${table}.workspace_id in (${given}.workspace_id, '${NO_WORKSPACE}')`;
}

/** Returns every form in which a statement is sent to a distributed Postgres. Tests check that Postgres plans each. */
export function formsOf(text: string): string[] {
  const { text: plain, declared } = generatedForms().get(text) ?? { text };
  return declared === undefined ? [plain] : [plain, declared];
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

/** Matches a set that has a workspace in each row. */
const SET =
  /(?:\bunnest|_to_recordset)\([^()]*\)(?:\s+with ordinality)?\s+as \w+ \([^()]*(?:workspace_id|owner_id|"workspaceId")/g;

/** Returns the sets in SQL or code that have a workspace in each row, up to the column of the workspace. */
export const setsIn = (text: string): string[] => text.match(SET) ?? [];

/**
 * Matches distributed tables and views. A statement without any of them needs no form; the audit log, for example, may
 * cover several workspaces or none.
 */
const DISTRIBUTED = new RegExp(
  String.raw`\b(?:${[...Object.keys(distributed), ...Object.keys(views)].join('|')})\b`,
);

/**
 * Returns a statement and its parameters in the form for one workspace. A statement without a form is returned
 * unchanged.
 *
 * @throws {NotOfOneWorkspace} if the statement needs a form and has none, or as `applyForm`
 */
export function statementForWorkspace(
  text: string,
  values: readonly unknown[],
  scope: TransactionScope,
): FormedStatement {
  const form = generatedForms().get(text);
  if (form) return applyForm(form, values, scope);
  if (registered.has(text) || (setsIn(text).length > 0 && DISTRIBUTED.test(text)))
    throw new NotOfOneWorkspace(
      `a statement has no form for Citus. Mark it with withCitusForm and run npm run generate: ${text}`,
    );
  return { text, values: [...values], isDeclared: false };
}

/** A statement as it is sent to a distributed Postgres. */
interface FormedStatement {
  text: string;
  values: unknown[];
  isDeclared: boolean;
}

/**
 * Returns a form with the parameters of its statement.
 *
 * @throws {NotOfOneWorkspace} if the sets have rows of several workspaces, which would all be stored for the
 * first one, or if the transaction has not read a sequence
 */
export function applyForm(
  { text, declared, arrays, records, sequences }: Form,
  values: readonly unknown[],
  { lastValues, workspaceId: declaredWorkspace }: TransactionScope,
): FormedStatement {
  const workspaces = new Set<string>();
  for (const at of arrays) for (const id of workspacesOf(values[at])) workspaces.add(id.toLowerCase());
  for (const { index: at, member } of records)
    for (const row of JSON.parse(String(values[at])) as Record<string, string>[])
      workspaces.add(row[member]!.toLowerCase());
  const [workspace = NO_WORKSPACE, ...others] = workspaces;
  if (others.length > 0)
    throw new NotOfOneWorkspace(`a statement for one workspace is given ${workspaces.size}: ${text}`);
  const isDeclared = declared !== undefined && workspace === declaredWorkspace?.toLowerCase();
  const given = [...values];
  for (const at of arrays) given[at] = workspace;
  if (records.length > 0) given.push(workspace);
  for (const sequence of sequences) {
    if (!lastValues.has(sequence))
      throw new NotOfOneWorkspace(`the position of the sequence ${sequence} is unknown: ${text}`);
    given.push(lastValues.get(sequence));
  }
  return { text: isDeclared ? declared : text, values: given, isDeclared };
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
