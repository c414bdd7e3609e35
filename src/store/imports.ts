import type { Json } from '../profile/json.ts';
import { type Actor, audited } from './audit.ts';
import { aloneWith } from './connections.ts';
import type { Pool } from './database.ts';
import { readApplied } from './ledger.ts';

/** What an import is known by. */
export interface ImportKey {
  workspaceId: string;
  /** SHA-256. */
  key: Buffer;
}

/** What is written down of an import when it begins. */
export interface NewImport extends ImportKey {
  id: string;
  /** As the person has named it. */
  file: string;
  /** SHA-256 of the file's bytes. */
  digest: Buffer;
  /** What decides how its rows are read. */
  reading: Json;
}

/** How far an import has come. */
export interface ImportProgress {
  /** Rows that are done with. */
  rows: number;
  /** Objects that went to the lanes. */
  accepted: number;
  /** Rows that were refused. */
  refused: number;
  /** Bytes of the file of refused rows. */
  refusedBytes: number;
}

/** Envelopes that the lanes may not have yet. */
export interface StagedEnvelopes {
  /** Keys of their ledger rows. */
  envelopeIds: string[];
  /** What the producer takes. */
  entries: unknown[];
}

export interface StoredImport extends NewImport, ImportProgress {
  startedAt: Date;
  finishedAt: Date | null;
  staged: unknown[] | null;
  /** When rows that the lanes may not have were erased; null: the import can be continued. */
  rowsErasedAt: Date | null;
}

/** By primary key. */
const insertImportStatement = `
  insert into imports (workspace_id, key, id, file, digest, reading)
  values ($1::uuid, $2::bytea, $3::uuid, $4::text, $5::bytea, $6::json)
  on conflict (workspace_id, key) do nothing`;

/** By primary key. */
const findImportStatement = `
  select
    imports.workspace_id as "workspaceId",
    imports.key,
    imports.id,
    imports.file,
    imports.digest,
    imports.reading,
    imports.started_at as "startedAt",
    imports.finished_at as "finishedAt",
    imports.rows_done::float8 as rows,
    imports.accepted::float8 as accepted,
    imports.refused::float8 as refused,
    imports.refused_bytes::float8 as "refusedBytes",
    imports.staged,
    imports.rows_erased_at as "rowsErasedAt"
  from imports
  where imports.workspace_id = $1::uuid and imports.key = $2::bytea`;

/** What is known of an import. */
export async function findImport(
  pool: Pool,
  { workspaceId, key }: ImportKey,
): Promise<StoredImport | undefined> {
  const { rows } = await pool.query<StoredImport>({
    name: 'find-import',
    text: findImportStatement,
    values: [workspaceId, key],
  });
  return rows[0];
}

/** Begins an import, unless one of that key is known. */
export async function insertImport(pool: Pool, begun: NewImport, actor: Actor): Promise<void> {
  const { workspaceId, key, id, file, digest, reading } = begun;
  await audited(pool, actor, async (tx) => {
    const { rowCount } = await tx.query({
      name: 'insert-import',
      text: insertImportStatement,
      values: [workspaceId, key, id, file, digest, JSON.stringify(reading)],
    });
    const entry = {
      action: 'imports.begin',
      workspaceId,
      subject: { kind: 'import', id },
      detail: { file },
    } as const;
    return { result: undefined, entries: rowCount === 1 ? [entry] : [] };
  });
}

/** By primary key; of two who go on with the same import, one finds it where it believes it to be. */
const stageStatement = `
  update imports set
    rows_done = $4::bigint,
    accepted = $5::bigint,
    refused = $6::bigint,
    refused_bytes = $7::bigint,
    staged = $8::json,
    staged_at = now(),
    envelope_ids = $9::uuid[]
  where imports.workspace_id = $1::uuid
    and imports.key = $2::bytea
    and imports.rows_done = $3::bigint
    and imports.finished_at is null
    and imports.rows_erased_at is null`;

/**
 * Moves an import on behind the next rows. What was staged before has to be in the lanes; the new is to be handed over
 * when this has committed.
 *
 * @param expected rows that were done with before
 * @returns false: another process has gone on with it
 */
export async function stageEnvelopes(
  pool: Pool,
  { workspaceId, key }: ImportKey,
  step: { expected: number; progress: ImportProgress; staged: StagedEnvelopes },
): Promise<boolean> {
  const { expected, progress, staged } = step;
  const { rows, accepted, refused, refusedBytes } = progress;
  const { entries, envelopeIds } = staged;
  const { rowCount } = await pool.query({
    name: 'stage-envelopes',
    text: stageStatement,
    values: [
      ...[workspaceId, key, expected, rows, accepted, refused, refusedBytes],
      ...[entries.length > 0 ? JSON.stringify(entries) : null, envelopeIds],
    ],
  });
  return rowCount === 1;
}

