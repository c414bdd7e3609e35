import { inputArrays, listTraces, userBytes } from '../jobs/traces.ts';
import { now } from '../platform/clock.ts';
import { idsBetween, MAX_UUID, millisecondsOf, NIL_UUID } from '../platform/ids.ts';
import type { Pool } from './database.ts';
import { countFailedByRequest } from './dead-letters.ts';
import { readLatestTraces } from './ledger.ts';
import { findRefusedRequests, listRefusedRequests } from './refused-objects.ts';
import { type NamedUntil, selectRefusedOfUser } from './refused-of-users.ts';

/**
 * Number of envelopes of the first read. After a fast read, the next one takes twice as many, up to the maximum, because
 * most of them may belong to other workspaces or other users.
 */
const ENVELOPES = 100;
const FAST_MS = 20;

/**
 * Maximum number of envelopes per read, which bounds its bytes: an envelope of an import has up to 24 KB. With a user,
 * only matching envelopes leave Postgres, which compares each with every identifier.
 */
const MAX_ENVELOPES = 400;
const MAX_COMPARED = 3200;

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
  /** Identifiers of a user, of which a request must name one. Absent: requests of any users. */
  user?: readonly NamedUntil[] | undefined;
  /** Milliseconds after which no further envelopes are read. */
  readMs?: number;
  isWanted(request: LatestRequest): boolean;
}

/**
 * Reads the latest requests of a workspace, or those that are older than `before`. More than `limit` can be returned.
 * @returns `boundary`: id before which requests have not been read. Absent if all were read
 */
export async function readLatestRequests(
  pool: Pool,
  { workspaceId, before, limit, user, readMs = READ_MS, isWanted }: LatestPage,
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
  const named = user && new NamedUser(workspaceId, user);
  const refused = named
    ? await named.readRefused(pool, before)
    : await listRefusedRequests(pool, { workspaceId, before: before ?? MAX_UUID, limit: MAX_REFUSED });
  for (const { requestId, keyId, operation, accepted, rejected, arrays } of refused) {
    const request = of(requestId, keyId === NIL_UUID ? undefined : keyId);
    request.operation = operation;
    request.accepted = accepted;
    request.refused = rejected;
    for (const name of arrays) request.arrays.add(name);
  }
  const from = performance.now();
  const start = before === undefined ? now() : millisecondsOf(before);
  let boundary: string | undefined = refused.length === MAX_REFUSED ? refused.at(-1)!.requestId : undefined;
  let last = idsBetween(start, start + MAX_DELAY_MS)[1];
  const most = named ? Math.max(ENVELOPES, MAX_COMPARED / named.checksums.length) : MAX_ENVELOPES;
  for (let size = ENVELOPES; ; ) {
    const begun = performance.now();
    const part = await readLatestTraces(pool, {
      ...{ workspaceId, before: last, limit: size, parts: named?.checksums },
    });
    for (const traces of part.traces)
      for (const trace of listTraces(traces, workspaceId)) {
        if (before !== undefined && trace.requestId >= before) continue;
        if (named && !requestById.has(trace.requestId) && !named.isIn(trace)) continue;
        const request = of(trace.requestId, trace.keyId);
        request.accepted = trace.total;
        for (const name of trace.arrays) request.arrays.add(name);
      }
    if (part.read < size) break;
    last = part.last!;
    const isEnough =
      [...requestById.values()].filter((one) => one.id > last && isWanted(one)).length >= limit;
    const ended = performance.now();
    // The envelopes of later requests are read as well, because a request can have waited for its body.
    const isPast = before === undefined || last < before;
    if (!isPast || (!isEnough && ended - from < readMs)) {
      size = ended - begun < FAST_MS ? Math.min(2 * size, Math.floor(most)) : ENVELOPES;
      continue;
    }
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

/** A user whose requests are searched, by the identifiers that requests may have named. */
class NamedUser {
  /** Checksums of the identifiers, as the ledger has them. */
  readonly checksums: Buffer[];
  readonly #workspaceId: string;
  readonly #identifiers: readonly NamedUntil[];
  /** Times at which the user lost the identifier, or infinity, by checksum. */
  readonly #untilOf = new Map<string, number>();

  constructor(workspaceId: string, identifiers: readonly NamedUntil[]) {
    this.#workspaceId = workspaceId;
    this.#identifiers = identifiers;
    for (const { identifier, until } of identifiers) {
      const checksum = userBytes(workspaceId, identifier).toString('hex');
      const time = until?.getTime() ?? Number.POSITIVE_INFINITY;
      this.#untilOf.set(checksum, Math.max(time, this.#untilOf.get(checksum) ?? 0));
    }
    this.checksums = [...this.#untilOf.keys()].map((checksum) => Buffer.from(checksum, 'hex'));
  }

  isIn({ requestId, users }: { requestId: string; users: string[] }): boolean {
    return users.some((checksum) => millisecondsOf(requestId) < (this.#untilOf.get(checksum) ?? 0));
  }

  /** Reads the requests with refused objects of the user that are older than `before`, at most MAX_REFUSED. */
  async readRefused(pool: Pool, before: string | undefined) {
    const objects = await selectRefusedOfUser(pool, this.#workspaceId, this.#identifiers);
    const ids = [...new Set(objects.map(({ requestId }) => requestId))]
      .filter((id) => before === undefined || id < before)
      .sort((one, other) => (one < other ? 1 : -1));
    return findRefusedRequests(pool, this.#workspaceId, ids.slice(0, MAX_REFUSED));
  }
}
