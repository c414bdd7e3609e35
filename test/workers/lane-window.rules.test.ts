import { v7 as uuidv7 } from 'uuid';
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { LaneStore, Lease } from '../../src/queue/lane-store.ts';
import { envelopeId, tagOf } from '../../src/queue/lanes.ts';
import { decodeEnvelope, READS, type WireEnvelope } from '../../src/queue/wire.ts';
import { Accounts } from '../../workers/lane/accounts.ts';
import { Isolation } from '../../workers/lane/isolation.ts';
import { LaneWindow } from '../../workers/lane/lane-window.ts';
import { nextBatch } from '../../workers/lane/next-batch.ts';
import { silentFences } from './no-fences.ts';

interface Stored {
  id: string;
  data: WireEnvelope;
}

const event = () => ({
  ...{ kind: 'events', id: uuidv7(), index: 0, identifier: { external_id: 'ann' } },
  ...{ name: 'visited', time: '2026-01-02T03:04:05.000Z' },
});

const objectsOf = new Map<number, unknown[]>();

/** Creates an envelope of a workspace; the object list is shared between envelopes. */
function stored(workspaceId: string, count = 1): Stored {
  const objects = objectsOf.get(count) ?? Array.from({ length: count }, event);
  objectsOf.set(count, objects);
  const request = { request_id: uuidv7(), workspace_id: workspaceId, accepted_at: '2026-01-02T03:04:05Z' };
  const data = { requests: [request], objects };
  return { id: envelopeId([workspaceId]), data: data as unknown as WireEnvelope };
}

/** Creates a lane in memory whose first envelope is leased. */
function scene(first: Stored, waiting: Stored[]) {
  const lane = { waiting, isHeld: true, read: 0, asked: [] as number[] };
  const laneStore: Pick<LaneStore, 'window' | 'read'> = {
    async window(_, max) {
      lane.asked.push(max);
      return lane.isHeld ? lane.waiting.slice(0, max).map(({ id }) => id) : undefined;
    },
    async read(_, ids) {
      lane.read += ids.length;
      const byId = new Map(lane.waiting.map((one) => [one.id, one]));
      return ids.map((id) => {
        const one = byId.get(id);
        return one && { ...one, timestamp: 0, characters: JSON.stringify(one.data).length };
      });
    },
  };
  const accounts = new Accounts();
  const fences = silentFences(2);
  const window = new LaneWindow({
    ...{ laneStore, accounts, lane: 0, reads: READS },
    deliver: (id, wire) => ({ id, lane: 0, envelope: decodeEnvelope(wire) }),
    ...{ fences, onFence() {} },
  });
  const lease: Lease = { lane: 0, id: first.id, token: 'own' };
  window.begin(lease, first.data);
  return { lane, lease, window, accounts, fences };
}

const [noisy, quiet] = [uuidv7(), uuidv7()];
const range = (length: number) => Array.from({ length }, (_, index) => index);

test('G5: a lane reads the data of about one transaction, even if 4,000 envelopes wait', async () => {
  const waiting = range(4000).map(() => stored(noisy, 1000));
  const { lane, lease, window } = scene(stored(noisy, 1000), waiting);
  for (let refreshes = 0; refreshes < 20; refreshes++) expect(await window.refresh(lease)).toBe(true);
  expect(window.envelopes()).toHaveLength(4001);
  expect(lane.read).toBeLessThanOrEqual(16);
});

test('G8: a lane reads a quiet envelope that follows 3,000 envelopes of a noisy workspace', async () => {
  const last = stored(quiet);
  const { lane, lease, window } = scene(stored(noisy, 1000), [
    ...range(3000).map(() => stored(noisy, 1000)),
    last,
  ]);
  for (let refreshes = 0; refreshes < 3; refreshes++) await window.refresh(lease);
  expect(window.envelopes().at(-1)).toMatchObject({ id: last.id });
  expect(window.envelopes().at(-1)!.parts?.get(quiet)?.objects).toBe(1);
  expect(lane.read).toBeLessThan(64);
});

test.each([
  { senders: 2, pace: 30 },
  { senders: 3, pace: 20 },
  { senders: 1, pace: 200 },
  { senders: 12, pace: 200 },
])(
  'G8: a lane reads a quiet envelope that follows $senders senders at $pace units/ms',
  async ({ senders, pace }) => {
    const ids = range(senders).map(() => uuidv7());
    const last = stored(quiet);
    const first = stored(ids[0]!, 500);
    const waiting = [...range(400).map((index) => stored(ids[index % senders]!, 500)), last];
    const { lane, lease, window, accounts } = scene(first, waiting);
    // Measures the pace.
    for (let batches = 0; batches < 100; batches++)
      accounts.charge({
        ...{ units: new Map([[ids[0]!, pace * 100]]), objects: new Map(), milliseconds: 100, isCut: false },
      });
    for (let refreshes = 0; refreshes < 4; refreshes++) await window.refresh(lease);
    expect(window.envelopes().at(-1)!.parts?.get(quiet)?.objects).toBe(1);
    // About four transactions of 4,000 objects are held, whatever waits.
    expect(lane.read).toBeLessThan(64);
  },
);

