import type { Prisma } from '../generated/prisma/client.ts';
import type { Database, Pool } from './database.ts';

/** Maximum number of open exports per workspace. */
export const MAX_OPEN_EXPORTS = 100;

/** Days for which the result of an export is kept. */
const KEPT_DAYS = 30;

export interface NewSegmentExport {
  workspaceId: string;
  id: string;
  segmentId: string;
  objectPrefix: string;
  fields: string[];
  /** Names of the wanted custom attributes. Null: all or none, depending on `fields`. */
  attributes: string[] | null;
  outputFormat: 'zip' | 'gzip';
  /** Download URL of the file. Null if it is written to a bucket. */
  url: string | null;
  callback: string | null;
}

type ExportTarget = Pick<NewSegmentExport, 'objectPrefix' | 'url'>;

/**
 * Inserts unless the segment has an open export, or the workspace has `MAX_OPEN_EXPORTS`. Counts by the index
 * of open exports.
 */
const requestStatement = `
  insert into segment_exports (
    workspace_id, id, segment_id, object_prefix, fields, attributes, output_format, url, callback)
  select $1::uuid, $2::uuid, $3::uuid, $4::text, $5::text[], $6::text[], $7::text, $8::text, $9::text
  where (
    select count(*)
    from (
      select
      from segment_exports
      where segment_exports.workspace_id = $1::uuid and segment_exports.state = 'open'
      limit ${MAX_OPEN_EXPORTS}
    ) as open
  ) < ${MAX_OPEN_EXPORTS}
  on conflict do nothing
  returning segment_exports.object_prefix as "objectPrefix", segment_exports.url`;

/** Reads by primary key and by the index of open exports. */
const whyRejectedStatement = `
  select made.object_prefix as "objectPrefix", made.url, exists (
    select
    from segment_exports
    where segment_exports.workspace_id = $1::uuid
      and segment_exports.segment_id = $3::uuid
      and segment_exports.state = 'open') as "isRunning"
  from (select) as one
  left join segment_exports as made on made.workspace_id = $1::uuid and made.id = $2::uuid`;

/**
 * Records a requested export. A repeated request with the same id returns the first one.
 *
 * @returns `running` if an export of this segment is open; `many` if the workspace has the maximum number of
 * open exports
 */
export async function requestSegmentExport(
  pool: Pick<Pool, 'query'>,
  made: NewSegmentExport,
): Promise<ExportTarget | 'running' | 'many'> {
  const { workspaceId, id, segmentId, objectPrefix, fields, attributes, outputFormat, url, callback } = made;
  const { rows } = await pool.query<ExportTarget>({
    name: 'request-segment-export',
    text: requestStatement,
    values: [workspaceId, id, segmentId, objectPrefix, fields, attributes, outputFormat, url, callback],
  });
  if (rows[0]) return rows[0];
  const { rows: reasons } = await pool.query({
    name: 'why-no-segment-export',
    text: whyRejectedStatement,
    values: [workspaceId, id, segmentId],
  });
  const { isRunning, objectPrefix: earlier, url: earlierUrl } = reasons[0]!;
  if (earlier !== null) return { objectPrefix: earlier, url: earlierUrl };
  return isRunning ? 'running' : 'many';
}

/** State of the file of a download link. */
export interface Download {
  state: 'open' | 'ready' | 'failed';
  objectPrefix: string;
  expiresAt: Date | null;
}

/** Reads by primary key. */
const findDownloadStatement = `
  select segment_exports.state, segment_exports.object_prefix as "objectPrefix",
    case when segment_exports.expires_at > now() then segment_exports.expires_at end as "expiresAt"
  from segment_exports
  where segment_exports.workspace_id = $1::uuid and segment_exports.id = $2::uuid`;

/** Returns the export of a link. `expiresAt` is null if the link has expired. */
export async function findDownload(
  pool: Pool,
  { workspaceId, id }: { workspaceId: string; id: string },
): Promise<Download | undefined> {
  const values = [workspaceId, id];
  const { rows } = await pool.query<Download>({ name: 'find-download', text: findDownloadStatement, values });
  return rows[0];
}

/** Progress of an export. */
export interface ExportCounts {
  users: number;
  files: number;
  bytes: number;
}

/**
 * An export as the console shows it. Without the link, because anyone with the link can download the users.
 */
export interface ShownExport extends ExportCounts {
  id: string;
  segmentId: string;
  segmentName: string;
  objectPrefix: string;
  state: Download['state'];
  callback: string | null;
  lastError: string | null;
  requestedAt: Date;
  endedAt: Date | null;
  toldAt: Date | null;
  expiresAt: Date | null;
}

/** Columns that the console shows. */
const shownColumns = {
  ...{ id: true, segmentId: true, objectPrefix: true, state: true, callback: true, lastError: true },
  ...{ users: true, files: true, bytes: true },
  ...{ requestedAt: true, endedAt: true, toldAt: true, expiresAt: true },
} satisfies Prisma.SegmentExportSelect;

