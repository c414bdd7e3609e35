import type { Json } from '../profile/json.ts';
import { integerArray, jsonArray, textArray, timeArray, uuidArray } from './arrays.ts';
import type { Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';

/** Days for which refused objects are kept. */
export const KEPT_DAYS = 30;

/** Refused objects of one workspace and hour that have the same cause. */
export interface RefusedGroup {
  workspaceId: string;
  /** The full hour in which the requests arrived. */
  hour: Date;
  reason: string;
  /** Empty: the error text names no field. */
  field: string;
  /** Id of the endpoint. Empty in the group that holds what had no room in a group of its own. */
  operation: string;
  /** Name of the request's array; empty likewise. */
  inputArray: string;
  /** The API key; NIL_UUID likewise. */
  keyId: string;
  objects: number;
  lastRequestId: string;
  /** The request that opened the group and that the sample is from. */
  sampleRequestId: string;
  /** The shape of a refused object, without values. Absent if the store has one already. */
  sample: object | undefined;
}

/** Upserts by primary key; sorted, so that two web processes lock the rows in one order. */
const addRefusedObjectsStatement = `
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
    sample = coalesce(refused_objects.sample, excluded.sample)`;

/** Adds to the counts of groups. Each group may be in the list once. */
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
  /** Number of its refused objects. */
  rejected: number;
  /** The first of them. */
  objects: ListedRefusal[];
}

/** By primary key. A request that is there already stays as it is. */
const addRefusedRequestsStatement = `
  insert into refused_requests (workspace_id, request_id, api_key_id, operation, rejected, objects)
  select given.workspace_id, given.request_id, given.api_key_id, given.operation, given.rejected, given.objects
  from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::integer[], $6::jsonb[])
    as given (workspace_id, request_id, api_key_id, operation, rejected, objects)
  order by given.workspace_id, given.request_id
  on conflict (workspace_id, request_id) do nothing`;

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
        integerArray(rows, (row) => row.rejected),
        jsonArray(rows, (row) => row.objects),
      ],
    });
    return [];
  });
}

/** By primary key. */
const findRefusedRequestStatement = `
  select refused_requests.workspace_id as "workspaceId", refused_requests.request_id as "requestId",
    refused_requests.api_key_id as "keyId", refused_requests.operation, refused_requests.rejected,
    refused_requests.objects
  from refused_requests
  where refused_requests.workspace_id = $1::uuid and refused_requests.request_id = $2::uuid`;

/** The refused objects of a request; undefined: it had none, or it is not among the requests that are kept. */
export async function findRefusedRequest(
  pool: Pool,
  workspaceId: string,
  requestId: string,
): Promise<RefusedRequest | undefined> {
  const { rows } = await pool.query<RefusedRequest>({
    name: 'find-refused-request',
    text: findRefusedRequestStatement,
    values: [workspaceId, requestId],
  });
  return rows[0];
}

/** What tells causes of one workspace apart. */
export type RefusalName = Pick<
  RefusedGroup,
  'workspaceId' | 'reason' | 'field' | 'operation' | 'inputArray' | 'keyId'
>;

/** One cause, over several hours. */
export interface RefusalSum extends RefusalName {
  objects: number;
  lastRequestId: string;
}

/** Causes of a page. */
const SHOWN_CAUSES = 100;

/** Rows that one page sums up, with an even share for each workspace, and at least so many of each. */
const MAX_SUMMED = 20_000;
const MIN_SUMMED = 50;

/**
 * Reads the index refused_objects_workspace_hour of each workspace from its end, as far as the limit. The text order of
 * UUIDs is their order; Postgres before 18 has no max of uuid.
 */
const sumRefusedObjectsStatement = `
  select causes.*
  from (
    select
      kept.workspace_id as "workspaceId", kept.reason, kept.field, kept.operation, kept.input_array as "inputArray",
      kept.api_key_id as "keyId", sum(kept.objects)::float8 as objects,
      max(kept.last_request_id::text) as "lastRequestId", max(max(kept.number)) over () as looked
    from unnest($1::uuid[]) as wanted (workspace_id)
    cross join lateral (
      select page.*, row_number() over () as number
      from (
        select refused_objects.*
        from refused_objects
        where refused_objects.workspace_id = wanted.workspace_id
          and refused_objects.hour >= $2::timestamptz
        order by refused_objects.workspace_id desc, refused_objects.hour desc
        limit $4::integer + 1
      ) as page
    ) as kept
    group by kept.workspace_id, kept.reason, kept.field, kept.operation, kept.input_array, kept.api_key_id
  ) as causes
  where $3::text is null or causes.reason = $3::text
  order by causes.objects desc, causes."lastRequestId" desc
  limit ${SHOWN_CAUSES} + 1`;

