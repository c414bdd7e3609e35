import { newId } from '../ids.ts';
import type { Log } from '../log.ts';
import type { QueueConnection } from './connection.ts';

/** Holds an id that the first of our processes leaves in a Redis: with another one, or none, what it held is gone. */
const MARK = '{penstock}:mark';

/**
 * Notices that the Redis of `connection` has lost what it held: another server stands in its place, or somebody has
 * emptied it. The operator is told, once by each process, since only a person can find out what the senders have to
 * send again.
 *
 * @param onLoss called after each loss
 */
export function watchForLoss({ redis }: QueueConnection, log: Log, onLoss = () => {}) {
  let known: string | undefined;

  /** @throws what Redis says; it is asked again next time */
  async function look(): Promise<void> {
    if (redis?.status !== 'ready') return;
    await redis.set(MARK, newId(), 'NX');
    const found = (await redis.get(MARK)) ?? undefined;
    const lost = known !== undefined && found !== known;
    known = found;
    if (!lost) return;
    log.error('Redis came back empty: accepted objects that had not been applied yet are lost');
    onLoss();
  }

  // A Redis that is away again is looked at when it comes back.
  redis?.on('ready', () => void look().catch(() => {}));
  return { look };
}
