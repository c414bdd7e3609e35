import { v7 as uuidv7, validate, version } from 'uuid';
import { describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { createShardCommit } from '../../src/queue/enqueue.ts';
import {
  envelopeId,
  type LaneEntry,
  type LaneProducer,
  SHARED,
  tagIn,
  tagOf,
} from '../../src/queue/lanes.ts';
import { pack } from '../../src/queue/pack.ts';
import { FlushTurns, Neighbours, packablesOf } from '../../src/queue/turns.ts';

const LIMITS = { objects: 16_000, bytes: 4_000_000 };
const requests = (owner: string, count: number, objects = 75) =>
  Array.from({ length: count }, (_, number) => ({ owner, number, count: objects, bytes: objects * 100 }));
const shared = { areThere: () => true };

describe('a flush', () => {
  const filled = (...items: ReturnType<typeof requests>) => {
    const turns = new FlushTurns<(typeof items)[number]>(shared);
    for (const item of items) turns.push(item);
    return turns;
  };
  const owners = (items: { owner: string }[]) => [...new Set(items.map(({ owner }) => owner))];
  const countOf = (items: { owner: string }[], owner: string) =>
    items.filter((item) => item.owner === owner).length;

  test('gives a noisy workspace 500 objects, and includes all waiting objects of a quiet workspace', () => {
    const taken = filled(...requests('noisy', 200), ...requests('quiet', 1, 1)).take(LIMITS);
    expect(owners(taken)).toEqual(['noisy', 'quiet']);
    expect(countOf(taken, 'noisy')).toBe(6);
  });

  test('gives a workspace with large requests 500 KB', () => {
    const large = requests('large', 200, 1).map((item) => ({ ...item, bytes: 10_240 }));
    const taken = filled(...large, ...requests('quiet', 1, 1)).take(LIMITS);
    expect([countOf(taken, 'large'), countOf(taken, 'quiet')]).toEqual([50, 1]);
  });

  test('serves workspaces that did not fit first in the next flush', () => {
    const noisy = Array.from({ length: 40 }, (_, number) => `noisy-${number}`);
    const turns = filled(...noisy.flatMap((name) => requests(name, 40)), ...requests('quiet', 1, 1));
    expect(owners(turns.take(LIMITS))).not.toContain('quiet');
    expect(owners(turns.take(LIMITS))).toContain('quiet');
  });

  test('gives workspaces equal shares in the long run, regardless of the size of their requests', () => {
    const turns = filled(...requests('large', 100, 2000), ...requests('small', 20_000, 7));
    const objects = new Map<string, number>();
    for (let flush = 0; flush < 100; flush++)
      for (const { owner, count } of turns.take(LIMITS))
        objects.set(owner, (objects.get(owner) ?? 0) + count);
    expect(Math.abs(objects.get('large')! - objects.get('small')!)).toBeLessThanOrEqual(2500);
  });

  test('G3: takes the requests of one workspace in order, even over several flushes', () => {
    const turns = filled(...requests('noisy', 50), ...requests('other', 50));
    const left: number[] = [];
    while (!turns.isEmpty())
      left.push(...turns.take(LIMITS).flatMap(({ owner, number }) => (owner === 'noisy' ? [number] : [])));
    expect(left).toEqual(Array.from({ length: 50 }, (_, number) => number));
  });

  test('takes all requests of a workspace that sends alone or has sent alone for 10 s', () => {
    let now = 0;
    const neighbours = new Neighbours(() => now);
    const turns = new FlushTurns(neighbours);
    const push = (...items: ReturnType<typeof requests>) => {
      for (const item of items) {
        neighbours.meet(item.owner);
        turns.push(item);
      }
    };
    push(...requests('alone', 200));
    expect(turns.take(LIMITS)).toHaveLength(200);
    push(...requests('other', 1));
    turns.take(LIMITS);
    push(...requests('alone', 200));
    expect(turns.take(LIMITS)).toHaveLength(6);
    turns.takeAll();
    now += 11_000;
    push(...requests('alone', 200));
    expect(turns.take(LIMITS)).toHaveLength(200);
  });

  test('takes a request that exceeds the limits of a flush alone', () => {
    const turns = new FlushTurns<ReturnType<typeof requests>[number]>({ areThere: () => false });
    for (const item of [...requests('large', 1, 20_000), ...requests('quiet', 1, 1)]) turns.push(item);
    expect(turns.take(LIMITS)).toHaveLength(1);
    expect(owners(turns.take(LIMITS))).toEqual(['quiet']);
  });
});

describe('envelopes of its own', () => {
  const sent = (workspace_id: string, apart: boolean) => ({
    ...{ request: { request_id: uuidv7(), workspace_id, accepted_at: 'now' }, bytes: 100, apart },
    objects: [
      { kind: 'events', id: uuidv7(), index: 0, identifier: { external_id: 'ann' }, name: 'x', time: 'y' },
    ] as unknown as AcceptedObject[],
  });

  test("contain their workspace's tag in their ids, or the shared tag if several share them", () => {
    const [burst, one, two] = [uuidv7(), uuidv7(), uuidv7()];
    const entries = pack([sent(burst, true), sent(one, false), sent(burst, true), sent(two, false)], 1, 1000);
    expect(
      entries.map(({ id, envelope }) => [
        tagIn(id),
        envelope.requests.map((request) => request.workspace_id),
      ]),
    ).toEqual([
      [tagOf(burst), [burst, burst]],
      [SHARED, [one, two]],
    ]);
  });

  test('are used from 64 objects in a shared flush on, and waiting requests are not modified', async () => {
    const [noisy, one, two] = [uuidv7(), uuidv7(), uuidv7()];
    const commit = createShardCommit(0, {
      ...{ producer: { add: async () => {} } as unknown as LaneProducer, placing: undefined },
      ...{ options: { lanes: 1, maxEnvelopeObjects: 1000 }, neighbours: new Neighbours() },
      ...{ isBehind: () => false, fillsEnvelope: () => false, enter() {} },
      settle: (batch, result) => {
        for (const { resolve } of batch) resolve(result as LaneEntry[]);
      },
    });
    const entered = [noisy, one, noisy, two].map((owner) => {
      const { request, objects, bytes } = sent(owner, false);
      const count = owner === noisy ? 32 : 1;
      return new Promise<LaneEntry[]>((resolve, reject) =>
        commit.enter(Object.freeze({ owner, request, objects, bytes, count, resolve, reject })),
      );
    });
    const [entries] = await Promise.all(entered);
    expect(entries!.map(({ envelope }) => envelope.requests.map(({ workspace_id }) => workspace_id))).toEqual(
      [
        [noisy, noisy],
        [one, two],
      ],
    );
  });

  const waiting = (owner: string, count: number, bytes: number) => ({
    ...{ owner, count, bytes, isAwaited: false, resolve() {}, reject() {} },
    ...{ request: { request_id: uuidv7(), workspace_id: owner, accepted_at: 'now' }, objects: [] },
  });
  const apartIn = (loose: ReturnType<typeof waiting>[]) =>
    packablesOf(loose).map(({ apart = false, alone = false }) => [apart, alone]);

  test('are used for a workspace with 64 objects or 64 KB in a flush with others', () => {
    const small = [waiting('one', 63, 100), waiting('two', 1, 65_535)];
    expect(apartIn(small)).toEqual([
      [false, false],
      [false, false],
    ]);
    expect(apartIn([...small, waiting('one', 1, 100), waiting('two', 1, 1)])).toEqual(
      Array(4).fill([true, false]),
    );
    expect(apartIn([waiting('one', 500, 100_000), waiting('one', 500, 100_000)])).toEqual(
      Array(2).fill([false, false]),
    );
  });

  test('are used for a request whose response waits, and for the rest of its workspace', () => {
    const awaited = { ...waiting('one', 1, 1), isAwaited: true };
    expect(apartIn([waiting('one', 1, 1), awaited, waiting('two', 1, 1)])).toEqual([
      [true, false],
      [true, true],
      [false, false],
    ]);
  });

  test('G3: hold an awaited request alone, between earlier and later requests of its workspace', () => {
    const [one, two] = [uuidv7(), uuidv7()];
    const before = [sent(one, true), sent(two, false), sent(one, true)];
    const awaited = { ...sent(one, true), alone: true };
    const after = [sent(one, true), sent(two, false), sent(one, true)];
    const entries = pack([...before, awaited, ...after], 1, 1000);
    expect(entries.map(({ envelope }) => envelope.requests.map(({ request_id }) => request_id))).toEqual([
      [before[0], before[2]].map((packed) => packed!.request.request_id),
      [before[1], after[1]].map((packed) => packed!.request.request_id),
      [awaited.request.request_id],
      [after[0], after[2]].map((packed) => packed!.request.request_id),
    ]);
  });

  test('have ids in the order of their creation', () => {
    const ids = Array.from({ length: 100 }, () => envelopeId([uuidv7()]));
    expect(ids.every((id) => validate(id) && version(id) === 8)).toBe(true);
    expect(ids.toSorted()).toEqual(ids);
    expect(new Set(ids).size).toBe(100);
  });

  test('have a tag; other ids have no tag', () => {
    expect(tagIn(uuidv7())).toBeUndefined();
    expect(tagIn('by-hand')).toBeUndefined();
  });
});
