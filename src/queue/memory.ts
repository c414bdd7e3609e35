import type { Service } from '../lifecycle.ts';
import type { QueueConnection } from './connection.ts';

const REFRESH_MS = 200;

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
    /** Percent of its maxmemory that Redis has used, at most 200 ms ago; 0: it has no maxmemory, or does not tell. */
    usedPercent: () => used * 100,
  };
}
