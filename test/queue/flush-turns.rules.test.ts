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
import { createFlood, createFlushTurns, createNeighbours, largeOwners } from '../../src/queue/turns.ts';

const LIMITS = { objects: 16_000, bytes: 4_000_000 };
const requests = (owner: string, count: number, objects = 75) =>
  Array.from({ length: count }, (_, number) => ({ owner, number, count: objects, bytes: objects * 100 }));

describe('a flush', () => {
  const filled = (...items: ReturnType<typeof requests>) => {
    let now = 0;
    const turns = createFlushTurns<(typeof items)[number]>(createNeighbours(() => now));
    for (const item of items) turns.push(item);
    return { turns, pass: (ms: number) => (now += ms) };
  };
  const owners = (items: { owner: string }[]) => [...new Set(items.map(({ owner }) => owner))];

  test('with a flood waiting, the quiet workspace is in the next one, and the flood has its share', () => {
    const { turns } = filled(...requests('flood', 200), ...requests('quiet', 1, 1));
    const taken = turns.take(LIMITS);
    expect(owners(taken)).toEqual(['flood', 'quiet']);
    expect(taken.filter(({ owner }) => owner === 'flood')).toHaveLength(6);
  });

  test('more floods than one flush has room for go round', () => {
    const floods = Array.from({ length: 40 }, (_, number) => `flood-${number}`);
    const { turns } = filled(...floods.flatMap((name) => requests(name, 40)), ...requests('quiet', 1, 1));
    expect(owners(turns.take(LIMITS))).not.toContain('quiet');
    expect(owners(turns.take(LIMITS))).toContain('quiet');
  });

  test('G3: what one workspace sends leaves in its order, however many flushes it takes', () => {
    const { turns } = filled(...requests('flood', 50), ...requests('other', 50));
    const left: number[] = [];
    while (!turns.isEmpty())
      left.push(...turns.take(LIMITS).flatMap(({ owner, number }) => (owner === 'flood' ? [number] : [])));
    expect(left).toEqual(Array.from({ length: 50 }, (_, number) => number));
  });

  test('is all of a workspace that is alone, or has been for a while', () => {
    const { turns, pass } = filled(...requests('alone', 200));
    expect(turns.take(LIMITS)).toHaveLength(200);
    turns.push(requests('other', 1)[0]!);
    turns.take(LIMITS);
    for (const item of requests('alone', 200)) turns.push(item);
    expect(turns.take(LIMITS)).toHaveLength(6);
    turns.takeAll();
    pass(11_000);
    for (const item of requests('alone', 200)) turns.push(item);
    expect(turns.take(LIMITS)).toHaveLength(200);
  });

  test('takes a request that is larger than a flush may be, alone', () => {
    const { turns } = filled(...requests('large', 1, 20_000), ...requests('quiet', 1, 1));
    expect(turns.take(LIMITS)).toHaveLength(1);
    expect(owners(turns.take(LIMITS))).toEqual(['quiet']);
  });
});

