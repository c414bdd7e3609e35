import { expect, test } from 'vitest';
import { SHARED, tagOf } from '../../src/queue/lanes.ts';
import { createRandom } from '../../tools/load/random.ts';
import { type FenceEntry, fencesIn, type Ordered } from '../../workers/fence/fence-order.ts';

const LANE = 1;

function fence(id: string, lanes: number[], workspaceId: string | undefined = 'ann'): Ordered {
  const isCarrier = lanes[0] === LANE;
  const entry: FenceEntry = { fence: { id, lanes }, isCarrier, workspaceId, isOpen: false };
  return { tag: undefined, fence: entry, ...(isCarrier && { parts: new Map([[workspaceId ?? 'bob', 1]]) }) };
}

const plain = (...workspaceIds: string[]): Ordered => ({
  tag: workspaceIds.length === 1 ? tagOf(workspaceIds[0]!) : SHARED,
  parts: new Map(workspaceIds.map((id) => [id, 1])),
});
const unread = (tag: string | undefined): Ordered => ({ tag });
const old = (id: string, lanes: number[]): Ordered => {
  const made = fence(id, lanes);
  return { ...made, fence: { ...made.fence!, workspaceId: undefined } };
};

/** Returns the ids of the fences at which the lane waits, with a sign after those at which it has arrived. */
const waits = (...lane: Ordered[]) =>
  fencesIn(lane).map(({ fence: { id }, isFirst }) => (isFirst ? `${id}!` : id));

test('a lane arrives at a fence that is the first entry of its workspace', () => {
  expect(waits(plain('bob'), fence('F', [0, 1]))).toEqual(['F!']);
});

test('G3: a lane does not arrive at a fence before earlier objects of its workspace', () => {
  expect(waits(plain('ann'), fence('F', [0, 1]))).toEqual([]);
  expect(waits(plain('bob', 'ann'), fence('F', [0, 1]))).toEqual([]);
});

test('G3: a lane arrives at a fence after all envelopes that may have objects of its workspace', () => {
  expect(waits(unread(tagOf('ann')), fence('F', [0, 1]))).toEqual([]);
  expect(waits(unread(SHARED), fence('F', [0, 1]))).toEqual([]);
  expect(waits(unread(undefined), fence('F', [0, 1]))).toEqual([]);
  expect(waits(unread(tagOf('bob')), fence('F', [0, 1]))).toEqual(['F!']);
  expect(waits({ tag: undefined, isBarrier: true }, fence('F', [0, 1]))).toEqual([]);
});

test('a lane arrives at several fences if the home lane of the last fence has all of them', () => {
  expect(waits(fence('F', [0, 1]), fence('G', [0, 1, 2]), fence('H', [0, 1]))).toEqual(['F!', 'G!', 'H!']);
});

test('G3: a lane does not arrive at a fence if its home lane lacks an earlier fence of the lane', () => {
  expect(waits(fence('F', [2, 1]), fence('G', [0, 1]))).toEqual(['F!']);
  expect(waits(fence('F', [0, 2, 1]), fence('G', [2, 1]), fence('H', [0, 1]))).toEqual(['F!', 'G!']);
  expect(waits(fence('F', [1, 2]), fence('G', [0, 1]))).toEqual(['F!']);
});

test('a lane waits for the other lanes of each fence that it applies itself', () => {
  expect(waits(plain('ann'), fence('F', [1, 2]), fence('G', [1, 2]))).toEqual(['F', 'G']);
});

test('fences of several workspaces do not wait for each other', () => {
  expect(waits(fence('F', [0, 1]), fence('G', [2, 1], 'bob'), plain('ann'))).toEqual(['F!', 'G!']);
});

test('a fence of an earlier release waits until it is the first entry of its lane', () => {
  expect(waits(old('F', [0, 1]), fence('G', [0, 1]))).toEqual(['F!']);
  expect(waits(plain('bob'), old('F', [0, 1]), fence('G', [0, 1], 'bob'))).toEqual(['F']);
});

test('a lane waits at no more than 256 fences of one workspace at once', () => {
  const many = Array.from({ length: 300 }, (_, number) => fence(`F${number}`, [0, 1]));
  expect(fencesIn(many)).toHaveLength(256);
});

test('G8: a lane arrives at the fence of a workspace behind 300 fences of another one', () => {
  const many = Array.from({ length: 300 }, (_, number) => fence(`F${number}`, [0, 1]));
  expect(waits(...many, fence('G', [2, 1], 'bob')).at(-1)).toBe('G!');
});

/** The lanes of a fleet, without queue and Postgres. Each entry holds the objects of one workspace, or is a fence. */
interface Fleet {
  lanes: { id: string; owner: string; fence?: number[] }[][];
  effects: string[];
}

test('G3: each workspace keeps its order and every lane empties, for any order of steps', () => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = createRandom(seed);
    const below = (count: number) => Math.floor(random() * count);
    const fleet: Fleet = { lanes: [[], [], [], []], effects: [] };
    const sent = new Map<string, { id: string; lanes: number[] }[]>();
    for (let number = 0; number < 40; number++) {
      const owner = `w${below(3)}`;
      const id = `${number}`;
      const lanes = [0, 1, 2, 3].filter(() => random() < 0.4).sort(() => random() - 0.5);
      const touched = lanes.length > 1 ? lanes : [below(4)];
      for (const lane of touched)
        fleet.lanes[lane]!.push({ id, owner, ...(touched.length > 1 && { fence: touched }) });
      sent.set(owner, [...(sent.get(owner) ?? []), { id, lanes: touched }]);
    }
    const arrived = new Map<string, Set<number>>();
    const isPassed = (id: string) => fleet.effects.includes(id);
    for (let steps = 0; fleet.lanes.some(({ length }) => length > 0); steps++) {
      expect(steps, `seed ${seed} stalls`).toBeLessThan(20_000);
      const lane = below(4);
      fleet.lanes[lane] = fleet.lanes[lane]!.filter(({ id, fence: lanes }) => !lanes || !isPassed(id));
      const entries = fleet.lanes[lane]!;
      const window = entries.map(({ id, owner, fence: lanes }): Ordered => {
        const isCarrier = lanes?.[0] === lane;
        return {
          tag: tagOf(owner),
          ...((!lanes || isCarrier) && { parts: new Map([[owner, 1]]) }),
          ...(lanes && { fence: { fence: { id, lanes }, isCarrier, workspaceId: owner, isOpen: false } }),
        };
      });
      for (const {
        fence: { id },
        isFirst,
      } of fencesIn(window))
        if (isFirst) arrived.set(id, (arrived.get(id) ?? new Set()).add(lane));
      // Applies the first entry of a random workspace that need not wait.
      const owner = `w${below(3)}`;
      const next = entries.find((one) => one.owner === owner);
      if (!next) continue;
      const [first, ...others] = next.fence ?? [lane];
      if (first !== lane || !others.every((one) => arrived.get(next.id)?.has(one))) continue;
      fleet.effects.push(next.id);
      fleet.lanes[lane] = entries.filter((one) => one !== next);
    }
    for (const objects of sent.values())
      for (const [index, one] of objects.entries())
        for (const later of objects.slice(index + 1))
          if (later.lanes.some((lane) => one.lanes.includes(lane)))
            expect(fleet.effects.indexOf(one.id), `seed ${seed}: ${later.id} before ${one.id}`).toBeLessThan(
              fleet.effects.indexOf(later.id),
            );
  }
});