/** Returns exports of a workspace, newest first. Ids follow the times of the requests. */
export async function listExports(
  { prisma }: Pick<Database, 'prisma'>,
  workspaceId: string,
  { before, limit }: { before?: string | undefined; limit: number },
): Promise<ShownExport[]> {
  const rows = await prisma.segmentExport.findMany({
    where: { workspaceId, ...(before !== undefined && { id: { lt: before } }) },
    orderBy: [{ workspaceId: 'desc' }, { id: 'desc' }],
    select: shownColumns,
    take: limit,
  });
  const ids = [...new Set(rows.map(({ segmentId }) => segmentId))];
  const segments = await prisma.segment.findMany({
    where: { workspaceId, id: { in: ids } },
    select: { id: true, name: true },
  });
  const names = new Map(segments.map(({ id, name }) => [id, name]));
  return rows.map(({ state, users, bytes, ...row }) => ({
    ...{ ...row, state: state as Download['state'] },
    segmentName: names.get(row.segmentId) ?? row.segmentId,
    ...{ users: Number(users), bytes: Number(bytes) },
  }));
}

/** Reads by the index on the expiry. */
const listExpiredStatement = `
  select segment_exports.workspace_id::text as "workspaceId", segment_exports.id::text,
    segment_exports.segment_id::text as "segmentId", segment_exports.object_prefix as "objectPrefix",
    segment_exports.url, segment_exports.requested_at as "requestedAt"
  from segment_exports
  where segment_exports.expires_at < now() - $1::integer * interval '1 millisecond'
  order by segment_exports.expires_at
  limit $2::integer`;

export interface ExpiredExport {
  workspaceId: string;
  id: string;
  segmentId: string;
  objectPrefix: string;
  /** Null for a failed export whose files are in a bucket. */
  url: string | null;
  requestedAt: Date;
}

/**
 * Returns exports whose link expired, or that failed, at least `milliseconds` ago and whose files have not
 * been removed.
 */
export async function listExpired(
  pool: Pool,
  { milliseconds, limit }: { milliseconds: number; limit: number },
): Promise<ExpiredExport[]> {
  const values = [milliseconds, limit];
  const { rows } = await pool.query<ExpiredExport>({
    name: 'list-expired',
    text: listExpiredStatement,
    values,
  });
  return rows;
}

const noteRemovedStatement = `
  update segment_exports set expires_at = null
  where segment_exports.workspace_id = $1::uuid and segment_exports.id = $2::uuid`;

/** Records that the files were removed. */
export async function noteRemoved(
  pool: Pool,
  { workspaceId, id }: Pick<ExpiredExport, 'workspaceId' | 'id'>,
): Promise<void> {
  await pool.query({ name: 'note-removed', text: noteRemovedStatement, values: [workspaceId, id] });
}

/** Deletes by the index on the time of the request. */
const forgetStatement = `
  with old as (
    select segment_exports.workspace_id, segment_exports.id
    from segment_exports
    where segment_exports.requested_at < now() - interval '${KEPT_DAYS} days'
      and segment_exports.due_at is null and segment_exports.expires_at is null
    order by segment_exports.requested_at
    limit $1::integer
  )
  delete from segment_exports
  using old
  where segment_exports.workspace_id = old.workspace_id and segment_exports.id = old.id`;

/** Deletes some exports that were requested more than KEPT_DAYS ago and are complete. */
export async function forgetExports(pool: Pool, limit: number): Promise<void> {
  await pool.query({ name: 'forget-exports', text: forgetStatement, values: [limit] });
}

/** A segment export that failed and was not repeated. */
export interface FailedExport {
  workspaceId: string;
  workspace: string;
  segment: string;
  lastError: string | null;
  endedAt: Date;
}

/** Maximum number of failed exports that are listed, newest first. */
const MAX_FAILED = 20;

/** Reads by the index on the time of the request. A later export of a segment replaces an earlier one. */
const listFailedStatement = `
  select workspaces.id::text as "workspaceId", workspaces.name as workspace,
    coalesce(segments.name, segment_exports.segment_id::text) as segment,
    left(segment_exports.last_error, 200) as "lastError", segment_exports.ended_at as "endedAt"
  from segment_exports
  join workspaces on workspaces.id = segment_exports.workspace_id
  left join segments
    on segments.workspace_id = segment_exports.workspace_id and segments.id = segment_exports.segment_id
  where segment_exports.requested_at > now() - interval '2 days'
    and segment_exports.state = 'failed'
    and segment_exports.ended_at > now() - interval '1 day'
    and not exists (
      select from segment_exports as later
      where later.workspace_id = segment_exports.workspace_id and later.id > segment_exports.id
        and later.segment_id = segment_exports.segment_id
    )
  order by segment_exports.requested_at desc
  limit ${MAX_FAILED}`;

/** Lists the exports of the last day that failed and were not requested again. */
export async function listFailedExports(pool: Pick<Pool, 'query'>): Promise<FailedExport[]> {
  const { rows } = await pool.query<FailedExport>({ name: 'list-failed-exports', text: listFailedStatement });
  return rows;
}
