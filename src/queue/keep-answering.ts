import type { Socket } from 'node:net';
import type { Service } from '../lifecycle.ts';
import type { Log } from '../log.ts';
import { within } from '../within.ts';
import type { QueueConnection } from './connection.ts';

/** Looks without an answer after which a connection is made anew. */
const PATIENCE = 2;

/**
 * Makes the connection to Redis anew when it does not answer any more. A host that vanishes leaves connections that
 * look sound for a quarter of an hour and longer; one to a Redis that hangs may find its successor. What was asked
 * and not answered is asked again, or fails, as the connection has it.
 *
 * @param every milliseconds between two looks, and for an answer
 */
export function keepAnswering({ redis }: QueueConnection, every: number, log: Log): Service {
  let unanswered = 0;
  let heard = bytesFrom(redis);
  let looking = false;

  async function answers(): Promise<boolean> {
    // Connected, and kept from being ready by a Redis that does not say who it is.
    if (redis?.status === 'connect') return false;
    // One that is being made takes care of itself.
    if (redis?.status !== 'ready') return true;
    const asked = within(every, redis.ping());
    return asked.then(
      () => true,
      () => false,
    );
  }

  async function look(): Promise<void> {
    if (looking) return;
    looking = true;
    const answered = await answers();
    // Over a slow network the answer may come behind many others: to begin again would be to begin them again.
    const moved = bytesFrom(redis) !== heard;
    heard = bytesFrom(redis);
    unanswered = answered || moved ? 0 : unanswered + 1;
    looking = false;
    if (unanswered < PATIENCE) return;
    unanswered = 0;
    log.error('the connection to Redis does not answer; it is made anew');
    redis?.disconnect(true);
  }

  const timer = setInterval(look, every);
  timer.unref();
  return {
    name: 'queue connection watch',
    async stop() {
      clearInterval(timer);
    },
  };
}

/** What has come from Redis on the present connection. */
function bytesFrom(redis: QueueConnection['redis']): number {
  return (redis as unknown as { stream?: Socket } | undefined)?.stream?.bytesRead ?? 0;
}
