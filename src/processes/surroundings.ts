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

/** What a store has shown when a connection to it was made. */
interface Certificate {
  store: 'postgres' | 'redis';
  until: Date;
}

/** How Redis says it is. */
export interface RedisHealth {
  /** Whether its last writes to disk went well. */
  writes: boolean;
  /** Of the slowest replica that is online; absent: there is none. */
  lagSeconds?: number;
  lagBytes?: number;
}

export interface SurroundingsOptions {
  pool: Pool;
  connection: Pick<QueueConnection, 'redis' | 'layout'>;
  /** DATA_DIR. */
  dataDir: string;
}

/** What a process stands on and does not own: disks, certificates, the health of Redis. */
export function createSurroundings({ pool, connection: { redis, layout }, dataDir }: SurroundingsOptions) {
  const certificates = new Map<Certificate['store'], Date>();
  const note = (store: Certificate['store'], socket: unknown) => {
    const until = validUntil(socket);
    if (until) certificates.set(store, until);
  };
  pool.on('connect', (client) => note('postgres', streamOf(client as unknown as PostgresClient)));

  let looked = false;

  /** Connections that are older than this were not heard of. */
  async function lookAtOne(): Promise<void> {
    if (looked || certificates.has('postgres')) return;
    const client = await pool.connect().catch(() => undefined);
    if (!client) return;
    looked = true;
    note('postgres', streamOf(client as unknown as PostgresClient));
    client.release();
  }

  return {
    /** Of this process's own; never rejects. */
    async local(): Promise<{ certificates: Certificate[]; disks: Disk[] }> {
      await lookAtOne();
      for (const server of redis ? allServers(redis) : [])
        note('redis', (server as unknown as { stream?: unknown }).stream);
      const disks = [await readDisk('data', dataDir), await readDisk('tmp', tmpdir())];
      return {
        certificates: [...certificates].map(([store, until]) => ({ store, until })),
        disks: disks.filter((disk) => disk !== undefined),
      };
    },

    /** Undefined: there is no Redis, it is away, or it does not tell. */
    async redis(): Promise<RedisHealth | undefined> {
      if (redis?.status !== 'ready') return undefined;
      return readHealth(redis, layout.shards).catch(() => undefined);
    },
  };
}

function streamOf(client: PostgresClient): unknown {
  return (client as unknown as { connection?: { stream?: unknown } }).connection?.stream;
}

/** Undefined: the connection is not encrypted. */
function validUntil(socket: unknown): Date | undefined {
  const { valid_to } = (socket as TLSSocket | undefined)?.getPeerCertificate?.() ?? {};
  const until = new Date(valid_to ?? '');
  return Number.isNaN(until.getTime()) ? undefined : until;
}

/** Undefined: the folder is not there, or is on a disk that does not tell. */
export async function readDisk(name: Disk['name'], path: string): Promise<Disk | undefined> {
  const found = await statfs(path).catch(() => undefined);
  if (!found || found.blocks === 0) return undefined;
  return { name, path, freeBytes: found.bavail * found.bsize, sizeBytes: found.blocks * found.bsize };
}

/** How the servers are that have lanes, by the worst of them, and the memory of the fullest. @throws when one is away */
export async function readHealth(
  redis: RedisClient,
  shards: number,
): Promise<RedisHealth & { used: number; most: number }> {
  const told = await Promise.all(laneServers(redis, shards).map((server) => server.info()));
  const healths = told.map(healthOf);
  const fullness = ({ used, most }: { used: number; most: number }) =>
    most > 0 ? used / most : used / 2 ** 53;
  const [fullest] = told.map(memoryOf).sort((one, other) => fullness(other) - fullness(one));
  const worst = (name: 'lagSeconds' | 'lagBytes') => {
    const known = healths.map((health) => health[name]).filter((lag) => lag !== undefined);
    return known.length > 0 && { [name]: Math.max(...known) };
  };
  return {
    writes: healths.every(({ writes }) => writes),
    ...worst('lagSeconds'),
    ...worst('lagBytes'),
    ...fullest!,
  };
}

/** Of what INFO says. */
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

const LOOK_MS = 250;

/** Of what was seen before, how much counts beside a new look: a second or so is told of. */
const KEPT = 0.75;

/** Nanoseconds that the main thread has run, and has waited for a processor. Linux alone tells them. */
const SCHEDULED = '/proc/self/schedstat';

/**
 * How long this process's thread has to wait for a processor, as the scheduler counts it. Of the time in which it
 * wanted to run, it is the part in which others did. On a machine with an idle core it is near 0, however busy the
 * process itself is.
 * @param read gives the text of the scheduler's figures; tests have others
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
      ran = ran * KEPT + now[0] - before[0];
      waited = waited * KEPT + now[1] - before[1];
    }
    before = now;
  }

  const looks = poll(LOOK_MS, look);
  const service: Service = { name: 'processor wait', stop: () => looks.stop() };
  return {
    ...service,
    look,
    /** From 0 to 1; undefined where the system does not tell. */
    share: (): number | undefined => (before && ran + waited > 0 ? waited / (ran + waited) : undefined),
  };
}
