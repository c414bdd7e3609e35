import type { Service } from '../lifecycle.ts';
import type { QueueConnection } from './connection.ts';

const REFRESH_MS = 200;

/**
 * Share of Redis's maxmemory past which nothing more is put into it. Past maxmemory itself Redis refuses every
 * script that writes, and with them the ones by which workers take jobs and remove them: it would be full for ever.
 * The rest is for those, and for what the edges add until they look again.
 */
const MOST_USED = 0.8;

/** How full Redis is: asked for five times a second, so that a request can be refused at once. */
export function watchMemory({ redis }: QueueConnection) {
  let used = 0;
  let refreshing = false;

  async function refresh(): Promise<void> {
    if (refreshing || redis?.status !== 'ready') return;
    refreshing = true;
    try {
      const text = await redis.info('memory');
      const read = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(text)?.[1] ?? 0);
      const most = read('maxmemory');
      used = most > 0 ? read('used_memory') / most : 0;
    } catch {
      // Redis is away, or does not tell: adding fails by itself.
    } finally {
      refreshing = false;
    }
  }

  const timer = setInterval(refresh, REFRESH_MS);
  timer.unref();
  const service: Service = {
    name: 'queue memory',
    async stop() {
      clearInterval(timer);
    },
  };
  return {
    ...service,
    /** Why nothing more may be put into Redis, if so; at most 200 ms old. */
    shortage: () =>
      used > MOST_USED ? `Redis has used ${Math.round(used * 100)} % of its maxmemory` : undefined,
  };
}
