import type { Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import { NIL_UUID } from '../platform/ids.ts';
import type { Pool } from './database.ts';
import { isDistributed } from './distributed.ts';
import type { ActivityTable } from './erasures.ts';
import type { RowPosition } from './retention.ts';

export type ArchiveState = 'archiving' | 'verified' | 'removed' | 'restored' | 'replaced';

/** A month of one workspace and table. */
export interface ArchivedMonth {
  workspaceId: string;
  kind: ActivityTable;
  /** Month of acceptance in UTC, for example `2026-01`. */
  month: string;
}

/** A row of the archive index. */
export interface ArchiveFile extends ArchivedMonth {
  id: string;
  state: ArchiveState;
  /** Key in the archive. Null if the rows were deleted without an archive. */
  object: string | null;
  rows: number;
  least: string | null;
  greatest: string | null;
  /** Position of its last row. Null if an earlier release wrote the file, in id order. */
  last: RowPosition | null;
  checksum: string;
  bytes: number;
  sha256: string | null;
  /** Whether the file was restored and is still protected from retention runs. */
  held: boolean;
}

const columns = `archive_files.workspace_id as "workspaceId", archive_files.kind,
    to_char(archive_files.month, 'YYYY-MM') as month, archive_files.id, archive_files.state, archive_files.object,
    archive_files.rows, archive_files.least, archive_files.greatest, archive_files.checksum::text as checksum,
    case when archive_files.last_id is not null then
      json_build_object('profileId', archive_files.last_profile_id, 'id', archive_files.last_id) end as last,
    archive_files.bytes, archive_files.sha256,
    archive_files.state = 'restored' and archive_files.restored_until > now() as held`;

/** Reads a page in primary key order. */
const listFilesStatement = `
  select ${columns}
  from archive_files
  where ($1::uuid is null or archive_files.workspace_id = $1)
    and (archive_files.workspace_id, archive_files.id) > ($2::uuid, $3::uuid)
    and archive_files.state = any($4::text[])
  order by archive_files.workspace_id, archive_files.id
  limit $5::integer`;

const PAGE = 500;

/** Yields the files in these states, of one workspace or of all. */
export async function* listFiles(
  pool: Pool,
  states: readonly ArchiveState[],
  workspaceId?: string,
): AsyncGenerator<ArchiveFile> {
  let after = { workspaceId: NIL_UUID, id: NIL_UUID };
  for (;;) {
    const values = [workspaceId ?? null, after.workspaceId, after.id, states, PAGE];
    const { rows } = await pool.query<ArchiveFile>({ text: listFilesStatement, values });
    yield* rows;
    if (rows.length < PAGE) return;
    after = rows.at(-1)!;
  }
}

/** Reads by primary key. */
const filesOfMonthStatement = `
  select ${columns}
  from archive_files
  where archive_files.workspace_id = $1::uuid
    and archive_files.month = ($2::text || '-01')::date
    and archive_files.kind = $3::text
  order by archive_files.id`;

/** Returns every file of a month, in order of creation. */
export async function filesOfMonth(
  pool: Pool,
  { workspaceId, month, kind }: ArchivedMonth,
): Promise<ArchiveFile[]> {
  const values = [workspaceId, month, kind];
  const { rows } = await pool.query<ArchiveFile>({ text: filesOfMonthStatement, values });
  return rows;
}

const insertFileStatement = `
  insert into archive_files (workspace_id, month, kind, id, state, object, rows)
  values ($1::uuid, ($2::text || '-01')::date, $3::text, $4::uuid, $5::text, $6::text, $7::bigint)`;

/**
 * Records a file before it is written, so that no object is left without a row; or rows that were deleted
 * without an archive.
 */
export async function insertFile(
  pool: Pick<Pool, 'query'>,
  file: ArchivedMonth & { id: string; state: ArchiveState; object: string | null; rows?: number },
): Promise<void> {
  const { workspaceId, month, kind, id, state, object, rows = 0 } = file;
  await pool.query({
    text: insertFileStatement,
    values: [workspaceId, month, kind, id, state, object, rows],
  });
}

/** Updates by primary key. */
const verifyFileStatement = `
  update archive_files set state = $5::text, rows = $6::bigint, least = $7::uuid, greatest = $8::uuid,
    checksum = $9::numeric, bytes = $10::bigint, sha256 = $11::text, changed_at = now(),
    last_profile_id = $13::uuid, last_id = $14::uuid,
    restored_until = (
      select former.restored_until from archive_files as former
      where former.workspace_id = $1::uuid and former.month = ($2::text || '-01')::date and former.kind = $3::text
        and former.id = $12::uuid)
  where archive_files.workspace_id = $1::uuid and archive_files.month = ($2::text || '-01')::date
    and archive_files.kind = $3::text and archive_files.id = $4::uuid and archive_files.state = 'archiving'`;

/** Result of reading a file back. */
export interface VerifiedFile {
  rows: number;
  least: string | null;
  greatest: string | null;
  checksum: string;
  bytes: number;
  sha256: string;
}

/**
 * Records that a new file was read back successfully.
 *
 * @param former file that it replaces, and whose state it takes over
 */
export async function verifyFile(
  pool: Pick<Pool, 'query'>,
  file: ArchivedMonth & { id: string; last: RowPosition | null } & VerifiedFile,
  former?: Pick<ArchiveFile, 'id' | 'state'>,
): Promise<void> {
  const { workspaceId, month, kind, id, rows, least, greatest, last, checksum, bytes, sha256 } = file;
  const values = [
    ...[workspaceId, month, kind, id, former?.state ?? 'verified', rows, least, greatest, checksum],
    ...[bytes, sha256, former?.id ?? null, last?.profileId ?? null, last?.id ?? null],
  ];
  const { rowCount } = await pool.query({ text: verifyFileStatement, values });
  if (rowCount !== 1) throw new Error(`the file ${id} of the archive was discarded by another run`);
}

/** Updates by primary key. */
const setStateStatement = `
  update archive_files set state = $5::text, changed_at = now(),
    restored_until = now() + case when $5 = 'restored' then make_interval(days => $6::integer) end
  where archive_files.workspace_id = $1::uuid and archive_files.month = ($2::text || '-01')::date
    and archive_files.kind = $3::text and archive_files.id = $4::uuid`;

/** Sets the state of a file. @param days days for which a restored file is protected from retention runs */
export async function setFileState(
  pool: Pick<Pool, 'query'>,
  { workspaceId, month, kind, id }: ArchivedMonth & { id: string },
  { state, days = 0 }: { state: ArchiveState; days?: number },
): Promise<void> {
  await pool.query({ text: setStateStatement, values: [workspaceId, month, kind, id, state, days] });
}

/** Deletes by primary key. */
const removeFileStatement = `
  delete from archive_files
  where archive_files.workspace_id = $1::uuid and archive_files.month = ($2::text || '-01')::date
    and archive_files.kind = $3::text and archive_files.id = $4::uuid`;

/** Deletes a file from the index after its object was removed. */
export async function removeFile(
  pool: Pool,
  { workspaceId, month, kind, id }: ArchivedMonth & { id: string },
): Promise<void> {
  await pool.query({ text: removeFileStatement, values: [workspaceId, month, kind, id] });
}

/** Sums up the archived files of each workspace by primary key. */
const summarizeStatement = `
  select workspaces.id as "workspaceId", workspaces.name, policy.workspace_id is not null as own, policy.months,
    coalesce(sum(file.rows) filter (where file.object is not null), 0)::float8 as rows,
    coalesce(sum(file.bytes), 0)::float8 as bytes,
    count(distinct file.month) filter (where file.object is not null)::integer as archived,
    count(file.id) filter (where file.state in ('archiving', 'verified', 'replaced'))::integer as unfinished,
    to_char(min(file.month), 'YYYY-MM') as first, to_char(max(file.month), 'YYYY-MM') as last,
    (select archive_erasures.since from archive_erasures where archive_erasures.workspace_id = workspaces.id)
      as "deletesSince"
  from workspaces
  left join retention_policies as policy on policy.workspace_id = workspaces.id
  left join archive_files as file on file.workspace_id = workspaces.id
  where workspaces.id > $1::uuid
  group by workspaces.id, workspaces.name, policy.workspace_id, policy.months
  order by workspaces.id
  limit $2::integer`;

/** Variant for a distributed Postgres: sums up the files of all shards and then joins the workspaces. */
const summarizeDistributedStatement = `
  with page as materialized (
    select workspaces.id, workspaces.name from workspaces where workspaces.id > $1::uuid order by workspaces.id limit $2::integer
  ), policy as materialized (
    select retention_policies.workspace_id, retention_policies.months from retention_policies
  ), file as materialized (
    select archive_files.workspace_id,
      coalesce(sum(archive_files.rows) filter (where archive_files.object is not null), 0)::float8 as rows,
      coalesce(sum(archive_files.bytes), 0)::float8 as bytes,
      count(distinct archive_files.month) filter (where archive_files.object is not null)::integer as archived,
      count(archive_files.id) filter (where archive_files.state in ('archiving', 'verified', 'replaced'))::integer
        as unfinished,
      min(archive_files.month) as first, max(archive_files.month) as last
    from archive_files
    group by archive_files.workspace_id
  ), erasure as materialized (
    select archive_erasures.workspace_id, archive_erasures.since from archive_erasures
  )
  select page.id as "workspaceId", page.name, policy.workspace_id is not null as own, policy.months,
    coalesce(file.rows, 0)::float8 as rows, coalesce(file.bytes, 0)::float8 as bytes,
    coalesce(file.archived, 0) as archived, coalesce(file.unfinished, 0) as unfinished,
    to_char(file.first, 'YYYY-MM') as first, to_char(file.last, 'YYYY-MM') as last,
    erasure.since as "deletesSince"
  from page
  left join policy on policy.workspace_id = page.id
  left join file on file.workspace_id = page.id
  left join erasure on erasure.workspace_id = page.id
  order by page.id`;

/** A workspace with its retention and a summary of its archive. */
export interface RetentionOfWorkspace {
  workspaceId: string;
  name: string;
  /** Whether the workspace has its own setting. Then `months` is its value, and null means no limit. */
  own: boolean;
  months: number | null;
  rows: number;
  bytes: number;
  /** Number of archived months. */
  archived: number;
  /** Number of files that a run has not finished. */
  unfinished: number;
  first: string | null;
  last: string | null;
  /** Time of the first delete that has not been applied to the archive. */
  deletesSince: Date | null;
}

/** Returns a page of workspaces in id order. */
export async function summarizeRetention(
  pool: Pool,
  { after = NIL_UUID, limit }: { after?: string | undefined; limit: number },
): Promise<RetentionOfWorkspace[]> {
  const { rows } = await pool.query<RetentionOfWorkspace>({
    text: (await isDistributed(pool)) ? summarizeDistributedStatement : summarizeStatement,
    values: [after, limit],
  });
  return rows;
}

/**
 * Sets or removes a workspace's own retention.
 *
 * @param months null: no limit; undefined: use the default of the installation
 */
export async function setPolicy(
  tx: Pick<Prisma.TransactionClient, 'retentionPolicy'>,
  workspaceId: string,
  months: number | null | undefined,
): Promise<void> {
  const where = { workspaceId };
  if (months === undefined) await tx.retentionPolicy.deleteMany({ where });
  else {
    const update = { months, updatedAt: nowDate() };
    await tx.retentionPolicy.upsert({ where, create: { workspaceId, ...update }, update });
  }
}
