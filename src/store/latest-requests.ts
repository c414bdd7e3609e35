import { inputArrays, listTraces } from '../jobs/traces.ts';
import { now } from '../platform/clock.ts';
import { idsBetween, MAX_UUID, millisecondsOf, NIL_UUID } from '../platform/ids.ts';
import type { Pool } from './database.ts';
import { countFailedByRequest } from './dead-letters.ts';
import { readLatestTraces } from './ledger.ts';
import { listRefusedRequests } from './refused-objects.ts';

/** Number of envelopes per read, and the milliseconds after which no further envelopes are read. */
const ENVELOPES = 100;
const READ_MS = 150;

/** Maximum number of requests with refused objects that are read. */
const MAX_REFUSED = 1000;

/** Maximum milliseconds between the id of a request and the ids of its envelopes. */
const MAX_DELAY_MS = 60_000;

/** Names of the arrays that a request can have. */
export const requestArrays: readonly string[] = Object.keys(inputArrays);

/** A request that was applied or had refused objects. */
export interface LatestRequest {
  id: string;
  keyId: string | undefined;
  /** Id of the endpoint, which is stored only for requests with refused objects. */
  operation: string | undefined;
  arrays: Set<string>;
  accepted: number;
  refused: number;
  failed: number;
}

interface LatestPage {
  workspaceId: string;
  before?: string | undefined;
  limit: number;
  isWanted(request: LatestRequest): boolean;
}

/**
 * Reads the latest requests of a workspace, or those that are older than `before`. More than `limit` can be returned.
 * @returns `boundary`: id before which requests have not been read. Absent if all were read
 */
export async function readLatestRequests(
  pool: Pool,
  { workspaceId, before, limit, isWanted }: LatestPage,
): Promise<{ requests: LatestRequest[]; boundary: string | undefined }> {
  const requestById = new Map<string, LatestRequest>();
  const of = (id: string, keyId: string | undefined) => {
    let request = requestById.get(id);
    if (!request) {
      request = { id, keyId, operation: undefined, arrays: new Set(), accepted: 0, refused: 0, failed: 0 };
      requestById.set(id, request);
    }
    return request;
  };
  const refused = await listRefusedRequests(pool, {
    ...{ workspaceId, before: before ?? MAX_UUID, limit: MAX_REFUSED },
  });
  for (const { requestId, keyId, operation, rejected, arrays } of refused) {
    const request = of(requestId, keyId === NIL_UUID ? undefined : keyId);
    request.operation = operation;
    request.refused = rejected;
    for (const name of arrays) request.arrays.add(name);
  }
  const from = performance.now();
  const start = before === undefined ? now() : millisecondsOf(before);
  let boundary: string | undefined = refused.length === MAX_REFUSED ? refused.at(-1)!.requestId : undefined;
  for (let last = idsBetween(start, start + MAX_DELAY_MS)[1]; ; ) {
    const envelopes = await readLatestTraces(pool, { workspaceId, before: last, limit: ENVELOPES });
    for (const { traces } of envelopes)
      for (const trace of traces ? listTraces(traces, workspaceId) : []) {
        if (before !== undefined && trace.requestId >= before) continue;
        const request = of(trace.requestId, trace.keyId);
        request.accepted = trace.total;
        for (const name of trace.arrays) request.arrays.add(name);
      }
    if (envelopes.length < ENVELOPES) break;
    last = envelopes.at(-1)!.envelopeId;
    const isEnough =
      [...requestById.values()].filter((one) => one.id > last && isWanted(one)).length >= limit;
    if (!isEnough && performance.now() - from < READ_MS) continue;
    // The envelopes of an older request may not have been read.
    if (boundary === undefined || last > boundary) boundary = last;
    break;
  }
  const read = [...requestById.values()].filter(({ id }) => boundary === undefined || id >= boundary);
  const failed = await countFailedByRequest(
    pool,
    workspaceId,
    read.map(({ id }) => id),
  );
  for (const request of read) request.failed = failed.get(request.id) ?? 0;
  const requests = read.filter(isWanted).sort((one, other) => (one.id < other.id ? 1 : -1));
  return { requests, boundary };
}
