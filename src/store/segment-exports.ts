import { MAX_UUID } from '../platform/ids.ts';
import type { Pool } from './database.ts';

/** Exports of one workspace that are open at a time. */
export const MAX_OPEN_EXPORTS = 100;

/** Days that is known what became of an export. */
const KEPT_DAYS = 30;

export interface NewSegmentExport {
  workspaceId: string;
  id: string;
  segmentId: string;
  objectPrefix: string;
  fields: string[];
  /** Names of custom attributes that are wanted alone; null: all, or none. */
  attributes: string[] | null;
  outputFormat: 'zip' | 'gzip';
  /** Where the file will be downloaded; null: it goes into a bucket. */
  url: string | null;
  callback: string | null;
}

type Told = Pick<NewSegmentExport, 'objectPrefix' | 'url'>;

/** At most one of a segment is open, and `MAX_OPEN_EXPORTS` of the workspace: by the index of those that are. */
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

/** By primary key, and by the index of open ones. */
const whyNotStatement = `
  select made.object_prefix as "objectPrefix", made.url, exists (
    select
    from segment_exports
    where segment_exports.workspace_id = $1::uuid
      and segment_exports.segment_id = $3::uuid
      and segment_exports.state = 'open') as "isRunning"
  from (select) as one
  left join segment_exports as made on made.workspace_id = $1::uuid and made.id = $2::uuid`;

/**
 * Writes down that an export is wanted; whoever asks again under the same id gets what was made then.
 * @returns `running`: one of this segment is open; `many`: as many of the workspace as may be
 */
export async function requestSegmentExport(
  pool: Pool,
  made: NewSegmentExport,
): Promise<Told | 'running' | 'many'> {
  const { workspaceId, id, segmentId, objectPrefix, fields, attributes, outputFormat, url, callback } = made;
  const { rows } = await pool.query<Told>({
    name: 'request-segment-export',
    text: requestStatement,
    values: [workspaceId, id, segmentId, objectPrefix, fields, attributes, outputFormat, url, callback],
  });
  if (rows[0]) return rows[0];
  const { rows: reasons } = await pool.query({
    name: 'why-no-segment-export',
    text: whyNotStatement,
    values: [workspaceId, id, segmentId],
  });
  const { isRunning, objectPrefix: earlier, url: earlierUrl } = reasons[0]!;
  if (earlier !== null) return { objectPrefix: earlier, url: earlierUrl };
  return isRunning ? 'running' : 'many';
}

/** What a link has behind it. */
export interface Download {
  state: 'open' | 'ready' | 'failed';
  objectPrefix: string;
  expiresAt: Date | null;
}

/** By primary key. */
const findDownloadStatement = `
  select segment_exports.state, segment_exports.object_prefix as "objectPrefix",
    case when segment_exports.expires_at > now() then segment_exports.expires_at end as "expiresAt"
  from segment_exports
  where segment_exports.workspace_id = $1::uuid and segment_exports.id = $2::uuid`;

/** An export that has a link; `expiresAt` is null where it is over. */
export async function findDownload(
  pool: Pool,
  { workspaceId, id }: { workspaceId: string; id: string },
): Promise<Download | undefined> {
  const values = [workspaceId, id];
  const { rows } = await pool.query<Download>({ name: 'find-download', text: findDownloadStatement, values });
  return rows[0];
}

/** What has been written of an export. */
export interface ExportCounts {
  users: number;
  files: number;
  bytes: number;
}

/** An export as people see it: without its link, which opens the users to whoever has it. */
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

/** By the end of the workspace's part of the primary key: ids follow the times of the requests. */
const listStatement = `
  select
    segment_exports.id::text, segment_exports.segment_id::text as "segmentId",
    coalesce(segments.name, segment_exports.segment_id::text) as "segmentName",
    segment_exports.object_prefix as "objectPrefix", segment_exports.state, segment_exports.callback,
    segment_exports.users::double precision, segment_exports.files, segment_exports.bytes::double precision,
    segment_exports.last_error as "lastError", segment_exports.requested_at as "requestedAt",
    segment_exports.ended_at as "endedAt", segment_exports.told_at as "toldAt",
    segment_exports.expires_at as "expiresAt"
  from segment_exports
  left join segments
    on segments.workspace_id = segment_exports.workspace_id and segments.id = segment_exports.segment_id
  where segment_exports.workspace_id = $1::uuid and segment_exports.id < $2::uuid
  order by segment_exports.workspace_id desc, segment_exports.id desc
  limit $3::integer`;

/** Exports of a workspace, the newest first. */
export async function listExports(
  pool: Pool,
  workspaceId: string,
  { before = MAX_UUID, limit }: { before?: string | undefined; limit: number },
): Promise<ShownExport[]> {
  const values = [workspaceId, before, limit];
  const { rows } = await pool.query<ShownExport>({ name: 'list-exports', text: listStatement, values });
  return rows;
}

/** By the index on the expiry. */
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
  /** Null: its files are in a bucket, and it has failed. */
  url: string | null;
  requestedAt: Date;
}

/** Exports whose link has opened nothing for so long, or that failed then, and whose files are there yet. */
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

/** The file is there no more. */
export async function noteRemoved(
  pool: Pool,
  { workspaceId, id }: Pick<ExpiredExport, 'workspaceId' | 'id'>,
): Promise<void> {
  await pool.query({ name: 'note-removed', text: noteRemovedStatement, values: [workspaceId, id] });
}

/** By the index on the time of the request. */
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

/** Some of those that nobody asks for any more. */
export async function forgetExports(pool: Pool, limit: number): Promise<void> {
  await pool.query({ name: 'forget-exports', text: forgetStatement, values: [limit] });
}
