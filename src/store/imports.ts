import type { Json } from '../profile/json.ts';
import { type Actor, audited, auditedByPrisma } from './audit.ts';
import type { Database, Pool } from './database.ts';
import { type Lease, withAdvisoryLock } from './leases.ts';
import { readApplied } from './ledger.ts';
import { STAGED_DAYS, type StagedEnvelopes } from './staged-envelopes.ts';

/** Key of an import. */
export interface ImportKey {
  workspaceId: string;
  /** SHA-256. */
  key: Buffer;
}

/** Data that is stored when an import begins. */
interface NewImport extends ImportKey {
  id: string;
  /** File name as given on the command line. */
  file: string;
  /** SHA-256 of the file's content. */
  digest: Buffer;
  /** Options that determine how rows are read. */
  reading: Json;
}

/** Progress of an import. */
export interface ImportProgress {
  /** Processed rows. */
  rows: number;
  /** Enqueued objects. */
  accepted: number;
  /** Rejected rows. */
  refused: number;
  /** Size in bytes of the file of rejected rows. */
  refusedBytes: number;
}

export interface StoredImport extends NewImport, ImportProgress {
  startedAt: Date;
  finishedAt: Date | null;
  staged: unknown[] | null;
  /** Time at which rows that may not have been enqueued were erased. Null if the import can be resumed. */
  rowsErasedAt: Date | null;
}

/** Inserts by primary key. */
const insertImportStatement = `
  insert into imports (workspace_id, key, id, file, digest, reading)
  values ($1::uuid, $2::bytea, $3::uuid, $4::text, $5::bytea, $6::json)
  on conflict (workspace_id, key) do nothing`;

/** Reads by primary key. */
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

/** Returns a stored import. */
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

/** Begins an import, unless one with that key exists. */
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

/** Updates by primary key. If two processes resume the same import, only one finds the expected row count. */
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
 * Advances an import past the next rows. Previously staged envelopes must be in the lanes. The new ones are
 * enqueued after this has committed.
 *
 * @param expected processed rows before this step
 * @returns false if another process has advanced the import
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

/** Updates by primary key. */
const finishImportStatement = `
  update imports set staged = null, envelope_ids = '{}', finished_at = now()
  where imports.workspace_id = $1::uuid
    and imports.key = $2::bytea
    and imports.rows_done = $3::bigint
    and imports.finished_at is null`;

/**
 * Finishes an import whose envelopes are all enqueued.
 *
 * @returns false if another process has advanced the import
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

/** Scans the table, which is small because operators start imports by hand. */
const selectStaleStatement = `
  select imports.workspace_id as "workspaceId", imports.key, imports.envelope_ids as "envelopeIds"
  from imports
  where imports.staged is not null
    and coalesce(imports.staged_at, imports.started_at) < now() - interval '${STAGED_DAYS} days'
  limit 100`;

/** Updates by primary key. */
const eraseStaleStatement = `
  update imports
  set staged = null, envelope_ids = '{}', rows_erased_at = erasure.at
  from (select case when $3::boolean then now() end as at) as erasure
  where imports.workspace_id = $1::uuid
    and imports.key = $2::bytea
    and coalesce(imports.staged_at, imports.started_at) < now() - interval '${STAGED_DAYS} days'`;

/**
 * Erases the staged rows of imports that were interrupted at least `STAGED_DAYS` ago. An import whose staged
 * rows were applied can still be resumed.
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
 * Runs `work` while holding the lock of the import. If the session is lost during the work, `stageEnvelopes`
 * still lets only one process continue.
 *
 * @returns undefined if another process holds the lock
 */
export function withImportLock<T>(
  pool: Pool,
  { workspaceId, key }: ImportKey,
  work: (lease: Lease) => Promise<T>,
): Promise<T | undefined> {
  const lock = {
    number: "hashtextextended($1::text || encode($2::bytea, 'hex'), 0)",
    values: [workspaceId, key],
    excludes: 'other imports of the file',
  };
  return withAdvisoryLock(pool, lock, work);
}

