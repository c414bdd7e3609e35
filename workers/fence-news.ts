import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Service } from '../src/lifecycle.ts';
import type { Log } from '../src/log.ts';
import { FENCE_CHANNEL, type FenceNews, parseFenceNews } from '../src/store/fences/fence-news.ts';

/** Milliseconds between two tries to listen again. */
const RETRY_MS = 1000;

/** Milliseconds between two questions whether the connection still stands, and the longest wait for the answer. */
const BEAT_MS = 5000;

/**
 * Hears what other workers say about fences, on a connection of its own. It only makes them faster: while there is
 * none, or behind a pooler that lets no session listen, lanes find out by looking into the store.
 */
export function listenForFenceNews(databaseUrl: string, hear: (news: FenceNews) => void, log: Log): Service {
  const stopping = new AbortController();
  const running = run();

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await listen();
      } catch (error) {
        log.warn({ err: error }, 'news of fences cannot be heard now; lanes look for them instead');
      }
      await sleep(RETRY_MS, undefined, { signal: stopping.signal }).catch(() => {});
    }
  }

  /** Until the connection is lost or the service stops. @throws when there is no connection to be had */
  async function listen(): Promise<void> {
    const client = new pg.Client({
      connectionString: databaseUrl,
      keepAlive: true,
      connectionTimeoutMillis: BEAT_MS,
      query_timeout: BEAT_MS,
    });
    let giveUp = () => {};
    const lost = new Promise<void>((resolve) => {
      giveUp = resolve;
    });
    client.once('end', giveUp);
    client.on('error', giveUp);
    client.on('notification', ({ channel, payload }) => {
      if (channel === FENCE_CHANNEL && payload) hear(parseFenceNews(payload));
    });
    stopping.signal.addEventListener('abort', giveUp);
    let beat: NodeJS.Timeout | undefined;
    try {
      await Promise.race([client.connect().then(() => client.query(`listen ${FENCE_CHANNEL}`)), lost]);
      beat = setInterval(() => client.query('select').catch(giveUp), BEAT_MS);
      await lost;
    } finally {
      clearInterval(beat);
      stopping.signal.removeEventListener('abort', giveUp);
      await client.end().catch(() => {});
    }
  }

  return {
    name: 'news of fences',
    async stop() {
      stopping.abort();
      await running;
    },
  };
}
