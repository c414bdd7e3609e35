import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '../ids.ts';
import type { AcceptedObject, Envelope, EnvelopeRequest } from '../jobs/envelope.ts';
import { identifierKey, type LaneEntry, type LaneProducer, laneOf, QueueUnavailable } from './lanes.ts';

interface Waiting {
  request: EnvelopeRequest;
  objects: AcceptedObject[];
  resolve(): void;
  reject(error: Error): void;
}

export interface GroupCommitOptions {
  lanes: number;
  /** Most objects in one envelope. */
  maxEnvelopeObjects: number;
  /** Most objects held in memory; with more, requests are refused. */
  maxPendingObjects: number;
  /** Jobs that wait in the lanes, as last seen. */
  backlog(): number;
}

/** Most objects in one flush: bounds the size of one command and the time that a late comer waits. */
const MAX_FLUSH_OBJECTS = 16_000;

/** Waiting jobs per lane from which on the workers count as behind. */
const BEHIND = 3;

/**
 * Milliseconds that a flush lets more requests join while the workers are behind. What waits here would wait
 * in its lane otherwise, and the workers pay per envelope: fewer and larger ones let them catch up.
 */
const LINGER = 5;

/**
 * Requests that arrive while a flush is on its way wait and leave together in the next one: one durable add
 * for all of them. Unless the workers are behind there is no timer: alone, a request leaves at once.
 */
export function createGroupCommit(producer: LaneProducer, options: GroupCommitOptions) {
  let waiting: Waiting[] = [];
  let pendingObjects = 0;
  let flushing: Promise<void> | undefined;

  /**
   * Resolves when the objects are on disk.
   * @throws {QueueUnavailable} when that is not known, or at once when too much is waiting already.
   */
  function enqueue(request: EnvelopeRequest, objects: AcceptedObject[]): Promise<void> {
    if (pendingObjects + objects.length > options.maxPendingObjects) {
      return Promise.reject(new QueueUnavailable('too many objects are waiting for the queue'));
    }
    pendingObjects += objects.length;
    return new Promise((resolve, reject) => {
      waiting.push({ request, objects, resolve, reject });
      flushing ??= flushAll();
    });
  }

  async function flushAll(): Promise<void> {
    // Let the requests of the present turn of the event loop join the first flush.
    await new Promise(setImmediate);
    while (waiting.length > 0) {
      if (options.backlog() >= BEHIND * options.lanes && pendingObjects < options.maxEnvelopeObjects) {
        await sleep(LINGER);
      }
      const batch = takeBatch();
      try {
        await producer.add(pack(batch, options));
        settle(batch);
      } catch (error) {
        // What waited behind this flush would wait as long again; it is refused with it.
        const refused = [...batch, ...waiting];
        waiting = [];
        settle(refused, error as Error);
      }
    }
    flushing = undefined;
  }

  function takeBatch(): Waiting[] {
    let objects = 0;
    let count = 0;
    while (
      count < waiting.length &&
      (count === 0 || objects + waiting[count]!.objects.length <= MAX_FLUSH_OBJECTS)
    ) {
      objects += waiting[count++]!.objects.length;
    }
    return waiting.splice(0, count);
  }

  function settle(batch: Waiting[], error?: Error): void {
    for (const { objects, resolve, reject } of batch) {
      pendingObjects -= objects.length;
      if (error) reject(error);
      else resolve();
    }
  }

  return {
    enqueue,
    /** Objects that wait for the queue, those of the flush on its way included. */
    pending: () => pendingObjects,
    /** Resolves when nothing waits any more. */
    async drain(): Promise<void> {
      while (flushing) await flushing;
    },
  };
}

export type GroupCommit = ReturnType<typeof createGroupCommit>;

/** Packs requests into as few envelopes as possible, in their order within each lane. */
function pack(batch: Waiting[], options: GroupCommitOptions): LaneEntry[] {
  const entries: LaneEntry[] = [];
  const open = new Map<number, { envelope: Envelope; request: EnvelopeRequest | undefined }>();
  for (const { request, objects } of batch) {
    for (const object of objects) {
      const lane = laneOf(
        request.workspace_id,
        object.identifier ? identifierKey(object.identifier) : object.id,
        options.lanes,
      );
      let current = open.get(lane);
      if (!current || current.envelope.objects.length >= options.maxEnvelopeObjects) {
        current = { envelope: { requests: [], objects: [] }, request: undefined };
        open.set(lane, current);
        entries.push({ lane, id: newId(), envelope: current.envelope });
      }
      if (current.request !== request) {
        current.envelope.requests.push(request);
        current.request = request;
      }
      object.request = current.envelope.requests.length - 1;
      current.envelope.objects.push(object);
    }
  }
  return entries;
}
