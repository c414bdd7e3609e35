import type { Envelope } from '../jobs/envelope.ts';
import { type Trace, traceOf } from '../jobs/traces.ts';
import type { Service } from '../lifecycle.ts';
import { within } from '../within.ts';
import type { QueueConnection } from './connection.ts';
import { laneName, QueueUnavailable } from './lanes.ts';
import { openQueue } from './open-queue.ts';

/** Envelopes that are read at once: one may have 4 MB. */
const AT_ONCE = 8;

/** Looks for requests in what waits in the lanes or is in work: ids first, then the envelopes of the time in question. */
export function createWaitingSearch(connection: QueueConnection, lanes: number, timeout: number) {
  const queues = Array.from({ length: lanes }, (_, lane) => openQueue<Envelope>(connection, laneName(lane)));

  /**
   * The envelopes with ids of the range that carry objects of the request.
   * @throws {QueueUnavailable}
   */
  async function find(
    requestId: string,
    workspaceId: string,
    [from, to]: [string, string],
  ): Promise<{ envelopeId: string; trace: Trace }[]> {
    if (!connection.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      const found = await Promise.all(queues.map((queue) => search(queue)));
      return found.flat();
    } catch (error) {
      throw new QueueUnavailable('the queue did not say what waits', { cause: error });
    }

    async function search(queue: (typeof queues)[number]) {
      // What is taken meanwhile is found where it comes to, since that is looked at last.
      const ids = await within(timeout, queue.getRanges(['waiting', 'active'], 0, -1));
      const candidates = ids.filter((id) => id >= from && id <= to).sort();
      const carrying: { envelopeId: string; trace: Trace }[] = [];
      for (let start = 0; start < candidates.length; start += AT_ONCE) {
        const jobs = candidates.slice(start, start + AT_ONCE).map((id) => queue.getJob(id));
        for (const job of await within(timeout, Promise.all(jobs))) {
          const trace = job && traceOf(job.data, requestId, workspaceId);
          if (trace) carrying.push({ envelopeId: job.id!, trace });
        }
      }
      return carrying;
    }
  }

  const service: Service = {
    name: 'waiting search',
    async stop() {
      await Promise.all(queues.map((queue) => queue.close()));
    },
  };
  return { ...service, find };
}