/** By primary key. */
const finishImportStatement = `
  update imports set staged = null, envelope_ids = '{}', finished_at = now()
  where imports.workspace_id = $1::uuid
    and imports.key = $2::bytea
    and imports.rows_done = $3::bigint
    and imports.finished_at is null`;

/**
 * Ends an import: the lanes have all of it.
 * @returns false: another process has gone on with it
 */
export async function finishImport(
  pool: Pool,
  { workspaceId, key }: ImportKey,
  rows: number,
): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'finish-import',
    text: finishImportStatement,
    values: [workspaceId, key, rows],
  });
  return rowCount === 1;
}

/** Days for which the last rows of an interrupted import are kept. */
export const STAGED_DAYS = 7;

/** Files are imported by hand: the table is small. */
const selectStaleStatement = `
  select imports.workspace_id as "workspaceId", imports.key, imports.envelope_ids as "envelopeIds"
  from imports
  where imports.staged is not null
    and coalesce(imports.staged_at, imports.started_at) < now() - interval '${STAGED_DAYS} days'
  limit 100`;

/** By primary key. */
const eraseStaleStatement = `
  update imports
  set staged = null, envelope_ids = '{}', rows_erased_at = case when $3::boolean then now() end
  where imports.workspace_id = $1::uuid
    and imports.key = $2::bytea
    and coalesce(imports.staged_at, imports.started_at) < now() - interval '${STAGED_DAYS} days'`;

/**
 * Erases the last rows of imports that were interrupted `STAGED_DAYS` ago. An import whose last rows have taken effect
 * can still be continued.
 */
export async function eraseStaleRows(pool: Pool): Promise<void> {
  const { rows: stale } = await pool.query<ImportKey & Pick<StagedEnvelopes, 'envelopeIds'>>(
    selectStaleStatement,
  );
  for (const { workspaceId, key, envelopeIds } of stale) {
    const applied = await readApplied(pool, envelopeIds);
    const isLost = envelopeIds.some((id) => !applied.has(id));
    await pool.query({ text: eraseStaleStatement, values: [workspaceId, key, isLost] });
  }
}

/**
 * Does the work while nobody else does work on that import. Should the session be lost meanwhile, `stageEnvelopes` still
 * lets one of two go on.
 * @returns undefined: somebody else is at it
 */
export function aloneWithImport<T>(
  pool: Pool,
  { workspaceId, key }: ImportKey,
  work: () => Promise<T>,
): Promise<T | undefined> {
  const lock = {
    number: "hashtextextended($1::text || encode($2::bytea, 'hex'), 0)",
    values: [workspaceId, key],
    keepsAway: 'other imports of the file',
  };
  return aloneWith(pool, lock, work);
}

/** An import as a list shows it: nothing of what its rows say. */
export interface ListedImport extends Omit<ImportProgress, 'refusedBytes'> {
  id: string;
  workspace: string;
  workspaceId: string;
  key: Buffer;
  file: string;
  startedAt: Date;
  finishedAt: Date | null;
}

/** Files are imported by hand: the table is small. */
const listImportsStatement = `
  select
    imports.id,
    workspaces.name as workspace,
    imports.workspace_id as "workspaceId",
    imports.key,
    imports.file,
    imports.rows_done::float8 as rows,
    imports.accepted::float8 as accepted,
    imports.refused::float8 as refused,
    imports.started_at as "startedAt",
    imports.finished_at as "finishedAt"
  from imports
  join workspaces on workspaces.id = imports.workspace_id
  where ($1::uuid is null or imports.workspace_id = $1)
    and ($2::uuid is null or imports.id > $2)
    and ($3::uuid is null or imports.id = $3)
  order by imports.id
  limit $4`;

/** A page of the imports, the oldest first; or the one of an id. */
export async function listImports(
  pool: Pool,
  { workspaceId, after, id, limit }: { workspaceId?: string; after?: string; id?: string; limit: number },
): Promise<ListedImport[]> {
  const { rows } = await pool.query<ListedImport>({
    name: 'list-imports',
    text: listImportsStatement,
    values: [workspaceId ?? null, after ?? null, id ?? null, limit],
  });
  return rows;
}

/** By primary key. */
const dropImportStatement = `
  delete from imports where imports.workspace_id = $1::uuid and imports.key = $2::bytea`;

/** Forgets an import, with what lies in its outbox: the same file begins again from its first row. */
export async function dropImport(pool: Pool, dropped: ListedImport, actor: Actor): Promise<void> {
  const { workspaceId, key, id, file, rows } = dropped;
  await audited(pool, actor, async (tx) => {
    const { rowCount } = await tx.query({
      name: 'drop-import',
      text: dropImportStatement,
      values: [workspaceId, key],
    });
    const entry = {
      action: 'imports.drop',
      workspaceId,
      subject: { kind: 'import', id },
      detail: { file, rows },
    } as const;
    return { result: undefined, entries: rowCount === 1 ? [entry] : [] };
  });
}
