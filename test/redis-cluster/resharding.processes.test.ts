import { afterAll, beforeAll, expect, test } from 'vitest';
import { markOf, prefixOf } from '../../src/queue/lanes.ts';
import type { Fleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import type { TestCluster } from '../setup/redis-cluster.ts';
import type { TestWorkspace } from '../setup/workspace.ts';
import { startShards } from './shards-scene.ts';

const SHARDS = 2;
const time = '2026-01-31T12:00:00.000Z';
/** The first shard's slot moves; the other shard must not be affected. */
const [MOVED, OTHER] = [1, 0];

let cluster: TestCluster;
let fleet: Fleet;
/** One workspace per shard. */
let tenants: TestWorkspace[];
beforeAll(async () => {
  ({ cluster, fleet, tenants } = await startShards(SHARDS, 0));
});
afterAll(async () => {
  await fleet.stop();
  await cluster.stop();
});

const request = (shard: number, path: string, json: object) =>
  send(fleet.edges[0]!.port, { method: 'POST', path, key: tenants[shard]!.key, json: json as never });

/** Sends steps to one user of a shard: each step is an event, and the value of an attribute. */
function createSender(shard: number, user: string) {
  const counts = { accepted: 0, refused: 0, last: 0 };
  return {
    counts,
    async step(): Promise<void> {
      const number = counts.accepted + counts.refused + 1;
      const { status } = await request(shard, '/users/track', {
        attributes: [{ external_id: user, step: number }],
        events: [{ external_id: user, name: 'stepped', time }],
      });
      if (status === 201) Object.assign(counts, { accepted: counts.accepted + 1, last: number });
      else if (status === 503) counts.refused++;
      else throw new Error(`answered with ${status}`);
    },
    /** Expects each accepted step once and in order, and each rejected step once or never. */
    async hasAll(): Promise<void> {
      let result: { step?: number | undefined; count?: number | undefined } = {};
      await waitUntil(
        async () => {
          const { body } = await request(shard, '/users/export/ids', { external_ids: [user] });
          const [one] = body.users as {
            custom_attributes: { step: number };
            custom_events: { count: number }[];
          }[];
          result = { step: one?.custom_attributes.step, count: one?.custom_events[0]?.count };
          return result.step !== undefined && result.step >= counts.last && result.count! >= counts.accepted;
        },
        {
          what: `${counts.accepted} steps of ${user}`,
          explain: async () => JSON.stringify({ counts, found: result }),
        },
      );
      expect(result.count).toBeLessThanOrEqual(counts.accepted + counts.refused);
      if (counts.refused === 0) expect(result).toEqual({ step: counts.last, count: counts.accepted });
    },
  };
}

/** Sends to both shards until the slot has moved. */
async function sendWhile(work: Promise<unknown>, senders: ReturnType<typeof createSender>[]): Promise<void> {
  let isOver = false;
  const sending = senders.map(async ({ step }) => {
    while (!isOver) await step();
  });
  await work.finally(() => {
    isOver = true;
  });
  await Promise.all(sending);
}

const primary = () => cluster.primaryOf(markOf(MOVED));

const keysOf = async (node: number) =>
  (await cluster.call(node, 'KEYS', `${prefixOf(MOVED)}:lane-*`)) as string[];

/** Waits until a slot that has just moved accepts requests again. */
const acceptsAgain = (sender: ReturnType<typeof createSender>) =>
  waitUntil(
    async () => {
      const before = sender.counts.accepted;
      await sender.step();
      return sender.counts.accepted > before;
    },
    { what: 'an acceptance of the shard that has moved' },
  );

test('G1, G3: a slot with full lanes moves to another primary without loss, double or reordering', async () => {
  const [moved, other] = [createSender(MOVED, 'held'), createSender(OTHER, 'held')];
  for (let number = 0; number < 30; number++) await Promise.all([moved.step(), other.step()]);
  expect(moved.counts.accepted).toBe(30);
  const from = await primary();
  expect(await keysOf(from)).not.toEqual([]);
  const to = await cluster.otherPrimary(from);
  await sendWhile(cluster.moveSlot(markOf(MOVED), to), [moved, other]);
  expect(await primary()).toBe(to);
  expect(await keysOf(from)).toEqual([]);
  expect(other.counts.refused).toBe(0);
  await acceptsAgain(moved);
  await Promise.all([fleet.startWorker(), fleet.startWorker()]);
  await Promise.all([moved.hasAll(), other.hasAll()]);
});

test('the same holds while workers process the lanes', async () => {
  const [moved, other] = [createSender(MOVED, 'worked'), createSender(OTHER, 'worked')];
  for (let times = 0; times < 3; times++) {
    const to = await cluster.otherPrimary(await primary());
    await sendWhile(cluster.moveSlot(markOf(MOVED), to), [moved, other]);
  }
  expect(other.counts.refused).toBe(0);
  await acceptsAgain(moved);
  await Promise.all([moved.hasAll(), other.hasAll()]);
});
