import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { v7 } from 'uuid';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { AcceptedObject, Envelope } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { Queue } from '../../src/queue/bullmq.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import { laneName } from '../../src/queue/lanes.ts';
import type { Database } from '../../src/store/database.ts';
import { insertDeadLetters } from '../../src/store/failed-objects.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createBareDatabase, createDatabase, startRedis, temporaryFolder } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

interface Scene {
  on: PenstockOn;
  database: Database;
  shop: string;
  school: string;
  /** Reads the ids of the objects that wait in the lane, in order. */
  inLane(): Promise<string[]>;
}

const opened: Database[] = [];
afterAll(async () => {
  for (const database of opened) await database.stop();
});

/** Creates two workspaces in the database at `url`. */
async function openScene(url: string, redisUrl = ''): Promise<Scene> {
  const on = penstockOn(url, { REDIS_URL: redisUrl });
  const database = openDatabase(url, 1);
  opened.push(database);
  const [shop = '', school = ''] = await makeWorkspaces(url, 'shop', 'school');
  return {
    on,
    database,
    shop,
    school,
    async inLane() {
      const queue = connectWorker(readConfig({ REDIS_URL: redisUrl }), url);
      const lane = new Queue<Envelope>(laneName(0), queue.options, queue.factory);
      const jobs = await lane.getJobs(['waiting'], 0, -1, true);
      await lane.close();
      await queue.stop();
      return jobs.flatMap((job) => job.data.objects.map((object) => object.id));
    },
  };
}

/** Inserts a dead letter of an event as a worker does. The ids ascend in the order of the calls. */
async function fail({ database }: Scene, workspaceId: string, name = 'bought'): Promise<string> {
  const id = v7();
  const object: AcceptedObject = {
    ...{ kind: 'events', id, index: 0, create: true },
    ...{ identifier: { external_id: 'u' }, name, time: '2026-07-01T10:00:00.000Z' },
  };
  const connection = await database.pool.connect();
  await insertDeadLetters(connection, [
    {
      ...{ id, workspaceId, requestId: 'request-of-this', kind: 'events', jobName: 'envelope', object },
      identifiers: [{ external_id: 'u' }],
      reason: 'the value does not fit',
    },
  ]).finally(() => connection.release());
  return id;
}

const ids = (page: { dead_letters: { dead_letter_id: string }[] }) =>
  page.dead_letters.map((row) => row.dead_letter_id);
const nobody = '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f';

describe('dead-letters list', () => {
  let scene: Scene;
  let first: string;
  let second: string;
  let third: string;
  beforeAll(async () => {
    scene = await openScene((await createDatabase()).url);
    first = await fail(scene, scene.shop);
    second = await fail(scene, scene.school);
    third = await fail(scene, scene.shop);
    await scene.database.pool.query("update dead_letters set state = 'replayed' where id = $1", [first]);
  });

  test('lists the newest dead letter first, with reason and request', async () => {
    const page = await scene.on.json('dead-letters list');
    expect(ids(page)).toEqual([third, second, first]);
    expect(page.dead_letters[0]).toEqual({
      dead_letter_id: third,
      failed_at: expect.any(String),
      workspace: 'shop',
      state: 'waiting',
      kind: 'events',
      request_id: 'request-of-this',
      reason: 'the value does not fit',
    });
    expect((await scene.on.run('dead-letters list')).stdout).toMatch(
      /^dead_letter_id +failed_at +workspace +state /,
    );
  });

  test('filters by workspace and state, and pages', async () => {
    expect(ids(await scene.on.json('dead-letters list --workspace shop'))).toEqual([third, first]);
    expect(ids(await scene.on.json('dead-letters list --workspace shop --state waiting'))).toEqual([third]);
    const page = await scene.on.json('dead-letters list --limit 2');
    expect(page).toMatchObject({ next: second });
    expect(ids(await scene.on.json(['dead-letters', 'list', '--after', page.next]))).toEqual([first]);
  });

  test('rejects an unknown state and lists the known states', async () => {
    expectRefusal(
      await scene.on.run('dead-letters list --state lost'),
      "'lost'",
      'waiting, replaying, replayed',
    );
  });
});

