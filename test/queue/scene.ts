import type { Queue } from 'bullmq';
import pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import {
  type AcceptedObject,
  type Envelope,
  namedIdentifiers,
  requestIndexesOf,
} from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer, type QueueConnection } from '../../src/queue/connection.ts';
import { createGroupCommit, type GroupCommitOptions } from '../../src/queue/enqueue.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { identifierKey, type LaneProducer, laneName } from '../../src/queue/lanes.ts';
import { decodeEnvelope, type WireEnvelope } from '../../src/queue/wire.ts';
import { createDatabase, startRedis, waitUntil } from '../setup/fixtures.ts';

export const LANES = 4;
export const log = createLog('test', 'silent');
export const workspaceId = uuidv7();

/** Creates lanes without workers, and the parts of web that fill them. */
export async function createScene(kind: QueueConnection['kind'], settings: Record<string, string> = {}) {
  const { url } = await createDatabase();
  const redis = kind === 'redis' ? await startRedis() : undefined;
  const config = readConfig({
    DATABASE_URL: url,
    LANES: String(LANES),
    ...(redis && { REDIS_URL: redis.url }),
    ...settings,
  });
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  /** A separate connection for the test. */
  const operator = redis && new Redis(redis.url);
  const connection = connectProducer(config, url);
  await waitUntil(() => connection.ready(), { what: 'the queue' });
  const queues: Queue<WireEnvelope>[] = Array.from({ length: LANES }, (_, lane) =>
    openQueue<WireEnvelope>(connection, laneName(lane)),
  );
  const producer = createLaneProducer(connection, { timeout: config.QUEUE_TIMEOUT_MS, log });

  /**
   * The objects of a lane in the order in which a worker takes them, each with its user and the number of its
   * request.
   */
  async function contentsOf(lane: number) {
    return (await envelopesOf(lane)).flatMap((envelope) =>
      envelope.objects.map((object, index) => ({
        user: identifierKey(namedIdentifiers(object)[0]!),
        number: Number(envelope.requests[requestIndexesOf(envelope)[index] as number]!.request_id.slice(1)),
        sent: object.kind === 'attributes' ? object.set?.number : undefined,
      })),
    );
  }

  async function envelopesOf(lane: number): Promise<Envelope[]> {
    const jobs = await queues[lane]!.getJobs(['waiting'], 0, -1, true);
    return jobs.map(({ data }) => decodeEnvelope(data));
  }

  return {
    config,
    pool,
    operator,
    connection,
    queues,
    envelopesOf,
    contentsOf,
    everything: async () => (await Promise.all(queues.map((_, lane) => contentsOf(lane)))).flat(),

    /** Empties the lanes and creates a group commit, which records the entries and the bytes of each add. */
    async begin(options: Partial<GroupCommitOptions> = {}) {
      for (const queue of queues) await queue.drain();
      const adds: number[] = [];
      const addedBytes: number[] = [];
      const noting: LaneProducer = {
        add(entries) {
          adds.push(entries.length);
          addedBytes.push(JSON.stringify(entries).length);
          return producer.add(entries);
        },
      };
      const defaults = {
        lanes: LANES,
        maxEnvelopeObjects: 2000,
        maxPendingObjects: 1000,
        maxPendingBytes: 1e9,
        backlog: () => 0,
      };
      const { enqueue, pending } = createGroupCommit(noting, { ...defaults, ...options });
      /**
       * Sends a request with one object of this many bytes for each user. The objects contain the request's number.
       */
      const send = (number: number, users: string[], bytes?: number) =>
        sendFor({ owner: workspaceId, number, users, bytes });
      const sendOf = (owner: string, number: number, users: string[]) => sendFor({ owner, number, users });
      const sendFor = ({ owner, number, users, bytes = 100 }: SentBy) =>
        enqueue(
          { request_id: `r${number}`, workspace_id: owner, accepted_at: 'now' },
          users.map((user, index) => objectOf({ user, number, index, bytes })),
          { bytes: users.length * bytes },
        );
      return { adds, addedBytes, send, sendOf, pending };
    },

    /** Keeps the queue from storing jobs until the returned function is called. */
    async stall(): Promise<() => Promise<void>> {
      if (operator) {
        await operator.client('PAUSE', 30_000, 'WRITE');
        return async () => void (await operator.client('UNPAUSE'));
      }
      const client = await pool.connect();
      await client.query('begin; lock table bullmq.job in exclusive mode');
      return async () => {
        await client.query('rollback');
        client.release();
      };
    },

    async stop() {
      await Promise.all(queues.map((queue) => queue.close()));
      await producer.stop();
      await connection.stop();
      operator?.disconnect();
      await pool.end();
    },
  };
}

export type Scene = Awaited<ReturnType<typeof createScene>>;

interface SentBy {
  owner: string;
  number: number;
  users: string[];
  bytes?: number | undefined;
}

interface Sent {
  user: string;
  number: number;
  /** Position in its request. */
  index: number;
  /** Bytes of its text. */
  bytes: number;
}

function objectOf({ user, number, index, bytes }: Sent): AcceptedObject {
  const base = { id: uuidv7(), index, create: true };
  const text = 'x'.repeat(bytes);
  return { ...base, kind: 'attributes', identifier: { external_id: user }, set: { number, text } };
}

export function people(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `user-${index}`);
}
