import { readFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import type { TLSSocket } from 'node:tls';
import type { Service } from '../platform/lifecycle.ts';
import { poll } from '../platform/poll.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { allServers, laneServers, type RedisClient } from '../queue/open-redis.ts';
import { memoryOf } from '../queue/redis.ts';
import type { Pool, PostgresClient } from '../store/database.ts';

/** A disk that this process writes to. */
export interface Disk {
  name: 'data' | 'tmp';
  path: string;
  freeBytes: number;
  sizeBytes: number;
}

/** The expiry of a certificate that a store presented. */
interface Certificate {
  store: 'postgres' | 'redis';
  until: Date;
}

/** Health of the Redis servers. */
export interface RedisHealth {
  /** Whether the last writes to disk succeeded. */
  writes: boolean;
  /** Lag of the slowest online replica. Absent if there is none. */
  lagSeconds?: number;
  lagBytes?: number;
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

/** Returns the free space of a disk. Undefined if the folder does not exist, or if its file system does not report it. */
export async function readDisk(name: Disk['name'], path: string): Promise<Disk | undefined> {
  const found = await statfs(path).catch(() => undefined);
  if (!found || found.blocks === 0) return undefined;
  return { name, path, freeBytes: found.bavail * found.bsize, sizeBytes: found.blocks * found.bsize };
}

/**
 * Returns the worst health of the servers with lanes, and the memory of the fullest server.
 * @throws if a server is unavailable
 */
export async function readHealth(
  redis: RedisClient,
  shards: number,
): Promise<RedisHealth & { used: number; most: number }> {
  const infos = await Promise.all(laneServers(redis, shards).map((server) => server.info()));
  const healths = infos.map(healthOf);
  const fullness = ({ used, most }: { used: number; most: number }) =>
    most > 0 ? used / most : used / 2 ** 53;
  const [fullest] = infos.map(memoryOf).sort((one, other) => fullness(other) - fullness(one));
  const worst = (name: 'lagSeconds' | 'lagBytes') => {
    const lags = healths.map((health) => health[name]).filter((lag) => lag !== undefined);
    return lags.length > 0 && { [name]: Math.max(...lags) };
  };
  return {
    writes: healths.every(({ writes }) => writes),
    ...worst('lagSeconds'),
    ...worst('lagBytes'),
    ...fullest!,
  };
}

/** Parses the output of INFO. */
export function healthOf(info: string): RedisHealth {
  const read = (name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1];
  const failed = ['aof_last_write_status', 'aof_last_bgrewrite_status', 'rdb_last_bgsave_status'].some(
    (name) => (read(name) ?? 'ok') !== 'ok',
  );
  const replicas = [...info.matchAll(/^slave\d+:.*state=online,offset=(\d+),lag=(\d+)/gm)];
  if (replicas.length === 0) return { writes: !failed };
  const offset = Number(read('master_repl_offset') ?? 0);
  return {
    writes: !failed,
    lagSeconds: Math.max(...replicas.map(([, , lag]) => Number(lag))),
    lagBytes: Math.max(...replicas.map(([, replayed]) => Math.max(0, offset - Number(replayed)))),
  };
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

  function look(): void {
    const now = figures();
    if (now && before) {
      ran = ran * DECAY + now[0] - before[0];
      waited = waited * DECAY + now[1] - before[1];
    }
    before = now;
  }

  const samples = poll(SAMPLE_MS, look);
  const service: Service = { name: 'processor wait', stop: () => samples.stop() };
  return {
    ...service,
    look,
    /** Share of the time spent waiting, from 0 to 1. Undefined if the system does not report it. */
    share: (): number | undefined => (before && ran + waited > 0 ? waited / (ran + waited) : undefined),
  };
}
