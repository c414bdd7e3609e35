import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Lease } from '../../src/queue/lane-store.ts';
import { envelopeId, type LaneEntry } from '../../src/queue/lanes.ts';
import { READS } from '../../src/queue/wire.ts';
import { createOvertaking } from '../../workers/lane/overtaking.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { attributes, deliver, event, lockUsers, waitForLocks, waitingSince } from './batch.ts';
import { createFenceScene } from './fence-scene.ts';

describe.each(['redis', 'postgres'] as const)('a lane on %s that somebody floods', (kind) => {
  let scene: Awaited<ReturnType<typeof createFenceScene>>;
  let [quiet, other]: TestWorkspace[] = [];
  beforeAll(async () => {
    scene = await createFenceScene(kind);
    quiet = await createWorkspace(scene.pool, 'quiet');
    other = await createWorkspace(scene.pool, 'other');
  });
  afterAll(() => scene.stop());

  /** An envelope of these workspaces, as web packs it. */
  const of = (workspaces: Pick<TestWorkspace, 'id'>[], ...objects: AcceptedObject[]): LaneEntry => {
    const parts = workspaces.map((workspace) => deliver(workspace, objects));
    const requests = parts.flatMap(({ envelope }) =>
      envelope.requests.map((request) => ({ ...request, count: objects.length })),
    );
    const each = parts.flatMap(({ envelope }) => envelope.objects);
    return {
      ...{ lane: 0, id: envelopeId(workspaces.map(({ id }) => id)) },
      envelope: {
        requests,
        objects: each.map((object, place) => ({
          ...object,
          id: place === 0 ? object.id : crypto.randomUUID(),
        })),
      },
    };
  };
  const step = (user: string, number: number) =>
    attributes(user, { change: { trail: { array: { add: [String(number)] } } } });
  const trailOf = async (workspace: TestWorkspace, user: string) => {
    const { rows } = await scene.pool.query(
      `select custom_attributes -> 'trail' as trail from profiles where workspace_id = $1 and external_id = $2`,
      [workspace.id, user],
    );
    return rows[0]?.trail ?? [];
  };
  async function addOneByOne(entries: LaneEntry[]): Promise<void> {
    for (const entry of entries) await scene.producer.add([entry]);
  }

  describe('with a worker', () => {
    let stop: () => Promise<unknown>;
    beforeEach(() => {
      stop = scene.startWorker([0]);
    });
    afterEach(() => stop());
    const applied = (entries: LaneEntry[]) =>
      waitUntil(async () => (await Promise.all(entries.map(({ id }) => scene.ledger(id)))).every(Boolean), {
        what: 'the envelopes to take effect',
      });

    test('lets a quiet workspace have its turn while the flood in front of it is still in work, and leaves nothing in the lane', async () => {
      const user = `${kind}-flooded`;
      await scene.producer.add([of([scene.workspace], step(user, -1))]);
      await waitUntil(async () => (await trailOf(scene.workspace, user)).length === 1, { what: 'the user' });
      const blocker = await scene.pool.connect();
      await blocker.query('begin');
      await blocker.query('select from profiles where workspace_id = $2 and external_id = $1 for update', [
        user,
        scene.workspace.id,
      ]);
      const flood = Array.from({ length: 40 }, (_, number) => of([scene.workspace], step(user, number)));
      const calm = Array.from({ length: 4 }, (_, number) => of([quiet!], step(`${kind}-calm`, number)));
      const shared = of([quiet!, other!], event(`${kind}-shared`));
      await addOneByOne([
        ...flood.slice(0, 20),
        ...calm.slice(0, 2),
        ...flood.slice(20),
        ...calm.slice(2),
        shared,
      ]);
      await applied([...calm, shared]);
      for (const { id } of flood) expect(await scene.ledger(id)).toBe(false);
      await blocker.query('commit');
      blocker.release();
      await applied(flood);
      expect(await trailOf(quiet!, `${kind}-calm`)).toEqual(['0', '1', '2', '3']);
      expect(await trailOf(scene.workspace, user)).toEqual(
        Array.from({ length: 41 }, (_, place) => String(place - 1)),
      );
      await waitUntil(
        async () => (await scene.jobs(0, 'waiting')).length + (await scene.jobs(0, 'active')).length === 0,
        { what: 'an empty lane' },
      );
    });
  });

  test('G3, G8: a quiet workspace has its turn in another lane while a flood is in work, and keeps its order', async () => {
    waitForLocks();
    const stop = scene.startWorker([0, 1]);
    const user = `${kind}-flooded-beside`;
    await scene.producer.add([of([scene.workspace], step(user, -1))]);
    await waitUntil(async () => (await trailOf(scene.workspace, user)).length === 1, { what: 'the user' });
    const release = await lockUsers(scene.pool, 'workspace_id = $2 and external_id = $1', [
      user,
      scene.workspace.id,
    ]);
    const flood = of([scene.workspace], step(user, 0), ...Array.from({ length: 300 }, () => event(user)));
    const calm = Array.from({ length: 6 }, (_, number) => ({
      ...of([quiet!], step(`${kind}-beside`, number)),
      lane: 1,
    }));
    try {
      await scene.producer.add([flood]);
      const since = await waitUntil(() => waitingSince(scene.pool), { what: 'the flood in work' });
      await addOneByOne(calm);
      await waitUntil(async () => (await trailOf(quiet!, `${kind}-beside`)).length === 6, {
        what: 'the quiet workspace',
      });
      // Behind its failure nobody would wait either.
      expect(await waitingSince(scene.pool)).toBe(since);
    } finally {
      await release();
    }
    await waitUntil(() => scene.ledger(flood.id), { what: 'the flood' });
    expect(await trailOf(quiet!, `${kind}-beside`)).toEqual(calm.map((_, number) => String(number)));
    await stop();
  });

  const ids = (entries: { id: string }[]) => entries.map(({ id }) => id);

  describe('of what is handed out with what was seen behind it', () => {
    const part = ([head, ...following]: LaneEntry[]) => {
      const seen = following.map(({ id, envelope }) => ({ id, envelope, size: 0 }));
      const { along, beside } = createOvertaking(scene.laneStore, READS).part({ ...head!, lane: 0 }, seen);
      return { along: ids(along), beside: ids(beside) };
    };
    const many = Array.from({ length: 250 }, () => event('ann'));

    test('a flood and the others are applied side by side, each in its order', () => {
      const [a, b] = [scene.workspace, quiet!];
      const entries = [of([a], ...many), of([b], event('ann')), of([a], ...many), of([b], event('bob'))];
      expect(part(entries)).toEqual({ along: [entries[2]!.id], beside: [entries[1]!.id, entries[3]!.id] });
    });

    test('a quiet workspace in front takes no flood along', () => {
      const [a, b, c] = [scene.workspace, quiet!, other!];
      const entries = [
        of([b], event('ann')),
        of([a], ...many),
        of([c], event('ann')),
        of([a, c], event('ann')),
        of([c], event('bob')),
      ];
      expect(part(entries)).toEqual({ along: [entries[2]!.id], beside: [] });
    });

    test('those who have little are one transaction', () => {
      const [a, b] = [scene.workspace, quiet!];
      const entries = [of([a], event('ann')), of([b], event('ann')), of([a, b], event('ann'))];
      expect(part(entries)).toEqual({ along: ids(entries.slice(1)), beside: [] });
    });
  });

  describe('a look', () => {
    afterEach(() => scene.queues[0]!.drain());
    const look = (job: Lease, inHand: LaneEntry[]) =>
      createOvertaking(scene.laneStore, READS).find(
        job,
        inHand.map(({ id, envelope }) => ({ id, lane: 0, envelope })),
      );
    const find = async (inHand: LaneEntry[], behind: LaneEntry[]) => {
      await addOneByOne([...inHand, ...behind]);
      const job = await scene.handOut('mine');
      const found = await look({ lane: 0, id: job.id!, token: 'mine' }, inHand);
      await job.moveToCompleted(undefined as never, 'mine', false);
      return found.map(({ id }) => behind.findIndex((entry) => entry.id === id));
    };
    const [ann, bob] = [event('ann'), event('bob')];

    test('finds envelopes of each workspace that has nothing in hand, behind whatever stands in front', async () => {
      const [a, b, c] = [scene.workspace, quiet!, other!];
      expect(
        await find([of([a], ann)], [of([a], ann), of([b], ann), of([b], bob), of([a], ann), of([c], ann)]),
      ).toEqual([1, 2, 4]);
    });

    test('G3: finds no envelope that shares a workspace with what is in hand or passed over', async () => {
      const [a, b, c] = [scene.workspace, quiet!, other!];
      expect(await find([of([a], ann)], [of([a, b], ann), of([b], bob), of([c], bob)])).toEqual([2]);
      await scene.queues[0]!.drain();
      expect(await find([of([a], ann)], [of([b], ann), of([b, c], bob), of([c], bob)])).toEqual([0, 1, 2]);
    });

    test('G3: finds nothing behind a fence, nor behind what does not tell whose it is', async () => {
      const a = scene.workspace;
      const [carrier] = scene.fence([0, 1], ann);
      expect(await find([of([a], ann)], [carrier!, of([quiet!], ann)])).toEqual([]);
      await scene.queues[0]!.drain();
      expect(await find([of([a], ann)], [scene.plain(0, ann), of([quiet!], ann)])).toEqual([]);
    });

    test('G3: finds nothing once the job in work is somebody else’s: the first of a workspace may be in work there', async () => {
      const [a, b] = [scene.workspace, quiet!];
      const entries = [of([a], ann), of([b], ann), of([b], bob)];
      await addOneByOne(entries);
      const mine = await scene.handOut('mine');
      const job = { lane: 0, id: mine.id!, token: 'mine' };
      expect(ids(await look(job, entries.slice(0, 1)))).toEqual(ids(entries.slice(1)));
      await mine.moveToWait('mine');
      await (await scene.handOut('other')).moveToCompleted(undefined as never, 'other', false);
      const next = await scene.handOut('other');
      expect(next.id).toBe(entries[1]!.id);
      expect(await look(job, entries.slice(0, 1))).toEqual([]);
      await next.moveToCompleted(undefined as never, 'other', false);
    });

    test('leaves room for others where one workspace has many envelopes behind the flood', async () => {
      const many = Array.from({ length: 40 }, () => of([quiet!], ann));
      const found = await find([of([scene.workspace], ann)], [...many, of([other!], ann)]);
      expect(found).toContain(40);
      expect(found).toHaveLength(9);
    });

    test('G3: a shared envelope passes no earlier one of its workspaces, also where a look has no room for that', async () => {
      const [a, b, c] = [scene.workspace, quiet!, other!];
      const nine = Array.from({ length: 9 }, () => of([b], ann));
      const found = await find([of([a], ann)], [...nine, of([c], ann), of([b, c], bob), of([c], bob)]);
      expect(found).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 9]);
    });

    test('looks at nothing while all that is in hand is shared: then nobody floods', async () => {
      const [a, b] = [scene.workspace, quiet!];
      expect(await find([of([a, b], ann)], [of([other!], ann)])).toEqual([]);
    });
  });
});
