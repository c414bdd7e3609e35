import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Service } from '../src/lifecycle.ts';
import type { Log } from '../src/log.ts';

/** First half of the advisory lock's key: "pstk" in ASCII. The second half is the lane. */
const LOCK_SPACE = 0x7073746b;

/** Between two tries for a lane that another process works, and the longest wait of a take-over. */
const RETRY_MS = 250;

/** A holder says so many times within its patience that it is still there. */
const BEATS = 4;

export interface LaneLease {
  databaseUrl: string;
  lane: number;
  /** Milliseconds after which a silent holder loses the lease: frozen, or on a machine that is gone. */
  patience: number;
  /** Begins to work the lane; what it returns is stopped when the lease is lost. */
  start(): Service;
  log: Log;
}

/**
 * Works a lane only while this process holds its lease: a session-level advisory lock, which Postgres gives
 * back when the process dies or goes silent. BullMQ's Postgres backend needs it for speed alone, not for
 * order or exactness: a second worker of a lane that has a job in work asks for the next one without a pause.
 */
export function withLaneLease({ databaseUrl, lane, patience, start, log }: LaneLease): Service {
  const stopping = new AbortController();
  const running = run();

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      const client = new pg.Client({
        connectionString: databaseUrl,
        keepAlive: true,
        options: `-c idle_session_timeout=${patience}`,
      });
      let giveUp = () => {};
      const lost = new Promise<void>((resolve) => {
        giveUp = resolve;
      });
      client.once('end', giveUp);
      // A connection that the server ends reports two errors; one without a listener would end the process.
      client.on('error', giveUp);
      stopping.signal.addEventListener('abort', giveUp);
      try {
        await client.connect();
        if (await acquired(client, lane)) {
          log.info({ lane }, 'lane taken');
          const beat = setInterval(() => client.query('select').catch(giveUp), patience / BEATS);
          try {
            const service = start();
            await lost;
            await service.stop();
          } finally {
            clearInterval(beat);
          }
        }
      } catch (error) {
        log.warn({ err: error, lane }, 'the lease of a lane could not be asked for');
      }
      stopping.signal.removeEventListener('abort', giveUp);
      await client.end().catch(() => {});
      await sleep(RETRY_MS, undefined, { signal: stopping.signal }).catch(() => {});
    }
  }

  return {
    name: `lane ${lane}`,
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

async function acquired(client: pg.Client, lane: number): Promise<boolean> {
  const { rows } = await client.query<{ taken: boolean }>('select pg_try_advisory_lock($1, $2) as taken', [
    LOCK_SPACE,
    lane,
  ]);
  return rows[0]!.taken;
}
