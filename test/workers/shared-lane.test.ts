import { v7 as uuidv7 } from 'uuid';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { LaneEntry } from '../../src/queue/lanes.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyInParts, attributes, deliver, event, point, readSums } from './batch.ts';
import { createFenceScene } from './fence-scene.ts';
import { changesOfFull, countChanged, growFullUsers } from './full-users.ts';

describe.each(['redis', 'postgres'] as const)('G8: a lane on %s with a slow envelope', (kind) => {
  let scene: Awaited<ReturnType<typeof createFenceScene>>;
  let neighbour: TestWorkspace;
  let stop: () => Promise<unknown>;
  beforeAll(async () => {
    scene = await createFenceScene(kind);
    await growFullUsers(scene.pool, scene.workspace.id, { count: 60, milliseconds: 80 });
    neighbour = await createWorkspace(scene.pool, 'neighbour');
  });
  beforeEach(async () => {
    await scene.pool.query(`update profiles set custom_attributes = custom_attributes - 'seen' - 'trail'`);
    stop = scene.startWorker([0]);
  });
  afterEach(() => stop());
  afterAll(() => scene.stop());

  const of = (workspace: Pick<TestWorkspace, 'id'>, ...objects: AcceptedObject[]): LaneEntry => ({
    ...deliver(workspace, objects),
  });
  const isChanged = (count: number) =>
    waitUntil(async () => (await countChanged(scene.pool, scene.workspace.id)) >= count, {
      what: `${count} users to be changed`,
    });
  const laneIsEmpty = () =>
    waitUntil(
      async () => (await scene.jobs(0, 'waiting')).length + (await scene.jobs(0, 'active')).length === 0,
      { what: 'an empty lane' },
    );

  test('applies later envelopes of another workspace once, before the slow one has ended', async () => {
    const long = of(scene.workspace, ...changesOfFull(60));
    await scene.producer.add([long]);
    await isChanged(1);
    const { events } = await readSums(scene.pool, neighbour);
    for (let sent = 1; sent <= 3; sent++) {
      await scene.producer.add([of(neighbour, event('ann'))]);
      await waitUntil(async () => (await readSums(scene.pool, neighbour)).events === events + sent, {
        what: 'the event of the neighbour',
      });
      if (sent === 1) expect(await scene.ledger(long.id)).toBe(false);
    }
    await isChanged(60);
    await laneIsEmpty();
    expect(await scene.ledger(long.id)).toBe(true);
    expect(await readSums(scene.pool, neighbour)).toMatchObject({ events: events + 3, counted: events + 3 });
  });

  test('G3: keeps the order of its own workspace, and of each neighbour', async () => {
    const add = (value: string) => attributes('full-30', { change: { trail: { array: { add: [value] } } } });
    const step = (index: number) =>
      attributes('ann', { change: { trail: { array: { add: [String(index)] } } } });
    await scene.producer.add([of(scene.workspace, ...changesOfFull(30), add('first'))]);
    await isChanged(1);
    const entries = Array.from({ length: 12 }, (_, index) => of(neighbour, step(index)));
    for (const [index, entry] of entries.entries()) {
      await scene.producer.add([entry]);
      if (index % 4 === 1) await scene.producer.add([of(scene.workspace, add(`behind ${index}`))]);
    }
    await laneIsEmpty();
    const { rows } = await scene.pool.query(
      `select external_id as user, custom_attributes -> 'trail' as trail from profiles
       where custom_attributes ? 'trail' order by external_id`,
    );
    expect(rows).toEqual([
      { user: 'ann', trail: entries.map((_, index) => String(index)) },
      { user: 'full-30', trail: ['first', 'behind 1', 'behind 5', 'behind 9'] },
    ]);
  });

  test('G2: does not apply objects again that another worker has applied at the same time', async () => {
    const long = of(
      scene.workspace,
      ...changesOfFull(30).flatMap((change, index) => [change, point(`p${index}`)]),
    );
    const before = await readSums(scene.pool, scene.workspace);
    await scene.producer.add([long]);
    await isChanged(5);
    // Another worker has the same envelope, as after an expired lock.
    await applyInParts(scene.pool, [long]);
    await waitUntil(() => scene.ledger(long.id), { what: 'the last part' });
    await laneIsEmpty();
    expect(await countChanged(scene.pool, scene.workspace.id)).toBe(30);
    expect((await readSums(scene.pool, scene.workspace)).points).toBe(before.points + 30);
  });

  test('applies envelopes of another workspace before a fence that waits for the slow one', async () => {
    const both = scene.startWorker([1]);
    const fence = scene.fence([0, 1], event(uuidv7(), 'fenced'));
    const long = of(scene.workspace, ...changesOfFull(60));
    await scene.producer.add([long]);
    await isChanged(1);
    await scene.producer.add(fence);
    const behind = of(neighbour, event('ann', 'behind'));
    await scene.producer.add([behind]);
    await waitUntil(() => scene.ledger(behind.id), { what: 'the envelope after the fence' });
    expect(await scene.ledger(fence[0]!.id)).toBe(false);
    await waitUntil(() => scene.ledger(fence[0]!.id), { what: 'the fence' });
    expect(await scene.ledger(long.id)).toBe(true);
    await both();
  });
});