/** An import in a list, without the content of its rows. */
export interface ListedImport extends Omit<ImportProgress, 'refusedBytes'> {
  id: string;
  workspace: string;
  workspaceId: string;
  key: Buffer;
  file: string;
  startedAt: Date;
  finishedAt: Date | null;
}

interface WantedImports {
  workspaceId?: string | undefined;
  id?: string | undefined;
  /** Id of the import after which the page begins, oldest first. */
  after?: string | undefined;
  /** Id of the import before which the page begins, newest first. */
  before?: string | undefined;
  newestFirst?: boolean;
  limit: number;
}

/** Returns a page of imports, oldest first unless `newestFirst` is set, or the import with a given id. */
export async function listImports(
  { prisma }: Pick<Database, 'prisma'>,
  { workspaceId, after, before, newestFirst = false, id, limit }: WantedImports,
): Promise<ListedImport[]> {
  const from = newestFirst ? before : after;
  const range = from !== undefined && { [newestFirst ? 'lt' : 'gt']: from };
  const rows = await prisma.import.findMany({
    where: {
      ...(workspaceId !== undefined && { workspaceId }),
      id: { ...range, ...(id !== undefined && { equals: id }) },
    },
    orderBy: { id: newestFirst ? 'desc' : 'asc' },
    select: {
      ...{ id: true, workspace: { select: { name: true } }, workspaceId: true, key: true, file: true },
      ...{ rowsDone: true, accepted: true, refused: true, startedAt: true, finishedAt: true },
    },
    take: limit,
  });
  return rows.map(({ workspace, key, rowsDone, accepted, refused, ...row }) => ({
    ...{ ...row, workspace: workspace.name, key: Buffer.from(key) },
    ...{ rows: Number(rowsDone), accepted: Number(accepted), refused: Number(refused) },
  }));
}

/** Deletes an import and its outbox. The same file then starts again from its first row. */
export async function dropImport(
  { prisma }: Pick<Database, 'prisma'>,
  { workspaceId, key, id, file, rows }: ListedImport,
  actor: Actor,
): Promise<void> {
  await auditedByPrisma(prisma, actor, async (tx) => {
    const { count } = await tx.import.deleteMany({ where: { workspaceId, key: new Uint8Array(key) } });
    const subject = { kind: 'import', id };
    const entry = { action: 'imports.drop' as const, workspaceId, subject, detail: { file, rows } };
    return { result: undefined, entries: count === 1 ? [entry] : [] };
  });
}

/** An import that was begun and does not continue. */
export interface StoppedImport {
  workspaceId: string;
  workspace: string;
  file: string;
  rows: number;
  stoppedAt: Date;
}

/** Imports that are listed, the latest. */
const MAX_STOPPED = 20;

/** Reads the whole table, which has a row for each file. */
const listStoppedStatement = `
  select workspaces.id::text as "workspaceId", workspaces.name as workspace, imports.file,
    imports.rows_done::float8 as rows,
    coalesce(imports.staged_at, imports.started_at) as "stoppedAt"
  from imports
  join workspaces on workspaces.id = imports.workspace_id
  where imports.finished_at is null and imports.rows_erased_at is null
    and coalesce(imports.staged_at, imports.started_at) < now() - make_interval(secs => $1::integer)
  order by imports.started_at desc
  limit ${MAX_STOPPED}`;

/** Lists the imports that were begun, and have done nothing for so many seconds. */
export async function listStoppedImports(
  pool: Pick<Pool, 'query'>,
  seconds: number,
): Promise<StoppedImport[]> {
  const { rows } = await pool.query<StoppedImport>({
    ...{ name: 'list-stopped-imports', text: listStoppedStatement, values: [seconds] },
  });
  return rows;
}