describe('dead-letters show', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await openScene((await createDatabase()).url);
  });

  test('shows object, reason and request, even with characters that jsonb rejects', async () => {
    const id = await fail(scene, scene.shop, 'zero \u0000 half \ud800');
    const deadLetter = await scene.on.json(['dead-letters', 'show', id]);
    expect(deadLetter).toMatchObject({
      dead_letter_id: id,
      workspace: 'shop',
      reason: 'the value does not fit',
      state: 'waiting',
      replays: 0,
      replayed_at: null,
      object: { id, kind: 'events', name: 'zero \u0000 half \ud800', identifier: { external_id: 'u' } },
    });
    const { stdout } = await scene.on.run(['dead-letters', 'show', id]);
    expect(stdout).toMatch(/^reason +the value does not fit$/m);
    expect(stdout).toContain('"external_id": "u"');
  });

  test('rejects an unknown id and names it', async () => {
    expectRefusal(await scene.on.run(['dead-letters', 'show', nobody]), nobody, 'dead-letters list');
  });
});

describe.each(['postgres', 'redis'] as const)('dead-letters replay, with the queue in %s', (kind) => {
  let scene: Scene;
  let redisUrl: string | undefined;
  beforeAll(async () => {
    redisUrl = kind === 'redis' ? (await startRedis()).url : undefined;
  });
  beforeEach(async () => {
    scene = await openScene((await createDatabase()).url, redisUrl);
  });

  test('enqueues the named dead letters once and lists the unknown ids', async () => {
    const [one, two, other] = [
      await fail(scene, scene.shop),
      await fail(scene, scene.shop),
      await fail(scene, scene.shop),
    ];
    const replay = ['dead-letters', 'replay', one, nobody, two, '--json'];
    const { code, stdout, stderr } = await scene.on.run(replay);
    const counted = { enqueued: 2, already_replayed: 0, discarded: 0, unknown: [nobody] };
    expect({ code, ...JSON.parse(stdout) }).toEqual({ code: 1, ...counted });
    expect(stderr).toBe(`error: no dead letter has the id ${nobody}\n`);
    await scene.on.json(['dead-letters', 'replay', one]);
    expect((await scene.inLane()).filter((id) => [one, two, other].includes(id))).toEqual([one, two]);
  });

  test('--all enqueues every dead letter without effect in the order of acceptance', async () => {
    const deadLetters: string[] = [];
    for (let count = 0; count < 205; count++)
      deadLetters.push(await fail(scene, count % 2 ? scene.school : scene.shop));
    await scene.database.pool.query("update dead_letters set state = 'replayed' where id = $1", [
      deadLetters.pop(),
    ]);
    const atSchool = deadLetters.filter((_, index) => index % 2);
    const counted = await scene.on.json('dead-letters replay --all --workspace school');
    expect(counted).toEqual({ enqueued: atSchool.length, already_replayed: 0, discarded: 0, unknown: [] });
    expect((await scene.inLane()).filter((id) => deadLetters.includes(id))).toEqual(atSchool);

    const { code, stdout, stderr } = await scene.on.run('dead-letters replay --all');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toBe('204 enqueued, 0 had already taken effect\n');
    expect((await scene.inLane()).filter((id) => deadLetters.includes(id)).sort()).toEqual(deadLetters);
  });
});

