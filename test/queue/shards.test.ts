import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import type { Queue } from '../../src/queue/bullmq.ts';
import { openLane } from '../../src/queue/bullmq-queues.ts';
import { connectProducer, type QueueConnection } from '../../src/queue/connection.ts';
import { createGroupCommit } from '../../src/queue/enqueue.ts';
import { everyLane } from '../../src/queue/lanes.ts';
import { HOLD_MS, KNOWN_MS, openMoves } from '../../src/queue/moves.ts';
import { pack } from '../../src/queue/pack.ts';
import { openProducer, type ShardedProducer } from '../../src/queue/producer.ts';
import type { WireEnvelope } from '../../src/queue/wire.ts';
import { findHomes } from '../../src/store/queue-shards.ts';
import { createDatabase, startRedis, type TestRedis, waitUntil } from '../setup/fixtures.ts';

const SHARDS = 3;
const LANES = 2;
const log = createLog('test', 'silent');

let redis: TestRedis;
let pool: pg.Pool;
let connection: QueueConnection;
let lanes: Queue<WireEnvelope>[];
const producers: ShardedProducer[] = [];
beforeAll(async () => {
  const { url } = await createDatabase();
  redis = await startRedis();
  pool = new pg.Pool({ connectionString: url, max: 2 });
  const settings = { DATABASE_URL: url, REDIS_URL: redis.url };
  const config = readConfig({ ...settings, SHARDS: String(SHARDS), LANES: String(LANES) });
  connection = connectProducer(config, url);
  await waitUntil(connection.ready, { what: 'Redis' });
  lanes = everyLane(SHARDS * LANES).map((lane) => openLane<WireEnvelope>(connection, lane));
});
afterAll(async () => {
  for (const queue of lanes) await queue.close();
  for (const producer of producers) await producer.stop();
  await connection.stop();
  await pool.end();
  await redis.kill();
});

/** A web process, reduced to its envelopes. */
function edge({ backlog = 0 } = {}) {
  const producer = openProducer(connection, { pool, timeout: 5000, log });
  producers.push(producer);
  const commit = createGroupCommit(producer, {
    ...{ lanes: LANES, maxEnvelopeObjects: 100, maxPendingObjects: 1e6, maxPendingBytes: 1e9 },
    backlog: () => backlog,
  });
  return {
    producer,
    send: (workspace: string, ...objects: AcceptedObject[]) =>
      commit.enqueue(requestOf(workspace), objects, { bytes: 100 }),
  };
}

async function createIn(shard: number): Promise<string> {
  const id = uuidv7();
  await pool.query('insert into workspaces (id, name, shard) values ($1::uuid, $1::text, $2)', [id, shard]);
  return id;
}

const requestOf = (workspace_id: string) => ({
  ...{ request_id: uuidv7(), workspace_id, accepted_at: new Date().toISOString() },
});

const event = (user: string): AcceptedObject => ({
  ...{ kind: 'events', id: uuidv7(), index: 0, identifier: { external_id: user } },
  ...{ name: 'seen', time: '2026-01-31T12:00:00.000Z' },
});

const deletion = (user: string): AcceptedObject => ({
  ...{ kind: 'delete', id: uuidv7(), index: 0, user: { identifier: { external_id: user } } },
});

/** Lanes that hold envelopes of a workspace, each once. */
async function lanesOf(workspace: string): Promise<number[]> {
  const held = await Promise.all(lanes.map((queue) => queue.getJobs(['waiting'])));
  return held.flatMap((jobs, lane) =>
    jobs.some(({ data }) => JSON.stringify(data).includes(workspace)) ? [lane] : [],
  );
}

const shardsOf = async (workspace: string) =>
  new Set((await lanesOf(workspace)).map((lane) => Math.floor(lane / LANES)));

test('G7: all jobs of a workspace, including fences, are in the lanes of its shard', async () => {
  const { send } = edge();
  for (const shard of [0, 1, 2]) {
    const workspace = await createIn(shard);
    await send(workspace, ...['a', 'b', 'c', 'd', 'e'].map(event));
    await send(workspace, deletion('a'));
    expect(await lanesOf(workspace)).toContain(shard * LANES);
    expect(await shardsOf(workspace)).toEqual(new Set([shard]));
  }
  const fences = await lanes[5]!.getJobs(['waiting']);
  // The home lane of the workspace comes first.
  expect(fences.flatMap(({ data }) => data.fence?.lanes.toSorted() ?? [])).toEqual([4, 5]);
});