/** Creates envelopes with one list of objects, which is much faster for tens of thousands of them. */
function many(workspaceId: string, count: number): Stored[] {
  const { data } = stored(workspaceId);
  return range(count).map(() => ({ id: envelopeId([workspaceId]), data }));
}

const DEEP_MS = 250;

describe('a lane with more jobs than a snapshot', () => {
  afterEach(() => vi.useRealTimers());

  /** Refreshes the window `times` times, 5 ms apart. */
  async function refresh({ window, lease }: ReturnType<typeof scene>, times: number): Promise<void> {
    for (let time = 0; time < times; time++) {
      expect(await window.refresh(lease)).toBe(true);
      vi.advanceTimersByTime(5);
    }
  }

  test('G8: shows the envelope of a quiet workspace after 20,000 of a noisy one', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const last = stored(quiet);
    const deep = scene(stored(noisy), [...many(noisy, 20_000), last]);
    await refresh(deep, 8);
    const shown = deep.window.envelopes();
    expect(shown.at(-1)).toMatchObject({ id: last.id });
    expect(shown.at(-1)!.parts?.get(quiet)?.objects).toBe(1);
  });

  test('G3: shows at most 4,096 envelopes of a workspace, and none after the first missing one', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const [first, shared, last] = [stored(noisy), stored(noisy), stored(noisy)];
    shared.id = envelopeId([noisy, quiet]);
    const waiting = [...many(noisy, 6000), shared, ...many(quiet, 10), last];
    const deep = scene(first, waiting);
    await refresh(deep, 8);
    const shown = deep.window.envelopes().slice(1);
    const own = shown.filter(({ tag }) => tag === tagOf(noisy));
    expect(own.map(({ id }) => id)).toEqual(waiting.slice(0, 4097).map(({ id }) => id));
    expect(own.at(-1)!.parts).toBeUndefined();
    // The shared envelope has an object of the noisy workspace, which must not take effect yet.
    const batch = nextBatch(deep.window.envelopes(), deep.accounts, {
      ...{ objects: 1e6, bytes: 1e9, slice: undefined, isolation: new Isolation() },
    });
    expect(batch?.envelopes.map(({ id }) => id)).not.toContain(last.id);
    expect(batch?.envelopes.find(({ id }) => id === shared.id)?.workspaces.has(noisy) ?? false).toBe(false);
  });

  test('reads a deep snapshot at most every 250 ms, and uses it until the next one', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const deep = scene(stored(noisy), [...many(noisy, 10_000), stored(quiet)]);
    await refresh(deep, (10 * DEEP_MS) / 5);
    const reads = deep.lane.asked.filter((max) => max > 4096);
    expect(reads.length).toBeLessThanOrEqual(11);
    expect(reads.length).toBeGreaterThan(5);
    expect(new Set(reads)).toEqual(new Set([32_768]));
    expect(deep.lane.asked.filter((max) => max === 1).length).toBeGreaterThan(deep.lane.asked.length / 2);
  });

  test('replaces a deep snapshot as a whole when half of it is applied', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const deep = scene(stored(noisy), [...many(noisy, 10_000), stored(quiet)]);
    await refresh(deep, 8);
    const done = deep.window.envelopes().slice(0, 3000);
    deep.window.note({ kind: 'applied', done: done.map(({ id }) => id), left: new Map() });
    const gone = new Set(done.map(({ id }) => id));
    deep.lane.waiting = deep.lane.waiting.filter(({ id }) => !gone.has(id));
    await refresh(deep, 1);
    expect(deep.lane.asked.at(-1)).toBe(4096);
    expect(deep.window.envelopes().map(({ id }) => id)).toEqual(
      deep.lane.waiting.slice(0, 4096).map(({ id }) => id),
    );
  });

  test('G3: clears a kept snapshot when the lease is lost', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const deep = scene(stored(noisy), many(noisy, 10_000));
    await refresh(deep, 8);
    deep.lane.isHeld = false;
    expect(await deep.window.refresh(deep.lease)).toBe(false);
    expect(deep.window.envelopes()).toEqual([]);
  });
});

/** Makes a stored envelope an entry of a fence: in its first lane, or its mark. */
function fenced({ id, data }: Stored, lanes: number[], workspaceId?: string): Stored {
  const fence = { id, lanes, ...(workspaceId !== undefined && { workspace_id: workspaceId }) };
  return { id, data: lanes[0] === 0 ? { ...data, fence } : { requests: [], objects: [], fence } };
}

