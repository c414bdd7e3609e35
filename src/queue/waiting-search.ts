import { type Trace, traceOf } from '../jobs/traces.ts';
import { within } from '../platform/lifecycle.ts';
import type { LaneStore } from './lane-store.ts';
import { everyLane, QueueUnavailable } from './lanes.ts';
import { decodeEnvelope } from './wire.ts';

/** Envelopes that are read at once: one may have 4 MB. */
const AT_ONCE = 8;

/** Envelopes of a lane that are counted before one. */
export const MOST_COUNTED = 1000;

/** Where an envelope stands in its lane. */
export interface Standing {
  /** Envelopes before it; undefined: more than are counted, or it has just left. */
  ahead: number | undefined;
  /** The one that the lane works, or will work next. */
  first: { id: string; timestamp: number } | undefined;
}

/** Looks for requests in what waits in the lanes or is in work: ids first, then the envelopes of the time in question. */
export function createWaitingSearch(store: LaneStore, lanes: number, timeout: number) {
  /**
   * The envelopes with ids of the range that carry objects of the request.
   * @throws {QueueUnavailable}
   */
  async function find(
    requestId: string,
    workspaceId: string,
    [from, to]: [string, string],
  ): Promise<{ envelopeId: string; lane: number; trace: Trace }[]> {
    if (!store.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      const found = await Promise.all(everyLane(lanes).map(search));
      return found.flat();
    } catch (error) {
      throw new QueueUnavailable('the queue did not list its waiting jobs', { cause: error });
    }

    async function search(lane: number) {
      const candidates = await within(timeout, store.find(lane, [from, to]));
      const carrying: { envelopeId: string; lane: number; trace: Trace }[] = [];
      for (let start = 0; start < candidates.length; start += AT_ONCE) {
        const some = candidates.slice(start, start + AT_ONCE);
        for (const one of await within(timeout, store.read(lane, some))) {
          const trace = one && traceOf(decodeEnvelope(one.data), requestId, workspaceId);
          if (trace) carrying.push({ envelopeId: one.id, lane, trace });
        }
      }
      return carrying;
    }
  }

  /**
   * What stands before an envelope in its lane.
   * @throws {QueueUnavailable}
   */
  async function standing(lane: number, envelopeId: string): Promise<Standing> {
    if (!store.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      const asked = Promise.all([store.oldest(lane), store.head(lane, MOST_COUNTED)]);
      const [first, ids] = await within(timeout, asked);
      const place = ids.indexOf(envelopeId);
      const inWork = first !== undefined && !ids.includes(first.id) ? 1 : 0;
      if (first?.id === envelopeId) return { ahead: 0, first };
      return { ahead: place < 0 ? undefined : place + inWork, first };
    } catch (error) {
      throw new QueueUnavailable('the queue did not list its waiting jobs', { cause: error });
    }
  }

  return { find, standing };
}