describe('dead-letters replay', () => {
  test('requires either ids or --all, and allows --workspace only with --all', async () => {
    const { on } = await openScene((await createDatabase()).url);
    expectRefusal(await on.run('dead-letters replay'), '--all');
    expectRefusal(await on.run(['dead-letters', 'replay', nobody, '--all']), '--all');
    expectRefusal(
      await on.run(['dead-letters', 'replay', nobody, '--workspace', 'shop']),
      '--workspace needs --all',
    );
    expectRefusal(await on.run('dead-letters replay 7'), 'UUID');
    expectRefusal(await on.run('dead-letters replay --all --workspace moon'), "'moon'");
  });

  test('reports zero counts if there are no dead letters', async () => {
    const { on } = await openScene((await createDatabase()).url);
    expect(await on.json('dead-letters replay --all')).toEqual({
      enqueued: 0,
      already_replayed: 0,
      discarded: 0,
      unknown: [],
    });
  });

  test('is rejected without REDIS_URL if the queue of the workers is in Redis', async () => {
    const { url } = await createBareDatabase();
    await migrate(url, 'redis');
    expectRefusal(await penstockOn(url).run('dead-letters replay --all'), 'REDIS_URL');
  });

  test('is rejected while Redis is unavailable, and the dead letters stay waiting', async () => {
    const redis = await startRedis();
    const scene = await openScene((await createDatabase()).url, redis.url);
    const deadLetter = await fail(scene, scene.shop);
    await redis.stop();
    expectRefusal(await scene.on.run('dead-letters replay --all'), 'REDIS_URL cannot be reached');
    expect(await scene.on.json(['dead-letters', 'show', deadLetter])).toMatchObject({
      state: 'waiting',
      replays: 0,
    });
  });
});

describe('dead-letters discard', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await openScene((await createDatabase()).url);
  });

  test('discards dead letters with a reason; they stay listed and cannot be replayed', async () => {
    const [one, other] = [await fail(scene, scene.shop), await fail(scene, scene.shop)];
    const { code, stdout, stderr } = await scene.on.run([
      ...['dead-letters', 'discard', one, nobody, '--reason', 'a test of the shop', '--json'],
    ]);
    expect({ code, ...JSON.parse(stdout) }).toEqual({ code: 1, discarded: 1, not_waiting: [nobody] });
    expect(stderr).toBe(`error: no waiting dead letter has the id ${nobody}\n`);
    expect(await scene.on.json(['dead-letters', 'show', one])).toMatchObject({
      state: 'discarded',
      discard_reason: 'a test of the shop',
      discarded_by: expect.stringMatching(/ \(command line\)$/),
    });
    expect(ids(await scene.on.json('dead-letters list --state discarded'))).toEqual([one]);
    expect(await scene.on.json('dead-letters replay --all')).toMatchObject({ enqueued: 1 });
    expect(await scene.on.json(['dead-letters', 'replay', one])).toMatchObject({ enqueued: 0, discarded: 1 });
    expect(await scene.inLane()).toEqual([other]);
  });

  test('requires a reason', async () => {
    expectRefusal(await scene.on.run(['dead-letters', 'discard', nobody]), '--reason');
    expectRefusal(await scene.on.run(['dead-letters', 'discard', nobody, '--reason', ' ']), 'characters');
  });
});

describe('dead-letters mend', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await openScene((await createDatabase()).url);
  });

  test('replaces the failed object with the object in a file and replays it', async () => {
    const id = await fail(scene, scene.shop);
    const file = path.join(temporaryFolder('mend-'), 'object.json');
    const { object } = await scene.on.json(['dead-letters', 'show', id]);
    writeFileSync(file, JSON.stringify({ ...object, name: 'mended' }));
    const { code, stdout } = await scene.on.run(['dead-letters', 'mend', id, '--file', file]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'replaced and enqueued\n' });
    expect(await scene.on.json(['dead-letters', 'show', id])).toMatchObject({
      ...{ state: 'replaying', object: { name: 'mended' }, mended_at: expect.any(String) },
    });
    expect(await scene.inLane()).toEqual([id]);
    expectRefusal(await scene.on.run(['dead-letters', 'mend', id, '--file', file]), 'it is replaying');
  });

  test('rejects an invalid object, a missing file and an unknown dead letter', async () => {
    const id = await fail(scene, scene.shop);
    const file = path.join(temporaryFolder('mend-'), 'object.json');
    const fix = (deadLetter: string) => scene.on.run(['dead-letters', 'mend', deadLetter, '--file', file]);
    expectRefusal(await fix(id), 'cannot be read');
    writeFileSync(file, '{"kind":');
    expectRefusal(await fix(id), 'not valid JSON');
    writeFileSync(file, '{"kind":"purchases"}');
    expectRefusal(await fix(id), "'kind' must stay 'events'");
    expectRefusal(await fix(nobody), `no dead letter has the id ${nobody}`);
    expect(await scene.on.json(['dead-letters', 'show', id])).toMatchObject({ state: 'waiting' });
  });
});
