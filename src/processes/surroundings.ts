import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import type { TLSSocket } from 'node:tls';
import { type Disk, readDisk } from '../platform/disk.ts';
import type { Service } from '../platform/lifecycle.ts';
import { poll } from '../platform/poll.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { allServers } from '../queue/open-redis.ts';
import { type RedisHealth, readHealth } from '../queue/redis.ts';
import type { Pool } from '../store/database.ts';
import type { PostgresClient } from '../store/postgres-client.ts';

/** Expiry of the certificate that a store presented when a connection was opened. */
interface Certificate {
  store: 'postgres' | 'redis';
  until: Date;
}

export interface SurroundingsOptions {
  pool: Pool;
  connection: Pick<QueueConnection, 'redis' | 'layout'>;
  /** The DATA_DIR setting. */
  dataDir: string;
}

/** Creates the checks of resources outside this process: disks, certificates and the health of Redis. */
export function createSurroundings({ pool, connection: { redis, layout }, dataDir }: SurroundingsOptions) {
  const certificates = new Map<Certificate['store'], Date>();
  const record = (store: Certificate['store'], socket: unknown) => {
    const until = validUntil(socket);
    if (until) certificates.set(store, until);
  };
  pool.on('connect', (client) => record('postgres', streamOf(client as unknown as PostgresClient)));

  let probed = false;

  /** Opens a connection to read the certificate, because older connections were opened before the listener was added. */
  async function probePostgres(): Promise<void> {
    if (probed || certificates.has('postgres')) return;
    const client = await pool.connect().catch(() => undefined);
    if (!client) return;
    probed = true;
    record('postgres', streamOf(client as unknown as PostgresClient));
    client.release();
  }

  return {
    /** Returns the certificates and disks that this process sees. Never rejects. */
    async local(): Promise<{ certificates: Certificate[]; disks: Disk[] }> {
      await probePostgres();
      for (const server of redis ? allServers(redis) : [])
        record('redis', (server as unknown as { stream?: unknown }).stream);
      const disks = [await readDisk('data', dataDir), await readDisk('tmp', tmpdir())];
      return {
        certificates: [...certificates].map(([store, until]) => ({ store, until })),
        disks: disks.filter((disk) => disk !== undefined),
      };
    },

    /** Returns the health of Redis. Undefined if there is no Redis, or if it is unavailable or refuses INFO. */
    async redis(): Promise<RedisHealth | undefined> {
      if (redis?.status !== 'ready') return undefined;
      return readHealth(redis, layout.shards).catch(() => undefined);
    },
  };
}

function streamOf(client: PostgresClient): unknown {
  return (client as unknown as { connection?: { stream?: unknown } }).connection?.stream;
}

/** Returns the expiry of the server's certificate. Undefined if the connection is not encrypted. */
function validUntil(socket: unknown): Date | undefined {
  const { valid_to } = (socket as TLSSocket | undefined)?.getPeerCertificate?.() ?? {};
  const until = new Date(valid_to ?? '');
  return Number.isNaN(until.getTime()) ? undefined : until;
}

const SAMPLE_MS = 250;

/** Weight of earlier samples. The share covers about the last second. */
const DECAY = 0.75;

/** Scheduler statistics: nanoseconds that the main thread ran, and waited for a processor. Linux only. */
const SCHEDULED = '/proc/self/schedstat';

/**
 * Measures how long this process's main thread waits for a processor, according to the scheduler. The share is the
 * waiting time divided by the sum of running and waiting time. On a machine with an idle core it is near 0, however
 * busy the process is.
 * @param read reads the scheduler statistics; tests pass another function
 */
export function watchProcessorWait(read: () => string = () => readFileSync(SCHEDULED, 'utf8')) {
  let [ran, waited] = [0, 0];
  let before = figures();

  function figures(): [number, number] | undefined {
    try {
      const [running, waiting] = read().split(' ').map(Number);
      return [running!, waiting!];
    } catch {
      return undefined;
    }
  }

  function sample(): void {
    const now = figures();
    if (now && before) {
      ran = ran * DECAY + now[0] - before[0];
      waited = waited * DECAY + now[1] - before[1];
    }
    before = now;
  }

  const samples = poll(SAMPLE_MS, sample);
  const service: Service = { name: 'processor wait', stop: () => samples.stop() };
  return {
    ...service,
    sample,
    /** Share of the time spent waiting, from 0 to 1. Undefined if the system does not report it. */
    share: (): number | undefined => (before && ran + waited > 0 ? waited / (ran + waited) : undefined),
  };
}
