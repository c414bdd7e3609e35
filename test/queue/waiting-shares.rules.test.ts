import { v7 as uuidv7 } from 'uuid';
import { expect, test } from 'vitest';
import type { LaneStore, StoredEnvelope } from '../../src/queue/lane-store.ts';
import { envelopeId, tagOf } from '../../src/queue/lanes.ts';
import { WaitingShares } from '../../src/queue/waiting-shares.ts';

/** An envelope with objects of each workspace. */
function envelopeOf(counts: Record<string, number>, bytes: number) {
  const requests = Object.entries(counts).map(([workspace_id, count]) => ({
    ...{ request_id: uuidv7(), workspace_id, accepted_at: 'now', count },
  }));
  return { id: envelopeId(Object.keys(counts)), bytes, data: { requests, objects: [] } };
}

/** A shard of one lane with these envelopes, of which a sample contains the first 256. */
function sceneOf(envelopes: ReturnType<typeof envelopeOf>[]) {
  let reads = 0;
  const store: Pick<LaneStore, 'layout' | 'sample' | 'read'> = {
    layout: { shards: 1, lanes: 1 },
    sample: async (_, most) => ({ waiting: envelopes.length, envelopes: envelopes.slice(0, most) }),
    read: async (_, ids) => {
      reads += ids.length;
      return ids.map((id): StoredEnvelope => ({ ...envelopes.find((one) => one.id === id)!, timestamp: 0 }));
    },
  };
  return { shares: new WaitingShares(store), store, reads: () => reads };
}

/** Finds two workspaces whose envelopes have the same tag. */
function sameTags(): [string, string] {
  const byId = new Map<string, string>();
  for (;;) {
    const id = uuidv7();
    const other = byId.get(tagOf(id));
    if (other) return [other, id];
    byId.set(tagOf(id), id);
  }
}

test("the work of a workspace is its envelopes' share of the bytes", async () => {
  const [noisy, quiet] = [uuidv7(), uuidv7()];
  const { shares } = sceneOf([
    ...Array.from({ length: 90 }, () => envelopeOf({ [noisy]: 75 }, 1000)),
    ...Array.from({ length: 10 }, () => envelopeOf({ [quiet]: 1 }, 1000)),
  ]);
  await shares.refresh(0);
  expect(shares.partOf(noisy, 0)).toBeCloseTo(0.9);
  expect(shares.partOf(quiet, 0)).toBeCloseTo(0.1);
  expect(shares.bytesOf(noisy, 0)).toBeCloseTo(90_000);
  expect(shares.largestPart(0)).toBeCloseTo(0.9);
  expect(shares.partOf(uuidv7(), 0)).toBe(0);
});

test('a sample represents all waiting envelopes', async () => {
  const noisy = uuidv7();
  const { shares, reads } = sceneOf(Array.from({ length: 1024 }, () => envelopeOf({ [noisy]: 75 }, 1000)));
  await shares.refresh(0);
  expect(shares.bytesOf(noisy, 0)).toBeCloseTo(1_024_000);
  expect(reads()).toBe(4);
});

test('an envelope of several workspaces is divided among them by their objects', async () => {
  const [one, other] = [uuidv7(), uuidv7()];
  const { shares } = sceneOf([envelopeOf({ [one]: 3, [other]: 1 }, 1000)]);
  await shares.refresh(0);
  expect([shares.partOf(one, 0), shares.partOf(other, 0)]).toEqual([0.75, 0.25]);
});

test('the envelopes of a workspace are read once in 10 s, while they move through the lane', async () => {
  const noisy = uuidv7();
  const envelopes = Array.from({ length: 100 }, () => envelopeOf({ [noisy]: 75 }, 1000));
  const { shares, reads } = sceneOf(envelopes);
  for (let round = 0; round < 20; round++) {
    await shares.refresh(0);
    envelopes.splice(0, 5, ...Array.from({ length: 5 }, () => envelopeOf({ [noisy]: 75 }, 1000)));
  }
  expect(reads()).toBe(4);
});

test('an object in one of many shared envelopes does not make its workspace a large sender', async () => {
  const senders = Array.from({ length: 40 }, () => uuidv7());
  const quiet = uuidv7();
  const shared = Array.from({ length: 100 }, (_, index) =>
    envelopeOf({ [senders[index % 40]!]: 20, [senders[(index + 1) % 40]!]: 20 }, 4000),
  );
  const { shares } = sceneOf([envelopeOf({ [quiet]: 1, [senders[0]!]: 1 }, 200), ...shared]);
  await shares.refresh(0);
  expect(shares.partOf(quiet, 0)).toBeLessThan(0.01);
});

test.each([null, 'text', { requests: [null, { workspace_id: 7 }] }, { requests: [{ count: 0 }] }])(
  'an envelope with the data %j has no workspace and does not stop the estimate',
  async (data) => {
    const noisy = uuidv7();
    const damaged = { id: 'by-hand', bytes: 1000, data } as unknown as ReturnType<typeof envelopeOf>;
    const { shares } = sceneOf([damaged, envelopeOf({ [noisy]: 1 }, 1000)]);
    await shares.refresh(0);
    expect(shares.partOf(noisy, 0)).toBe(0.5);
  },
);

test('no workspace is over its share after a failed reading', async () => {
  const noisy = uuidv7();
  const envelopes = [envelopeOf({ [noisy]: 1 }, 1000)];
  const { shares, store } = sceneOf(envelopes);
  await shares.refresh(0);
  store.sample = () => Promise.reject(new Error('away'));
  await expect(shares.refresh(0)).rejects.toThrow('away');
  expect(shares.partOf(noisy, 0)).toBe(0);
});

test('a workspace is not charged for another one whose envelopes have the same tag', async () => {
  const [noisy, quiet] = sameTags();
  const { shares } = sceneOf(Array.from({ length: 100 }, () => envelopeOf({ [noisy]: 75 }, 1000)));
  await shares.refresh(0);
  expect(shares.partOf(noisy, 0)).toBe(1);
  expect(shares.partOf(quiet, 0)).toBe(0);
});

test('an envelope is read once, and one without requests counts for no workspace', async () => {
  const noisy = uuidv7();
  const { shares, reads } = sceneOf([
    envelopeOf({ [noisy]: 1 }, 1000),
    { ...envelopeOf({ [noisy]: 1 }, 1000), id: 'by-hand', data: { requests: [], objects: [] } },
  ]);
  for (let round = 0; round < 3; round++) await shares.refresh(0);
  expect(reads()).toBe(2);
  expect(shares.partOf(noisy, 0)).toBe(0.5);
  shares.forget(0);
  expect(shares.partOf(noisy, 0)).toBe(0);
});
