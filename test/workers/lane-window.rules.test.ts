import { v7 as uuidv7 } from 'uuid';
import { expect, test } from 'vitest';
import type { LaneStore, Lease } from '../../src/queue/lane-store.ts';
import { envelopeId } from '../../src/queue/lanes.ts';
import { decodeEnvelope, READS, type WireEnvelope } from '../../src/queue/wire.ts';
import { Accounts } from '../../workers/lane/accounts.ts';
import { LaneWindow } from '../../workers/lane/lane-window.ts';
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
  const lane = { waiting, isHeld: true, read: 0 };
  const laneStore: Pick<LaneStore, 'window' | 'read'> = {
    window: async (_, most) => (lane.isHeld ? lane.waiting.slice(0, most).map(({ id }) => id) : undefined),
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
  const window = new LaneWindow({
    ...{ laneStore, accounts, lane: 0, reads: READS },
    deliver: (id, wire) => ({ id, lane: 0, envelope: decodeEnvelope(wire) }),
    ...{ fences: silentFences(), onFence() {} },
  });
  const lease: Lease = { lane: 0, id: first.id, token: 'own' };
  window.begin(lease, first.data);
  return { lane, lease, window, accounts };
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

test('G8: a lane reads the envelope of a quiet workspace after 3,000 of a noisy workspace', async () => {
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
  'G8: a lane reads the envelope of a quiet workspace after those of $senders senders at $pace units/ms',
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
