import { type Trace, traceOf } from '../jobs/traces.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import type { LaneStore } from './lane-store.ts';
import { everyLane, QueueUnavailable } from './lanes.ts';
import { decodeEnvelope } from './wire.ts';

/** Envelopes that are read at once: each may have 4 MB. */
const AT_ONCE = 8;

/** Maximum number of envelopes that are counted before an envelope. */
export const MAX_COUNTED = 1000;

/** Position of an envelope in its lane. */
interface Standing {
  /** Number of envelopes before it; undefined if there are more than are counted, or if it has just left the lane. */
  ahead: number | undefined;
  /** The active envelope of the lane, or else the next one. */
  first: { id: string; timestamp: number } | undefined;
}

/**
 * Searches for requests in the waiting and active envelopes: first by the ids of the time in question, then in the
 * data of the envelopes found.
 */
export function createWaitingSearch(store: LaneStore, lanes: number, timeout: number) {
  /**
   * Finds the envelopes with ids of the range that contain objects of the request.
   * @throws {QueueUnavailable}
   */
  async function find(
    requestId: string,
    workspaceId: string,
    [from, to]: [string, string],
  ): Promise<{ envelopeId: string; lane: number; trace: Trace }[]> {
    if (!store.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      const jobsByLane = await Promise.all(everyLane(lanes).map(search));
      return jobsByLane.flat();
    } catch (error) {
      throw new QueueUnavailable('the queue did not list its waiting jobs', { cause: error });
    }

    async function search(lane: number) {
      const candidates = await withTimeout(timeout, store.find(lane, [from, to]));
      const carrying: { envelopeId: string; lane: number; trace: Trace }[] = [];
      for (let start = 0; start < candidates.length; start += AT_ONCE) {
        const some = candidates.slice(start, start + AT_ONCE);
        for (const one of await withTimeout(timeout, store.read(lane, some))) {
          const trace = one && traceOf(decodeEnvelope(one.data), requestId, workspaceId);
          if (trace) carrying.push({ envelopeId: one.id, lane, trace });
        }
      }
      return carrying;
    }
  }

  /**
   * Counts the envelopes before an envelope in its lane.
   * @throws {QueueUnavailable}
   */
  async function standing(lane: number, envelopeId: string): Promise<Standing> {
    if (!store.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      const reads = Promise.all([store.oldest(lane), store.head(lane, MAX_COUNTED)]);
      const [first, ids] = await withTimeout(timeout, reads);
      const position = ids.indexOf(envelopeId);
      const inWork = first !== undefined && !ids.includes(first.id) ? 1 : 0;
      if (first?.id === envelopeId) return { ahead: 0, first };
      return { ahead: position < 0 ? undefined : position + inWork, first };
    } catch (error) {
      throw new QueueUnavailable('the queue did not list its waiting jobs', { cause: error });
    }
  }

  return { find, standing };
}