test('G8: a noisy workspace has a share of each flush while another shard is used', async () => {
  const [noisy, quiet] = [await createIn(1), await createIn(2)];
  const { send } = edge({ backlog: 100 });
  const hundred = () => Array.from({ length: 100 }, () => event('noisy'));
  /** Number of objects in the largest flush of concurrent requests. */
  const largest = async () => {
    const flushes = await Promise.all(Array.from({ length: 20 }, () => send(noisy, ...hundred())));
    return Math.max(
      ...flushes.map((entries) => entries.reduce((sum, { envelope }) => sum + envelope.objects.length, 0)),
    );
  };
  expect(await largest()).toBeGreaterThan(1000);
  await send(quiet, event('quiet'));
  expect(await largest()).toBeLessThanOrEqual(500);
});

test('the first shard has the keys of an installation without shards, so upgrades find them', async () => {
  await edge().send(await createIn(0), event('a'), event('b'), event('c'));
  const keys = await connection.redis!.keys('*');
  expect(keys).toContain('{penstock}:lane-0:wait');
  expect(keys.filter((key) => /^\{penstock_[12]\}:lane-[01]:/.test(key))).toEqual([]);
});

test('envelopes that were packed earlier go to the shard of their workspace', async () => {
  const workspace = await createIn(2);
  const { producer } = edge();
  await producer.add(
    pack([{ request: requestOf(workspace), objects: [event('a')], bytes: 100 }], LANES, 100),
  );
  expect(await shardsOf(workspace)).toEqual(new Set([2]));
});

test('G3: a shard gets no more jobs of a workspace that left it, even from uninformed processes', async () => {
  const workspace = await createIn(0);
  const [mover, ...others] = [edge(), edge(), edge()];
  for (const { send } of others) await send(workspace, event('before'));
  const moves = openMoves(connection.redis!, 5000);
  expect(await moves.begin(0, workspace, { to: 1, number: 1 })).toBe(true);
  let accepted = 0;
  let stops = false;
  const sending = others.map(async ({ send }) => {
    while (!stops) await send(workspace, event('meanwhile')).then(() => accepted++);
  });
  await sleep(KNOWN_MS);
  // From here on, accepted requests are held until their shard is known.
  const atOld = async () => (await Promise.all([0, 1].map((lane) => lanes[lane]!.getWaitingCount()))).join();
  const left = await atOld();
  const before = accepted;
  await sleep(100);
  expect([await atOld(), accepted]).toEqual([left, before]);
  expect(await moves.end(0, workspace, 1)).toBe(true);
  await waitUntil(() => accepted > before, { what: 'the held requests' });
  stops = true;
  await Promise.all(sending);
  expect(await atOld()).toBe(left);
  expect(await shardsOf(workspace)).toEqual(new Set([0, 1]));
  // This process has not read the move, and Postgres has the old shard.
  await mover!.send(workspace, event('after'));
  expect(await atOld()).toBe(left);
  await waitUntil(async () => (await findHomes(pool, [workspace])).get(workspace)?.shard === 1, {
    what: 'Postgres to hear of it',
  });
});

test('a move that exceeds its deadline is cancelled, and held requests go to the old shard', async () => {
  const workspace = await createIn(0);
  const { send } = edge();
  await send(workspace, event('before'));
  const moves = openMoves(connection.redis!, 5000);
  await moves.begin(0, workspace, { to: 2, number: 1 });
  await sleep(KNOWN_MS);
  const from = performance.now();
  await send(workspace, event('held'));
  expect(performance.now() - from).toBeLessThan(2 * HOLD_MS);
  expect(await moves.end(0, workspace, 1)).toBe(false);
  expect(await shardsOf(workspace)).toEqual(new Set([0]));
});

test('requests follow a workspace that moves back and forth between shards', async () => {
  const workspace = await createIn(0);
  const [one, other] = [edge(), edge()];
  await other.send(workspace, event('before'));
  const moves = openMoves(connection.redis!, 5000);
  let from = 0;
  for (const [index, to] of [1, 2, 0, 2, 1].entries()) {
    // On a slow machine the deadline of the move may pass; the move is then repeated.
    await waitUntil(
      async () => {
        await moves.begin(from, workspace, { to, number: index + 1 });
        await sleep(KNOWN_MS);
        return moves.end(from, workspace, index + 1);
      },
      { what: 'the workspace to move' },
    );
    for (const queue of lanes) await queue.drain();
    await one.send(workspace, event('after'));
    expect(await shardsOf(workspace)).toEqual(new Set([to]));
    from = to;
  }
  for (const queue of lanes) await queue.drain();
  // This process only knows the first shard.
  await other.send(workspace, event('after'));
  expect(await shardsOf(workspace)).toEqual(new Set([1]));
});
