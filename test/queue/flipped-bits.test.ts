import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readRedis } from '../../src/admin/doctor/stores.ts';
import { findProblems } from '../../src/checks/registry.ts';
import { readConfig } from '../../src/platform/config.ts';
import { connectProducer } from '../../src/queue/connection.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { type LaneEntry, markOf } from '../../src/queue/lanes.ts';
import { additionsOf } from '../../src/queue/loss.ts';
import { encodeEnvelope, type WireEnvelope } from '../../src/queue/wire.ts';
import { createRandom } from '../../tools/load/random.ts';
import { startRedis, type TestRedis, temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { lengthOf } from '../setup/length.ts';
import { event, readDeadLetters, readSums } from '../workers/batch.ts';
import { createFenceScene, type FenceScene } from '../workers/fence-scene.ts';

const settings = { LANES: '3', LOCK_DURATION_MS: '2000', STALLED_INTERVAL_MS: '500' };

/** Starts a Redis with one envelope for each of three users in lane 0. */
async function fill() {
  const redis = await startRedis();
  const scene = await createFenceScene('redis', { ...settings, REDIS_URL: redis.url });
  const operator = new Redis(redis.url);
  await operator.set(markOf(0), 'mark');
  operator.disconnect();
  const entries = ['user-ann', 'user-bea', 'user-cyd'].map((user) => scene.plain(0, event(user)));
  for (const entry of entries) await scene.producer.add([entry]);
  return { scene, redis, entries };
}

/** The append-only file. */
function commandsIn(dir: string): string {
  const folder = path.join(dir, 'appendonlydir');
  return path.join(folder, readdirSync(folder).find((name) => name.endsWith('.incr.aof'))!);
}

function flip(file: string, bit: number): void {
  const bytes = readFileSync(file);
  bytes[bit >> 3]! ^= 1 << (bit & 7);
  writeFileSync(file, bytes);
}

/** Flips a bit of the first byte of a word in the file. */
function flipWord(dir: string, word: string): void {
  const file = commandsIn(dir);
  const at = readFileSync(file).indexOf(word);
  expect(at, `${word} is in the file`).toBeGreaterThan(0);
  flip(file, at * 8);
}

async function applied(scene: FenceScene, objects: number) {
  return waitUntil(
    async () => {
      const [deadLetters, sums] = [
        await readDeadLetters(scene.pool),
        await readSums(scene.pool, scene.workspace),
      ];
      return deadLetters.length === 1 && sums.events === objects ? deadLetters : undefined;
    },
    { what: 'the envelopes to take effect', deadline: 30_000 },
  );
}

test.each([
  ['in a value', 'user-bea'],
  ['in the first envelope', 'user-ann'],
  ['in the structure of the text', '{"version":'],
])('a bit flipped %s becomes a dead letter, and the other envelopes are applied', async (_, word) => {
  const { scene, redis } = await fill();
  await redis.kill();
  flipWord(redis.dir, word);
  await startRedis({ port: redis.port, dir: redis.dir });
  onTestFinished(() => scene.stop());
  scene.startWorker([0]);
  const [deadLetter] = await applied(scene, 2);
  expect(deadLetter!.reason).toContain('the job was damaged in Redis: its checksum differs');
});

test('G4: a fence takes effect although its mark in another lane is damaged', async () => {
  const { scene, redis } = await fill();
  await scene.producer.add(scene.fence([0, 1], event('user-dan')));
  await redis.kill();
  flipWord(redis.dir, '{"requests":[],"objects":[],"fence"');
  await startRedis({ port: redis.port, dir: redis.dir });
  onTestFinished(() => scene.stop());
  scene.startWorker([0, 1]);
  const [deadLetter] = await applied(scene, 4);
  expect(deadLetter!.reason).toContain('the job was damaged in Redis');
});

test('each bit flipped in the append-only file is refused by Redis, reported, or harmless', async () => {
  const { scene, redis, entries } = await fill();
  await scene.stop();
  await redis.kill();
  const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
  const random = createRandom(seed);
  const bits = readFileSync(commandsIn(redis.dir)).length * 8;
  const outcomes: Record<string, number> = {};
  for (let left = lengthOf({ short: 12, long: 400 }); left > 0; left--) {
    const dir = temporaryFolder('penstock-flipped-');
    cpSync(redis.dir, dir, { recursive: true });
    const bit = Math.floor(random() * bits);
    flip(commandsIn(dir), bit);
    const outcome = await outcomeOf(dir, entries);
    expect(outcome, `bit ${bit}, seed ${seed}`).toMatch(/^(refused|reported|whole)/);
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  }
  process.stdout.write(`flipped bits: ${JSON.stringify(outcomes)}\n`);
});

/** Ignores other members: the flipped bit may be in the name of the checksum member, which has no effect. */
function contentOf({ requests, objects }: WireEnvelope): string {
  return JSON.stringify({ requests, objects });
}

async function outcomeOf(dir: string, entries: LaneEntry[]): Promise<string> {
  let redis: TestRedis;
  try {
    redis = await startRedis({ dir });
  } catch {
    return 'refused';
  }
  const connection = connectProducer(
    readConfig({ REDIS_URL: redis.url, DATABASE_URL: 'postgres://x/x', ...settings }),
    '',
  );
  const operator = new Redis(redis.url);
  try {
    await waitUntil(() => connection.ready(), { what: 'Redis' });
    const [mark, additions] = await operator.mget(markOf(0), additionsOf(0));
    if (mark !== 'mark' || Number(additions) < entries.length) return 'reported as a loss';
    const ids = await connection.laneStore.head(0, 99);
    const read = await connection.laneStore.read(0, ids);
    const result = read.map((one) => (one && 'objects' in one.data ? contentOf(one.data) : 'damaged'));
    const sent = entries.map(({ envelope }) => contentOf(encodeEnvelope(envelope)));
    const changed = result.some((text) => text !== 'damaged' && !sent.includes(text));
    if (changed) return `served with changed content: ${result}`;
    if (result.includes('damaged')) return 'reported by a dead letter';
    if (sent.every((text) => result.includes(text)))
      return result.length === sent.length ? 'whole' : 'repeated';
    const machine = await readRedis(connection);
    const problems = findProblems({ at: new Date(), queue: 'redis', lacking: [], machine }, 'machine');
    const isReported = problems.some(({ id }) => id === 'jobs-stray');
    return isReported ? 'reported by the doctor' : `lost: ${ids}`;
  } finally {
    operator.disconnect();
    await connection.stop();
    await redis.kill();
  }
}
