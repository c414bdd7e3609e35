import type { Json } from '../profile/json.ts';
import { integerArray, jsonArray, textArray, timeArray, uuidArray } from './arrays.ts';
import type { Database, Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

/** Days for which refused objects are kept. */
export const KEPT_DAYS = 30;

/** Refused objects of one workspace and hour that have the same cause. */
export interface RefusedGroup {
  workspaceId: string;
  /** The full hour in which the requests arrived. */
  hour: Date;
  reason: string;
  /** Empty if the error text names no field. */
  field: string;
  /** Id of the endpoint. Empty in the group for objects that had no room in a group of their own. */
  operation: string;
  /** Name of the request's array. Empty in that group as well. */
  inputArray: string;
  /** Id of the API key. NIL_UUID in that group. */
  keyId: string;
  objects: number;
  lastRequestId: string;
  /** Id of the request that opened the group, from which the sample is taken. */
  sampleRequestId: string;
  /** The shape of a refused object, without values. Absent if the store has one already. */
  sample: object | undefined;
}

/** Upserts in primary key order, so that two web processes lock the rows in the same order. */
const addRefusedObjectsStatement = withCitusForm(`
  insert into refused_objects (workspace_id, hour, reason, field, operation, input_array, api_key_id, objects,
    last_request_id, sample_request_id, sample)
  select given.workspace_id, given.hour, given.reason, given.field, given.operation, given.input_array, given.api_key_id,
    given.objects, given.last_request_id, given.sample_request_id, given.sample
  from unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::integer[],
    $9::uuid[], $10::uuid[], $11::jsonb[])
    as given (workspace_id, hour, reason, field, operation, input_array, api_key_id, objects, last_request_id,
      sample_request_id, sample)
  order by given.workspace_id, given.reason, given.operation, given.input_array, given.field, given.api_key_id, given.hour
  on conflict (workspace_id, reason, operation, input_array, field, api_key_id, hour) do update set
    objects = refused_objects.objects + excluded.objects,
    last_request_id = greatest(refused_objects.last_request_id, excluded.last_request_id),
    sample = coalesce(refused_objects.sample, excluded.sample)`);

/** Adds to the counts of groups. A group may occur only once. */
export async function addRefusedObjects(pool: Pool, groups: readonly RefusedGroup[]): Promise<void> {
  if (groups.length === 0) return;
  const ofWorkspace = { given: groups, workspaceOf: ({ workspaceId }: RefusedGroup) => workspaceId };
  await forEachWorkspace(pool, ofWorkspace, async (some) => {
    const rows = [...some];
    await pool.query({
      name: 'add-refused-objects',
      text: addRefusedObjectsStatement,
      values: [
        uuidArray(rows, (row) => row.workspaceId),
        timeArray(rows, (row) => row.hour.toISOString()),
        textArray(rows, (row) => row.reason),
        textArray(rows, (row) => row.field),
        textArray(rows, (row) => row.operation),
        textArray(rows, (row) => row.inputArray),
        uuidArray(rows, (row) => row.keyId),
        integerArray(rows, (row) => row.objects),
        uuidArray(rows, (row) => row.lastRequestId),
        uuidArray(rows, (row) => row.sampleRequestId),
        jsonArray(rows, (row) => row.sample),
      ],
    });
    return [];
  });
}

/** A refused object of a request. */
export interface ListedRefusal {
  inputArray: string;
  index: number;
  reason: string;
  field: string;
}

/** A request that had refused objects. */
export interface RefusedRequest {
  workspaceId: string;
  requestId: string;
  keyId: string;
  operation: string;
  /** Number of its objects that were added to the lanes; 0 in rows of earlier releases. */
  accepted: number;
  /** Number of its refused objects. */
  rejected: number;
  /** The first of its refused objects. */
  objects: ListedRefusal[];
}

/** Inserts by primary key. Existing requests are not changed. */
const addRefusedRequestsStatement = withCitusForm(`
  insert into refused_requests (workspace_id, request_id, api_key_id, operation, accepted, rejected, objects)
  select given.workspace_id, given.request_id, given.api_key_id, given.operation, given.accepted, given.rejected,
    given.objects
  from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::integer[], $6::integer[], $7::jsonb[])
    as given (workspace_id, request_id, api_key_id, operation, accepted, rejected, objects)
  order by given.workspace_id, given.request_id
  on conflict (workspace_id, request_id) do nothing`);

export async function addRefusedRequests(pool: Pool, requests: readonly RefusedRequest[]): Promise<void> {
  if (requests.length === 0) return;
  const ofWorkspace = { given: requests, workspaceOf: ({ workspaceId }: RefusedRequest) => workspaceId };
  await forEachWorkspace(pool, ofWorkspace, async (some) => {
    const rows = [...some];
    await pool.query({
      name: 'add-refused-requests',
      text: addRefusedRequestsStatement,
      values: [
        uuidArray(rows, (row) => row.workspaceId),
        uuidArray(rows, (row) => row.requestId),
        uuidArray(rows, (row) => row.keyId),
        textArray(rows, (row) => row.operation),
        integerArray(rows, (row) => row.accepted),
        integerArray(rows, (row) => row.rejected),
        jsonArray(rows, (row) => row.objects),
      ],
    });
    return [];
  });
}

/**
 * Returns the refused objects of a request. Undefined if it had none, or if the request is no longer stored.
 */
export async function findRefusedRequest(
  { prisma }: Pick<Database, 'prisma'>,
  workspaceId: string,
  requestId: string,
): Promise<RefusedRequest | undefined> {
  const row = await prisma.refusedRequest.findUnique({
    where: { workspaceId_requestId: { workspaceId, requestId } },
  });
  if (!row) return undefined;
  const { apiKeyId: keyId, objects, ...rest } = row;
  return { ...rest, keyId, objects: objects as unknown as ListedRefusal[] };
}

const listedColumns = `
  refused_requests.request_id as "requestId", refused_requests.api_key_id as "keyId",
  refused_requests.operation, refused_requests.accepted, refused_requests.rejected,
  array(
    select distinct listed.object ->> 'inputArray'
    from jsonb_array_elements(refused_requests.objects) as listed (object)
  ) as arrays`;

/** Reads the primary key backwards. */
const listRefusedRequestsStatement = `
  select ${listedColumns}
  from refused_requests
  where refused_requests.workspace_id = $1::uuid and refused_requests.request_id < $2::uuid
  order by refused_requests.workspace_id desc, refused_requests.request_id desc
  limit $3::integer`;

/** A request with refused objects, in a list. */
interface ListedRefusedRequest
  extends Pick<RefusedRequest, 'requestId' | 'keyId' | 'operation' | 'accepted' | 'rejected'> {
  arrays: string[];
}

/** Returns the stored requests of a workspace with refused objects, latest first. */
export async function listRefusedRequests(
  pool: Pool,
  { workspaceId, before, limit }: { workspaceId: string; before: string; limit: number },
): Promise<ListedRefusedRequest[]> {
  const { rows } = await pool.query<ListedRefusedRequest>({
    name: 'list-refused-requests',
    text: listRefusedRequestsStatement,
    values: [workspaceId, before, limit],
  });
  return rows;
}

/** Reads by primary key. */
const findRefusedRequestsStatement = `
  select ${listedColumns}
  from unnest($2::uuid[]) as given (request_id)
  join refused_requests
    on refused_requests.workspace_id = $1::uuid and refused_requests.request_id = given.request_id
  order by refused_requests.request_id desc`;

/** Returns the requests of the list that had refused objects and are stored, latest first. */
export async function findRefusedRequests(
  pool: Pool,
  workspaceId: string,
  requestIds: readonly string[],
): Promise<ListedRefusedRequest[]> {
  if (requestIds.length === 0) return [];
  const { rows } = await pool.query<ListedRefusedRequest>({
    name: 'find-refused-requests',
    text: findRefusedRequestsStatement,
    values: [workspaceId, requestIds],
  });
  return rows;
}

/** Fields that identify a cause in a workspace. */
export type RefusalName = Pick<
  RefusedGroup,
  'workspaceId' | 'reason' | 'field' | 'operation' | 'inputArray' | 'keyId'
>;

/** Total of one cause over several hours. */
export interface RefusalSum extends RefusalName {
  objects: number;
  lastRequestId: string;
}

/** Causes per page. */
const SHOWN_CAUSES = 100;

/**
 * Maximum number of rows that one page sums up, divided evenly between the workspaces, and the minimum for
 * each workspace.
 */
const MAX_SUMMED = 20_000;
const MIN_SUMMED = 50;

/**
 * Reads the index refused_objects_workspace_hour of each workspace from its end, up to the limit, and adds up the rows
 * that have the reason and the key. `looked` counts all rows that were read. UUIDs are compared as text, which has the
 * same order, because Postgres before 18 has no max(uuid).
 */
const sumStatement = (columns: string, group: string) => `
  select sums.*
  from (
    select
      kept.workspace_id as "workspaceId", ${columns} kept.api_key_id as "keyId",
      (sum(kept.objects) filter (where kept.is_wanted))::float8 as objects,
      (max(kept.last_request_id::text) filter (where kept.is_wanted)) as "lastRequestId",
      max(max(kept.number)) over () as looked
    from unnest($1::uuid[]) as wanted (workspace_id)
    cross join lateral (
      select page.*, row_number() over () as number,
        ($3::text is null or page.reason = $3::text) and ($5::uuid is null or page.api_key_id = $5::uuid) as is_wanted
      from (
        select refused_objects.*
        from refused_objects
        where refused_objects.workspace_id = wanted.workspace_id
          and refused_objects.hour >= $2::timestamptz
        order by refused_objects.workspace_id desc, refused_objects.hour desc
        limit $4::integer + 1
      ) as page
    ) as kept
    group by kept.workspace_id, ${group} kept.api_key_id
  ) as sums
  where sums.objects > 0
  order by sums.objects desc, sums."lastRequestId" desc
  limit ${SHOWN_CAUSES} + 1`;

const sumRefusedObjectsStatement = withCitusForm(
  sumStatement(
    'kept.reason, kept.field, kept.operation, kept.input_array as "inputArray",',
    'kept.reason, kept.field, kept.operation, kept.input_array,',
  ),
);
const sumByKeyStatement = withCitusForm(sumStatement('', ''));

/** Filter of a list of refused objects. */
interface RefusalsPage {
  workspaceIds: readonly string[];
  since: Date;
  /** Reason and id of the API key to filter by. */
  reason?: string | undefined;
  keyId?: string | undefined;
}

/**
 * Returns causes with the most refused objects first. `isPart` means that not all causes are listed, or that
 * only the latest rows of a workspace were summed up.
 */
export async function sumRefusedObjects(
  pool: Pool,
  page: RefusalsPage,
): Promise<{ causes: RefusalSum[]; isPart: boolean }> {
  const statement = { name: 'sum-refused-objects', text: sumRefusedObjectsStatement };
  const { sums, isPart } = await sumUp<RefusalSum>(pool, statement, page);
  return { causes: sums, isPart };
}

/** Total of one API key. */
export type KeySum = Pick<RefusalSum, 'workspaceId' | 'keyId' | 'objects' | 'lastRequestId'>;

/** Returns the API keys with the most refused objects first, from the same rows as `sumRefusedObjects`. */
export async function sumRefusedByKey(pool: Pool, page: RefusalsPage): Promise<KeySum[]> {
  const statement = { name: 'sum-refused-by-key', text: sumByKeyStatement };
  return (await sumUp<KeySum>(pool, statement, page)).sums;
}

async function sumUp<Sum extends KeySum>(
  pool: Pool,
  statement: { name: string; text: string },
  { workspaceIds, since, reason, keyId }: RefusalsPage,
): Promise<{ sums: Sum[]; isPart: boolean }> {
  if (workspaceIds.length === 0) return { sums: [], isPart: false };
  const limit = Math.max(MIN_SUMMED, Math.floor(MAX_SUMMED / workspaceIds.length));
  const ofWorkspace = { given: workspaceIds, workspaceOf: (id: string) => id };
  const rows = await forEachWorkspace(pool, ofWorkspace, async (some) => {
    const values = [some, since.toISOString(), reason ?? null, limit, keyId ?? null];
    return (await pool.query<Sum & { looked: string }>({ ...statement, values })).rows;
  });
  const sums = rows
    .map(({ looked: _, ...sum }) => sum as unknown as Sum)
    .sort((one, other) => other.objects - one.objects);
  return {
    sums: sums.slice(0, SHOWN_CAUSES),
    isPart: sums.length > SHOWN_CAUSES || rows.some(({ looked }) => Number(looked) > limit),
  };
}

/** Hours of one cause that a page shows. */
const SHOWN_HOURS = 100;

/** Refused objects of one cause in one hour. */
export type RefusedHour = Pick<RefusedGroup, 'hour' | 'objects' | 'lastRequestId' | 'sampleRequestId'> & {
  sample: Json | null;
};

/** Returns the hours of one cause, latest first. */
export async function listRefusedHours(
  { prisma }: Pick<Database, 'prisma'>,
  { workspaceId, reason, operation, inputArray, field, keyId }: RefusalName,
): Promise<RefusedHour[]> {
  const rows = await prisma.refusedObject.findMany({
    where: { workspaceId, reason, operation, inputArray, field, apiKeyId: keyId },
    orderBy: { hour: 'desc' },
    select: { hour: true, objects: true, lastRequestId: true, sampleRequestId: true, sample: true },
    take: SHOWN_HOURS,
  });
  return rows.map(({ objects, sample, ...row }) => ({
    ...{ ...row, objects: Number(objects) },
    sample: sample as Json | null,
  }));
}

/** Maximum number of rows that a count of the whole installation adds up. */
const MAX_COUNTED = 100_000;

/**
 * Reads the index refused_objects_sample up to the limit. The id of a sample's request starts with a time in
 * the row's hour.
 */
const countRefusedStatement = `
  select
    coalesce(sum(recent.objects), 0)::float8 as objects,
    extract(epoch from now() - (date_trunc('hour', now(), 'UTC') - interval '1 hour'))::float8 as seconds
  from (
    select refused_objects.objects
    from refused_objects
    where refused_objects.sample_request_id >= uuid_v7_floor(date_trunc('hour', now(), 'UTC') - interval '1 hour')
    limit ${MAX_COUNTED}
  ) as recent`;

/**
 * Returns the refused objects of the whole installation since the start of the previous hour, and the seconds
 * since then.
 */
export async function countRefused(pool: Pool): Promise<{ objects: number; seconds: number }> {
  const { rows } = await pool.query<{ objects: number; seconds: number }>({
    name: 'count-refused-objects',
    text: countRefusedStatement,
  });
  return rows[0]!;
}

/** Reads the first entry of the index refused_objects_sample. */
const oldestHourStatement = `
  select refused_objects.hour
  from refused_objects
  where refused_objects.sample_request_id
    < uuid_v7_floor(date_trunc('hour', now(), 'UTC') - interval '${KEPT_DAYS} days')
  order by refused_objects.sample_request_id
  limit 1`;

/** Deletes by the index refused_objects_sample. */
const forgetObjectsStatement = `
  delete from refused_objects
  where refused_objects.sample_request_id < uuid_v7_floor($1::timestamptz + interval '1 hour')`;

/** Deletes by the index refused_requests_id. Ids start with their time. */
const forgetRequestsStatement = `
  delete from refused_requests
  where refused_requests.request_id < uuid_v7_floor($1::timestamptz + interval '1 hour')`;

/** Deletes refused objects older than 30 days, one hour of them at a time. */
export async function forgetRefusedObjects(pool: Pool): Promise<void> {
  for (;;) {
    const { rows } = await pool.query<{ hour: Date }>(oldestHourStatement);
    const [oldest] = rows;
    if (!oldest) return;
    await pool.query(forgetRequestsStatement, [oldest.hour]);
    await pool.query(forgetObjectsStatement, [oldest.hour]);
  }
}