describe('envelopes of its own', () => {
  const scene = () => {
    let now = 0;
    const flood = createFlood(() => now);
    /** What is sent in a while, and a look at its end. */
    const send = (counts: Record<string, number>, isPossible = true) => {
      for (const [owner, count] of Object.entries(counts)) flood.count(owner, count);
      now += 300;
      flood.look(() => isPossible);
    };
    return { flood, send };
  };

  test('has who sends a large part while the workers are behind, and for a while after that', () => {
    const { flood, send } = scene();
    send({ flood: 5000, quiet: 1 }, false);
    expect(flood.owners()).toEqual([]);
    send({ flood: 5000, quiet: 1 });
    expect(flood.owners()).toEqual(['flood']);
    for (let looks = 0; looks < 16; looks++) send({ quiet: 1 });
    expect(flood.owners()).toEqual(['flood']);
    send({ quiet: 1 });
    expect(flood.owners()).toEqual([]);
  });

  test('nobody has where a thousand send evenly, or where little is sent: they share envelopes', () => {
    const { flood, send } = scene();
    send(Object.fromEntries(Array.from({ length: 1000 }, (_, number) => [`w${number}`, 75])));
    send({ one: 10, other: 90 });
    expect(flood.owners()).toEqual([]);
  });

  const sent = (workspace_id: string, apart: boolean) => ({
    ...{ request: { request_id: uuidv7(), workspace_id, accepted_at: 'now' }, bytes: 100, apart },
    objects: [
      { kind: 'events', id: uuidv7(), index: 0, identifier: { external_id: 'ann' }, name: 'x', time: 'y' },
    ] as unknown as AcceptedObject[],
  });

  test('say by their ids whose they are; those that several share say that', () => {
    const [flood, one, two] = [uuidv7(), uuidv7(), uuidv7()];
    const entries = pack([sent(flood, true), sent(one, false), sent(flood, true), sent(two, false)], 1, 1000);
    expect(
      entries.map(({ id, envelope }) => [
        tagIn(id),
        envelope.requests.map((request) => request.workspace_id),
      ]),
    ).toEqual([
      [tagOf(flood), [flood, flood]],
      [SHARED, [one, two]],
    ]);
  });

  test('are what a flush gives to who floods, and nothing is written into who waits', async () => {
    const [noisy, one, two] = [uuidv7(), uuidv7(), uuidv7()];
    const flood = { ...createFlood(), has: (owner: string) => owner === noisy, owners: () => [noisy] };
    const commit = createShardCommit(0, {
      ...{ producer: { add: async () => {} } as unknown as LaneProducer, placing: undefined },
      ...{ options: { lanes: 1, maxEnvelopeObjects: 1000 }, neighbours: createNeighbours(), flood },
      ...{ isBehind: () => false, lookForFlood() {}, fillsEnvelope: () => false, enter() {} },
      settle: (batch, result) => {
        for (const { resolve } of batch) resolve(result as LaneEntry[]);
      },
    });
    const settled = [noisy, one, noisy, two].map((owner) => {
      const { request, objects, bytes } = sent(owner, false);
      return new Promise<LaneEntry[]>((resolve, reject) =>
        commit.enter(Object.freeze({ owner, request, objects, bytes, count: 1, resolve, reject })),
      );
    });
    const [entries] = await Promise.all(settled);
    expect(entries!.map(({ envelope }) => envelope.requests.map(({ workspace_id }) => workspace_id))).toEqual(
      [
        [noisy, noisy],
        [one, two],
      ],
    );
  });

  test('are those of a workspace that has 64 objects or 64 KB in a flush with others', () => {
    const waiting = (owner: string, count: number, bytes: number) => ({
      ...{ owner, count, bytes, resolve() {}, reject() {} },
      ...{ request: { request_id: uuidv7(), workspace_id: owner, accepted_at: 'now' }, objects: [] },
    });
    const small = [waiting('one', 63, 100), waiting('two', 1, 65_535)];
    expect(largeOwners(small)).toEqual([]);
    expect(largeOwners([...small, waiting('one', 1, 100), waiting('two', 1, 1)])).toEqual(['one', 'two']);
    expect(largeOwners([waiting('one', 500, 100_000), waiting('one', 500, 100_000)])).toEqual([]);
  });

  test('have ids in the order in which they were made, beside those of fences', () => {
    const ids = Array.from({ length: 100 }, () => envelopeId([uuidv7()]));
    expect(ids.every((id) => validate(id) && version(id) === 8)).toBe(true);
    expect(ids.toSorted()).toEqual(ids);
    expect(new Set(ids).size).toBe(100);
  });

  test('an id that is not made so tells nothing', () => {
    expect(tagIn(uuidv7())).toBeUndefined();
    expect(tagIn('by-hand')).toBeUndefined();
  });
});