/** What refused objects are listed by. */
export interface RefusalsPage {
  workspaceIds: readonly string[];
  since: Date;
  /** Only those with this reason. */
  reason?: string | undefined;
}

/** Causes with the most refused objects first. `isPart`: of some workspace only the latest rows were summed up. */
export async function sumRefusedObjects(
  pool: Pool,
  { workspaceIds, since, reason }: RefusalsPage,
): Promise<{ causes: RefusalSum[]; isPart: boolean }> {
  if (workspaceIds.length === 0) return { causes: [], isPart: false };
  const most = Math.max(MIN_SUMMED, Math.floor(MAX_SUMMED / workspaceIds.length));
  const ofWorkspace = { given: workspaceIds, workspaceOf: (id: string) => id };
  const rows = await forEachWorkspace(pool, ofWorkspace, async (some) => {
    const found = await pool.query<RefusalSum & { looked: string }>({
      name: 'sum-refused-objects',
      text: sumRefusedObjectsStatement,
      values: [some, since.toISOString(), reason ?? null, most],
    });
    return found.rows;
  });
  const causes = rows
    .map(({ looked: _, ...cause }) => cause)
    .sort((one, other) => other.objects - one.objects);
  return {
    causes: causes.slice(0, SHOWN_CAUSES),
    isPart: causes.length > SHOWN_CAUSES || rows.some(({ looked }) => Number(looked) > most),
  };
}

/** Hours of one cause that a page shows. */
const SHOWN_HOURS = 100;

/** By the primary key, from its end: a row per hour. */
const listHoursStatement = `
  select refused_objects.hour, refused_objects.objects::float8 as objects,
    refused_objects.last_request_id as "lastRequestId", refused_objects.sample_request_id as "sampleRequestId",
    refused_objects.sample
  from refused_objects
  where refused_objects.workspace_id = $1::uuid and refused_objects.reason = $2::text
    and refused_objects.operation = $3::text and refused_objects.input_array = $4::text
    and refused_objects.field = $5::text and refused_objects.api_key_id = $6::uuid
  order by refused_objects.hour desc
  limit ${SHOWN_HOURS}`;

/** One hour of a cause. */
export type RefusedHour = Pick<RefusedGroup, 'hour' | 'objects' | 'lastRequestId' | 'sampleRequestId'> & {
  sample: Json | null;
};

/** The hours of one cause, the latest first. */
export async function listRefusedHours(pool: Pool, name: RefusalName): Promise<RefusedHour[]> {
  const { workspaceId, reason, operation, inputArray, field, keyId } = name;
  const { rows } = await pool.query<RefusedHour>({
    name: 'list-refused-hours',
    text: listHoursStatement,
    values: [workspaceId, reason, operation, inputArray, field, keyId],
  });
  return rows;
}

/** Rows that a count of the whole installation adds up at most. */
const MAX_COUNTED = 100_000;

/** By the index refused_objects_sample, as far as its bound: the id of a sample's request begins with a time in the row's hour. */
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

/** Refused objects of the whole installation in this hour and the one before, and the seconds since that began. */
export async function countRefused(pool: Pool): Promise<{ objects: number; seconds: number }> {
  const { rows } = await pool.query<{ objects: number; seconds: number }>({
    name: 'count-refused-objects',
    text: countRefusedStatement,
  });
  return rows[0]!;
}

/** The first entry of the index refused_objects_sample. */
const oldestHourStatement = `
  select refused_objects.hour
  from refused_objects
  where refused_objects.sample_request_id
    < uuid_v7_floor(date_trunc('hour', now(), 'UTC') - interval '${KEPT_DAYS} days')
  order by refused_objects.sample_request_id
  limit 1`;

/** By the index refused_objects_sample. */
const forgetObjectsStatement = `
  delete from refused_objects
  where refused_objects.sample_request_id < uuid_v7_floor($1::timestamptz + interval '1 hour')`;

/** By the index refused_requests_id: the ids begin with their time. */
const forgetRequestsStatement = `
  delete from refused_requests
  where refused_requests.request_id < uuid_v7_floor($1::timestamptz + interval '1 hour')`;

/** Forgets refused objects of more than 30 days ago, an hour of them at a time. */
export async function forgetRefusedObjects(pool: Pool): Promise<void> {
  for (;;) {
    const { rows } = await pool.query<{ hour: Date }>(oldestHourStatement);
    const [oldest] = rows;
    if (!oldest) return;
    await pool.query(forgetRequestsStatement, [oldest.hour]);
    await pool.query(forgetObjectsStatement, [oldest.hour]);
  }
}
