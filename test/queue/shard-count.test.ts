import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { connectProducer } from '../../src/queue/connection.ts';
import { joinInstallation } from '../../src/queue/installation.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { findHomes } from '../../src/store/queue-shards.ts';
import { expectRefusal, type PenstockOn, penstockOn } from '../admin/penstock.ts';
import { createInstallation, type Installation, log } from '../board/installation.ts';
import { waitUntil } from '../setup/fixtures.ts';

/** An installation with four lanes, at first in one shard. */
let installation: Installation;
let on: PenstockOn;
beforeAll(async () => {
  installation = await createInstallation('redis');
  const { DATABASE_URL, REDIS_URL } = installation.env;
  on = penstockOn(DATABASE_URL, { REDIS_URL: REDIS_URL! });
  await (await join(1)).stop();
});
afterAll(() => installation.stop());

const join = (SHARDS: number, name = 'web') =>
  joinInstallation({
    ...{ name, config: { LANES: 4, SHARDS }, pool: installation.database.pool, log },
    connection: installation.connection,
  });

/** Adds one envelope to a lane, which is numbered among all lanes of three shards. */
async function holdOne(lane: number): Promise<void> {
  const { DATABASE_URL } = installation.env;
  const connection = connectProducer(readConfig({ ...installation.env, SHARDS: '3' }), DATABASE_URL);
  const producer = createLaneProducer(connection, { timeout: 5000, log });
  await waitUntil(connection.ready, { what: 'Redis' });
  await producer.add([{ lane, id: uuidv7(), envelope: { requests: [], objects: [] } }]);
  await producer.stop();
  await connection.stop();
}

const show = () => on.json('queue show') as Promise<object>;

async function createIn(shard: number): Promise<string> {
  const id = uuidv7();
  await installation.database.pool.query(
    'insert into workspaces (id, name, shard) values ($1::uuid, $1::text, $2)',
    [id, shard],
  );
  return id;
}

const homeOf = async (id: string) => (await findHomes(installation.database.pool, [id])).get(id);

test('G3: shards are not changed while a process runs, because it would use the old ones', async () => {
  const member = await join(1, 'worker');
  const inVain = await on.run('queue set-lanes 4 --shards 3 --wait 1');
  expect(inVain).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/the number of shards is still 1: worker .* runs/),
  });
  await member.stop();
});

test('more shards need no empty lanes: lanes keep their numbers and workspaces their shards', async () => {
  const workspace = await createIn(0);
  await holdOne(3);
  expect(await on.json('queue set-lanes 4 --shards 3')).toEqual({
    ...{ lanes: 4, before: 4, shards: 3, shards_before: 1 },
  });
  expect(await show()).toMatchObject({ lanes: 4, shards: 3 });
  expect(await homeOf(workspace)).toEqual({ shard: 0, moves: 0 });
  expect(await installation.laneQueues[3]!.getWaitingCount()).toBe(1);
});

test('G3: a process with another number of shards does not start, and the error names both', async () => {
  await expect(join(1)).rejects.toThrow(/SHARDS is 1, and this installation has 3/);
  await (await join(3)).stop();
});

test('a new workspace gets the shard with the fewest workspaces', async () => {
  for (const shard of [1, 2]) {
    await on.json(`workspaces create --name of-${shard}`);
    const { rows } = await installation.database.pool.query('select shard from workspaces where name = $1', [
      `of-${shard}`,
    ]);
    expect(rows).toEqual([{ shard }]);
  }
});

test('G3: a change of lanes, or fewer shards, requires all lanes of all shards to be empty', async () => {
  for (const queue of installation.laneQueues) await queue.drain();
  await holdOne(11);
  expectRefusal(await on.run('queue set-lanes 4 --shards 1'), 'the number of shards is still 3', '1 jobs');
  expectRefusal(await on.run('queue set-lanes 2'), 'the number of lanes is still 4', '1 jobs');
  await installation.connection.redis!.flushall();
});

test('with fewer shards, workspaces of removed shards move to the remaining ones', async () => {
  const [stays, first, second] = [await createIn(1), await createIn(2), await createIn(2)];
  const { stdout } = await on.run('queue set-lanes 4 --shards 2');
  expect(stdout).toContain('Start every process with LANES=4 and SHARDS=2.');
  expect(await homeOf(stays)).toEqual({ shard: 1, moves: 0 });
  const moved = [await homeOf(first), await homeOf(second)];
  expect(moved.map((home) => home!.moves)).toEqual([1, 1]);
  expect(moved.every((home) => home!.shard < 2)).toBe(true);
  expect(await on.json('queue set-lanes 4 --shards 1')).toMatchObject({ shards: 1, shards_before: 2 });
  expect(await homeOf(stays)).toEqual({ shard: 0, moves: 1 });
  expect(await show()).not.toHaveProperty('shards');
  await (await join(1)).stop();
});
