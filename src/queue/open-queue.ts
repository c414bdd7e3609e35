import { Queue } from 'bullmq';
import type { QueueConnection } from './connection.ts';

/** Entries that BullMQ keeps of its stream of events, which only the dashboard reads; 10,000 unless told. */
const MAX_EVENTS = 200;

/**
 * A queue to look at or to add to. Every handle is opened here, since each one writes its options into the
 * queue's own settings.
 */
export function openQueue<Data>(connection: QueueConnection, name: string): Queue<Data> {
  const options = { ...connection.options, streams: { events: { maxLen: MAX_EVENTS } } };
  const queue = new Queue<Data>(name, options, connection.factory);
  // Errors come back from the calls themselves; without a listener this event would end the process.
  queue.on('error', () => {});
  return queue;
}
