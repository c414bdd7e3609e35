import { FlowProducer } from 'bullmq';
import { newId } from '../ids.ts';
import { jobs } from '../jobs/catalog.ts';
import type { Envelope } from '../jobs/envelope.ts';
import type { Log } from '../log.ts';
import { within } from '../within.ts';
import type { QueueConnection } from './connection.ts';
import { type LaneEntry, type LaneProducer, laneName, QueueUnavailable } from './lanes.ts';
import { openQueue } from './open-queue.ts';

/** Completed envelopes stay visible on the dashboard for a while, bounded by both. */
const KEEP_COMPLETED = { age: 3600, count: 25 };

/** A lane entry as BullMQ stores it; what the backend answered for it is `[error, id]`. */
type FlowAnswer = [Error | null, string | number] | undefined;

/**
 * Adds envelopes to lanes in one atomic step (one MULTI on Redis, one statement on Postgres).
 *
 * BullMQ's FlowProducer does not report entries that the backend refused, so every entry's answer is checked
 * here before anything is acknowledged. `timeout` is in milliseconds: BullMQ waits without end for a
 * connection that is not there.
 */
export function createLaneProducer(
  connection: QueueConnection,
  timeout: number,
  log: Log,
): LaneProducer & { stop(): Promise<void> } {
  const flow = new FlowProducer(connection.options, connection.factory);
  flow.on('error', () => {});
  const backend = flow.getBackend() as unknown as {
    addFlow(entries: unknown[]): Promise<FlowAnswer[]>;
  };
  const addFlow = backend.addFlow.bind(backend);
  backend.addFlow = async (entries) => {
    const answers = await addFlow(entries);
    for (let index = 0; index < entries.length; index++) {
      const [error, id] = answers[index] ?? [new Error('no answer'), -1];
      if (error) throw error;
      if (typeof id === 'number' && id < 0) throw new Error(`refused with code ${id}`);
    }
    return answers;
  };

  /**
   * Lanes known to let one job through at a time. A Redis that comes back empty has forgotten that too, and would
   * hand out what is added to it to several workers at once until one of them says so again.
   */
  const limited = new Set<number>();
  connection.redis?.on('close', () => limited.clear());

  async function limitLanes(entries: LaneEntry[]): Promise<void> {
    const lanes = [...new Set(entries.map(({ lane }) => lane))].filter((lane) => !limited.has(lane));
    await Promise.all(
      lanes.map(async (lane) => {
        const queue = openQueue<Envelope>(connection, laneName(lane));
        await queue.setGlobalConcurrency(1).finally(() => queue.close());
      }),
    );
    for (const lane of lanes) limited.add(lane);
  }

  async function add(entries: LaneEntry[]): Promise<void> {
    const flows = entries.map(({ lane, id, envelope }) => ({
      name: envelope.fence ? jobs.fence : jobs.envelope,
      queueName: laneName(lane),
      data: envelope,
      opts: { jobId: id, attempts: 1, removeOnComplete: KEEP_COMPLETED },
    }));
    if (!connection.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      await within(timeout, limitLanes(entries));
      await within(timeout, flow.addBulk(flows));
    } catch (error) {
      if (!isScriptMissing(error))
        throw new QueueUnavailable('the queue did not store the objects', { cause: error });
      // After a restart or SCRIPT FLUSH the server has forgotten BullMQ's scripts, and a transaction cannot
      // load them; a plain add does.
      log.warn('the queue had lost its scripts; they are loaded again');
      try {
        await within(timeout, loadScripts(entries[0]!.lane));
        await within(timeout, flow.addBulk(flows));
      } catch (second) {
        throw new QueueUnavailable('the queue did not store the objects', { cause: second });
      }
    }
  }

  /** By an envelope of nothing: one entry of a fence alone would stand in another order than those that follow. */
  async function loadScripts(lane: number): Promise<void> {
    const queue = openQueue<Envelope>(connection, laneName(lane));
    const nothing = { requests: [], objects: [] };
    const opts = { jobId: newId(), attempts: 1, removeOnComplete: KEEP_COMPLETED };
    await queue.add(jobs.envelope, nothing, opts).finally(() => queue.close());
  }

  return { add, stop: () => flow.close() };
}

function isScriptMissing(error: unknown): boolean {
  return String((error as Error)?.message).includes('NOSCRIPT');
}
