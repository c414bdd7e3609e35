import { type Trace, traceOf } from '../jobs/traces.ts';
import { type Service, within } from '../platform/lifecycle.ts';
import { openLanes, type QueueConnection } from './connection.ts';
import { QueueUnavailable } from './lanes.ts';
import { waitingIn } from './waiting.ts';
import { decodeEnvelope, type WireEnvelope } from './wire.ts';

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
export function createWaitingSearch(connection: QueueConnection, lanes: number, timeout: number) {
  const queues = openLanes<WireEnvelope>(connection, lanes);

  /**
   * The envelopes with ids of the range that carry objects of the request.
   * @throws {QueueUnavailable}
   */
  async function find(
    requestId: string,
    workspaceId: string,
    [from, to]: [string, string],
  ): Promise<{ envelopeId: string; lane: number; trace: Trace }[]> {
    if (!connection.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      const found = await Promise.all(queues.map((queue, lane) => search(queue, lane)));
      return found.flat();
    } catch (error) {
      throw new QueueUnavailable('the queue did not say what waits', { cause: error });
    }

    async function search(queue: (typeof queues)[number], lane: number) {
      // What is taken meanwhile is found where it comes to, since that is looked at last.
      const ids = await within(timeout, queue.getRanges(['waiting', 'active'], 0, -1));
      const candidates = ids.filter((id) => id >= from && id <= to).sort();
      const carrying: { envelopeId: string; lane: number; trace: Trace }[] = [];
      for (let start = 0; start < candidates.length; start += AT_ONCE) {
        const jobs = candidates.slice(start, start + AT_ONCE).map((id) => queue.getJob(id));
        for (const job of await within(timeout, Promise.all(jobs))) {
          const trace = job && traceOf(decodeEnvelope(job.data), requestId, workspaceId);
          if (trace) carrying.push({ envelopeId: job.id!, lane, trace });
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
    if (!connection.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      const queue = waitingIn(connection, queues[lane]!);
      const [first, ids] = await within(timeout, Promise.all([queue.oldest(), queue.ids(MOST_COUNTED)]));
      const place = ids.indexOf(envelopeId);
      const inWork = first !== undefined && !ids.includes(first.id) ? 1 : 0;
      if (first?.id === envelopeId) return { ahead: 0, first };
      return { ahead: place < 0 ? undefined : place + inWork, first };
    } catch (error) {
      throw new QueueUnavailable('the queue did not say what waits', { cause: error });
    }
  }

  const service: Service = {
    name: 'waiting search',
    async stop() {
      await Promise.all(queues.map((queue) => queue.close()));
    },
  };
  return { ...service, find, standing };
}