test('G8: a fence closes the lane for its workspace until the other lanes have arrived', async () => {
  const fence = fenced(stored(noisy), [0, 1], noisy);
  const { lease, window, fences } = scene(stored(quiet), [fence, stored(noisy)]);
  await window.refresh(lease);
  const shown = () => window.envelopes().find(({ id }) => id === fence.id)?.fence;
  expect(shown()).toMatchObject({ workspaceId: noisy, isCarrier: true, isOpen: false });
  const other = { lane: 1, onChange() {} };
  fences.open(other);
  fences.wait(other, [{ fence: shown()!.fence, isFirst: true }]);
  expect(shown()).toMatchObject({ isOpen: true });
  expect(fences.isPassed(shown()!.fence)).toBe(false);
  window.note({ kind: 'applied', done: [fence.id], left: new Map() });
  expect(fences.isPassed({ ...fence.data.fence! })).toBe(true);
});

test('a lane arrives at the fence that it has leased before its first snapshot', () => {
  const mark = fenced(stored(noisy), [1, 0], noisy);
  const { fences } = scene(mark, []);
  expect(fences.isOpen({ ...mark.data.fence! }, 1)).toBe(true);
});

test('a mark is removed from the lane after its fence has been passed', async () => {
  const mark = fenced(stored(noisy), [1, 0], noisy);
  const { lease, window, fences } = scene(stored(quiet), [mark]);
  await window.refresh(lease);
  expect(window.removePassed()).toEqual([]);
  fences.pass([mark.data.fence!]);
  expect(window.removePassed()).toEqual([mark.id]);
  expect(window.isDone(mark.id)).toBe(true);
});

test('a fence without a workspace, or with objects of other workspaces, closes the lane for all', async () => {
  const old = fenced(stored(noisy), [0, 1]);
  const wrong = fenced(stored(noisy), [0, 1], quiet);
  const { lease, window } = scene(stored(quiet), [old, wrong]);
  await window.refresh(lease);
  const named = window.envelopes().map(({ fence }) => fence && fence.workspaceId === undefined);
  expect(named).toEqual([undefined, true, true]);
});

test('G3: the marker of a move waits for the earlier objects of its workspace', async () => {
  const [fence, marker] = [fenced(stored(noisy), [0, 1], noisy), stored(noisy, 0)];
  const { lease, window, accounts } = scene(stored(quiet), [fence, marker]);
  await window.refresh(lease);
  const batch = nextBatch(window.envelopes(), accounts, {
    ...{ objects: 1e6, bytes: 1e9, slice: undefined, isolation: new Isolation() },
  });
  expect(batch?.envelopes.map(({ id }) => id)).toEqual([lease.id]);
});

test('G3: the window of a lane is cleared when its lease is lost', async () => {
  const { lane, lease, window } = scene(stored(noisy), [stored(noisy), stored(quiet)]);
  await window.refresh(lease);
  expect(window.envelopes()).toHaveLength(3);
  lane.isHeld = false;
  expect(await window.refresh(lease)).toBe(false);
  expect(window.envelopes()).toEqual([]);
  lane.isHeld = true;
  expect(await window.refresh(lease)).toBe(false);
});

test('G3: a new snapshot replaces the old one, with a late envelope before known ones', async () => {
  const [first, second, late] = [stored(noisy), stored(noisy), stored(noisy)];
  const { lane, lease, window } = scene(stored(noisy), [first, second]);
  await window.refresh(lease);
  lane.waiting = [first, late, second];
  await window.refresh(lease);
  expect(window.envelopes().map(({ id }) => id)).toEqual([lease.id, first.id, late.id, second.id]);
});

test('an envelope that took effect is not shown again while it still waits', async () => {
  const next = stored(noisy);
  const { lease, window } = scene(stored(noisy), [next]);
  await window.refresh(lease);
  expect(window.note({ kind: 'applied', done: [lease.id, next.id], left: new Map() })).toEqual([
    lease.id,
    next.id,
  ]);
  await window.refresh(lease);
  expect(window.envelopes()).toEqual([]);
  expect(window.isDone(lease.id)).toBe(true);
});

test('the next batch sees only the remaining objects of an envelope', async () => {
  const { lease, window } = scene(stored(noisy, 10), []);
  await window.refresh(lease);
  window.note({ kind: 'applied', done: [], left: new Map([[lease.id, new Map([[noisy, 4]])]]) });
  await window.refresh(lease);
  expect([...window.envelopes()[0]!.parts!]).toMatchObject([[noisy, { objects: 4 }]]);
});
