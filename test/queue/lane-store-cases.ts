import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Envelope } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { createLog } from '../../src/platform/log.ts';
import { openLane } from '../../src/queue/bullmq-queues.ts';
import { connectProducer, connectWorker, type QueueConnection } from '../../src/queue/connection.ts';
import type { LaneStore, LeasedEnvelope, LeaseEnd, StoreProducer } from '../../src/queue/lane-store.ts';
import { type LaneEntry, QueueUnavailable } from '../../src/queue/lanes.ts';
import { encodeEnvelope } from '../../src/queue/wire.ts';
import { waitUntil } from '../setup/wait-until.ts';

/** One lane for each case. */
const LANES = 20;

const log = createLog('test', 'silent');

/** Milliseconds. A lost lease is found within two intervals. */
const LEASE = { lockDuration: 20_000, stalledInterval: 250, log };

/** A lane store as one process uses it. */
interface StoreConnection {
  laneStore: LaneStore;
  stop(): Promise<void>;
}

/** A server under a lane store, and the failures that tests cause in it. */
export interface StoreServer {
  connect(role: 'web' | 'worker'): StoreConnection;
  /** Whether the server that comes back empty drops the connections of producers. */
  dropsProducers: boolean;
  /** Lets an operator pause or resume a lane. */
  pause(lane: number): Promise<void>;
  resume(lane: number): Promise<void>;
  forgetLimit(lane: number): Promise<void>;
  /** Deletes the contents and limits of all lanes and drops the connections, like a server that came back empty. */
  comeBackEmpty(): Promise<void>;
  /** Lets the lock of a lane's lease run out. */
  expireLock(lane: number): Promise<void>;
  /** Fails during an add, and resolves when the server, or its successor, answers again. */
  failDuring(add: () => Promise<void>): Promise<void>;
  stop(): Promise<void>;
}

/** Settings of the processes under test. */
const settings = { LANES: String(LANES), QUEUE_TIMEOUT_MS: '5000' };

/** The part that servers with BullMQ have in common. */
export function bullmqServer(env: Record<string, string>, databaseUrl: string) {
  const config = readConfig({ ...env, ...settings });
  const opened: QueueConnection[] = [];
  const open = (connection: QueueConnection): QueueConnection => {
    opened.push(connection);
    return connection;
  };
  let operators: QueueConnection | undefined;

  async function withQueue(lane: number, work: (queue: ReturnType<typeof openLane>) => Promise<unknown>) {
    operators ??= open(connectProducer(config, databaseUrl));
    const queue = openLane(operators, lane);
    await work(queue);
    await queue.close();
  }

  return {
    connect: (role: 'web' | 'worker') =>
      open(role === 'web' ? connectProducer(config, databaseUrl) : connectWorker(config, databaseUrl)),
    pause: (lane: number) => withQueue(lane, (queue) => queue.pause()),
    resume: (lane: number) => withQueue(lane, (queue) => queue.resume()),
    forgetLimit: (lane: number) => withQueue(lane, (queue) => queue.removeGlobalConcurrency()),
    stopOperators: async () => operators?.stop(),
  };
}

/** Checks the contract of a lane store (src/queue/lane-store.ts) on one implementation. */
export function describeLaneStore(name: string, start: () => Promise<StoreServer>): void {
  describe(`a lane store on ${name}`, () => {
    let server: StoreServer;
    let connection: StoreConnection;
    let store: LaneStore;
    let producer: StoreProducer;
    /** Connections of two worker processes. */
    let workers: [StoreConnection, StoreConnection];
    let free = 0;
    let lane: number;

    beforeAll(async () => {
      server = await start();
      connection = server.connect('web');
      store = connection.laneStore;
      producer = store.createProducer({ timeout: 5000, log });
      workers = [server.connect('worker'), server.connect('worker')];
      await waitUntil(() => store.ready(), { what: 'the store' });
      return async () => {
        await producer.stop();
        await Promise.all([connection, ...workers].map((one) => one.stop()));
        await server.stop();
      };
    });

    const entry = (its = lane): LaneEntry => ({ lane: its, id: newId(), envelope: envelopeOf('x') });
    const entries = (count: number) => Array.from({ length: count }, () => entry());
    const idsOf = (some: readonly { id: string }[]) => some.map(({ id }) => id);

    /** Adds envelopes to the lane of the case, one add after the other. */
    async function addOneByOne(count: number): Promise<LaneEntry[]> {
      const added = entries(count);
      for (const one of added) await producer.add([one]);
      return added;
    }

    /** Works the lane of the case. Each envelope that is handed out stays active until `finish` or `close`. */
    function work({ laneStore } = workers[0]) {
      const taken: LeasedEnvelope[] = [];
      const ends: ((end: LeaseEnd) => void)[] = [];
      let seen = 0;
      let isClosing = false;
      const worker = laneStore.lease(
        lane,
        async (leased) => {
          taken.push(leased);
          if (isClosing) return 'giveBack';
          return new Promise((resolve) => ends.push(resolve));
        },
        LEASE,
      );
      const close = () => {
        isClosing = true;
        const closed = worker.close();
        for (const end of ends.splice(0)) end('giveBack');
        return closed;
      };
      onTestFinished(close);
      return {
        taken,
        /** Resolves with the next envelope that is handed out. */
        async next(): Promise<LeasedEnvelope> {
          await waitUntil(() => taken.length > seen, { what: 'the next envelope', deadline: 15_000 });
          return taken[seen++]!;
        },
        finish: () => ends.shift()!('finish'),
        /** Stops taking envelopes, and gives back the active one. */
        close,
      };
    }

    const isEmpty = async () => Object.values(await store.depth(lane)).every((count) => count === 0);
    const waitUntilEmpty = (what = 'an empty lane') => waitUntil(isEmpty, { what, deadline: 15_000 });

    /** Runs a case in a lane of its own. */
    const check = (claim: string, body: () => Promise<void>) =>
      test(claim, async () => {
        lane = free++;
        await body();
      });

    check('G1: an add with one refused entry stores no entry in any lane', async () => {
      const other = free++;
      // Every store refuses an integer as an id.
      const refused = { ...entry(), id: '7' };
      await expect(producer.add([entry(), entry(other), refused])).rejects.toBeInstanceOf(QueueUnavailable);
      expect(await Promise.all([store.head(lane, 9), store.head(other, 9)])).toEqual([[], []]);
      const added = [entry(), entry(other), entry()];
      await producer.add(added);
      expect(await store.head(lane, 9)).toEqual(idsOf([added[0]!, added[2]!]));
      expect(await store.head(other, 9)).toEqual(idsOf([added[1]!]));
    });

    check('G3: a lane hands out its envelopes in the order in which they were added', async () => {
      const added = [...(await addOneByOne(3)), ...entries(3)];
      await producer.add(added.slice(3));
      const { next, finish } = work();
      for (const { id, envelope } of added) {
        const { lease, data, stalled } = await next();
        expect([lease.lane, lease.id, stalled]).toEqual([lane, id, 0]);
        expect(data.objects).toEqual(encodeEnvelope(envelope).objects);
        finish();
      }
      await waitUntilEmpty();
    });

    check('G3: two workers of a lane never have a lease at the same time', async () => {
      const added = await addOneByOne(6);
      const both = workers.map((one) => work(one));
      const order: string[] = [];
      let counts = [0, 0];
      for (let number = 0; number < added.length; number++) {
        const holder = await waitUntil(() => both.find(({ taken }, at) => taken.length > counts[at]!), {
          what: 'the next lease',
        });
        order.push(holder.taken.at(-1)!.lease.id);
        expect((await store.depth(lane)).active).toBe(1);
        expect(both.reduce((sum, { taken }) => sum + taken.length, 0)).toBe(number + 1);
        counts = both.map(({ taken }) => taken.length);
        holder.finish();
      }
      expect(order).toEqual(idsOf(added));
      await waitUntilEmpty();
    });

    check(
      'a sample has all waiting envelopes, or one of each section of the lane, with their sizes',
      async () => {
        expect(await store.sample(lane, 4)).toEqual({ waiting: 0, envelopes: [] });
        const added = entries(12);
        await producer.add(added);
        const ids = idsOf(added);
        const all = await store.sample(lane, 20);
        expect(all.waiting).toBe(12);
        expect(idsOf(all.envelopes)).toEqual(ids);
        for (const { bytes } of all.envelopes) expect(bytes).toBeGreaterThan(20);
        const some = await store.sample(lane, 4);
        expect(some.waiting).toBe(12);
        expect(some.envelopes.map(({ id }) => Math.floor(ids.indexOf(id) / 3))).toEqual([0, 1, 2, 3]);
      },
    );

    check('the window shows jobs after the leased one, and completed jobs are removed from it', async () => {
      const added = await addOneByOne(5);
      const { next, finish } = work();
      const { lease } = await next();
      const { laneStore } = workers[0];
      expect(await laneStore.window(lease, 3)).toEqual(idsOf(added.slice(1, 4)));
      expect(await laneStore.complete(lease, [added[2]!.id, newId(), added[3]!.id])).toBe(true);
      expect(await laneStore.window(lease, 9)).toEqual(idsOf([added[1]!, added[4]!]));
      expect(await laneStore.complete(lease, [])).toBe(true);
      finish();
      expect((await next()).lease.id).toBe(added[1]!.id);
      finish();
      expect((await next()).lease.id).toBe(added[4]!.id);
      finish();
      await waitUntilEmpty();
    });

    check('complete keeps the leased job', async () => {
      const added = await addOneByOne(3);
      const { next, finish } = work();
      const { lease } = await next();
      expect(await store.complete(lease, [lease.id, added[1]!.id])).toBe(true);
      expect(await store.depth(lane)).toEqual({ waiting: 1, active: 1 });
      expect((await store.read(lane, [lease.id]))[0]?.id).toBe(lease.id);
      expect(await store.window(lease, 9)).toEqual([added[2]!.id]);
      finish();
      expect((await next()).lease.id).toBe(added[2]!.id);
      finish();
      await waitUntilEmpty();
    });

    check('more envelopes than one command can remove are completed in one call', async () => {
      const added = entries(600);
      await producer.add(added);
      const { next, finish } = work();
      const { lease } = await next();
      expect(await store.complete(lease, idsOf(added.slice(1, 599)))).toBe(true);
      expect(await store.window(lease, 9)).toEqual([added[599]!.id]);
      expect(await store.read(lane, idsOf(added.slice(1, 4)))).toEqual([undefined, undefined, undefined]);
      expect(await store.complete(lease, [added[599]!.id])).toBe(true);
      finish();
      await waitUntilEmpty();
    });

    for (const [how, lose] of [
      ['ended', () => store.endLease(lane)],
      ['run out', () => server.expireLock(lane)],
    ] as const)
      check(
        `G3: with a lease that has ${how}, window and complete refuse, and the envelope is first again`,
        async () => {
          const added = await addOneByOne(4);
          const [first, second] = workers.map((one) => one.laneStore) as [LaneStore, LaneStore];
          const silent = work(workers[0]);
          const { lease } = await silent.next();
          const other = work(workers[1]);
          await lose();
          const again = await other.next();
          expect([again.lease.id, again.stalled]).toEqual([lease.id, 1]);
          expect(await first.window(lease, 9)).toBeUndefined();
          expect(await first.complete(lease, [added[1]!.id])).toBe(false);
          expect(await second.window(again.lease, 9)).toEqual(idsOf(added.slice(1)));
          // The first holder's result has no effect after the loss of its lease.
          silent.finish();
          await waitUntil(async () => (await store.depth(lane)).active === 1, {
            what: 'the lease of the other',
          });
          expect(await second.window(again.lease, 9)).toEqual(idsOf(added.slice(1)));
          await silent.close();
          other.finish();
          expect((await other.next()).lease.id).toBe(added[1]!.id);
        },
      );

    check(
      'G3: an envelope that is given back is handed out next, and does not count as stalled',
      async () => {
        const added = await addOneByOne(3);
        const first = work();
        expect((await first.next()).lease.id).toBe(added[0]!.id);
        await first.close();
        expect(await store.head(lane, 9)).toEqual(idsOf(added));
        const { next, finish } = work(workers[1]);
        for (const { id } of added) {
          const { lease, stalled } = await next();
          expect([lease.id, stalled]).toEqual([id, 0]);
          finish();
        }
        await waitUntilEmpty();
      },
    );

    check(
      'an id is not added again while the lane holds it, but can be added after it has left',
      async () => {
        const added = await addOneByOne(2);
        await producer.add(added);
        expect(await store.head(lane, 9)).toEqual(idsOf(added));
        const { next, finish } = work();
        await next();
        await producer.add(added);
        expect(await store.depth(lane)).toEqual({ waiting: 1, active: 1 });
        finish();
        await next();
        await producer.add(added.slice(0, 1));
        finish();
        expect((await next()).lease.id).toBe(added[0]!.id);
        finish();
        await waitUntilEmpty();
      },
    );

    check('a removed envelope is not handed out, and a leased envelope cannot be removed', async () => {
      const added = await addOneByOne(3);
      const { next, finish } = work();
      const { lease } = await next();
      await store.remove(lane, lease.id);
      await store.remove(lane, added[1]!.id);
      await store.remove(lane, newId());
      expect(await store.depth(lane)).toEqual({ waiting: 1, active: 1 });
      expect(await store.window(lease, 9)).toEqual([added[2]!.id]);
      finish();
      expect((await next()).lease.id).toBe(added[2]!.id);
      finish();
      await waitUntilEmpty();
    });

    check('depth, oldest, find and read agree with what was added', async () => {
      const before = Date.now() - 1000;
      const waitingBefore = await store.waitingInShard(0);
      expect(await store.oldest(lane)).toBeUndefined();
      const added = await addOneByOne(4);
      const ids = idsOf(added);
      const range = ([from, to]: [number, number]): [string, string] => [ids[from]!, ids[to]!];
      expect(await store.depth(lane)).toEqual({ waiting: 4, active: 0 });
      expect(await store.waitingInShard(0)).toBe(waitingBefore + 4);
      const oldest = (await store.oldest(lane))!;
      expect(oldest.id).toBe(ids[0]);
      expect(oldest.age).toBeLessThan(60_000);
      expect(oldest.timestamp).toBeGreaterThan(before);
      expect(await store.oldestInShard(0)).toBeLessThanOrEqual(oldest.timestamp);
      expect(await store.find(lane, range([1, 2]))).toEqual(ids.slice(1, 3));
      const [third, gone, first] = await store.read(lane, [ids[2]!, newId(), ids[0]!]);
      expect([third?.id, gone, first?.id]).toEqual([ids[2], undefined, ids[0]]);
      expect(third!.data.objects).toEqual(encodeEnvelope(added[2]!.envelope).objects);

      const { next, finish } = work();
      await next();
      expect(await store.depth(lane)).toEqual({ waiting: 3, active: 1 });
      expect((await store.oldest(lane))?.id).toBe(ids[0]);
      expect(await store.find(lane, range([0, 3]))).toEqual(ids);
      finish();
      await next();
      expect((await store.oldest(lane))?.id).toBe(ids[1]);
      expect(await store.find(lane, range([0, 3]))).toEqual(ids.slice(1));
    });

    check(
      'G5: a read returns only as many envelopes as fit the requested bytes, but at least one',
      async () => {
        const added = entries(200);
        await producer.add(added);
        const ids = idsOf(added);
        expect(await store.head(lane, 5)).toEqual(ids.slice(0, 5));
        expect(await store.head(lane, 1000)).toEqual(ids);
        expect(idsOf((await store.read(lane, ids, 1)) as never)).toEqual(ids.slice(0, 1));
        const some = idsOf((await store.read(lane, ids, 4000)) as never);
        expect(some).toEqual(ids.slice(0, some.length));
        expect(some.length).toBeGreaterThan(5);
        expect(some.length).toBeLessThan(100);
        expect(await store.read(lane, ids)).toHaveLength(ids.length);
        expect(await store.read(lane, [])).toEqual([]);
      },
    );

    check('an envelope whose handler throws is set aside as failed until it is removed', async () => {
      const [failing, following] = await addOneByOne(2);
      const handed: string[] = [];
      const worker = workers[0].laneStore.lease(
        lane,
        async ({ lease: { id } }) => {
          handed.push(id);
          if (id === failing!.id) throw new Error('broken off');
          return 'finish';
        },
        LEASE,
      );
      onTestFinished(() => worker.close());
      await waitUntilEmpty();
      expect(handed).toEqual(idsOf([failing!, following!]));
      expect(await store.failed(lane, 9)).toEqual([failing!.id]);
      const [stored] = await store.read(lane, [failing!.id]);
      expect(stored?.data.objects).toEqual(encodeEnvelope(failing!.envelope).objects);
      await store.remove(lane, failing!.id);
      expect(await store.failed(lane, 9)).toEqual([]);
    });

    check('a paused lane is reported as paused', async () => {
      expect(await store.isPaused(lane)).toBe(false);
      await server.pause(lane);
      expect(await store.isPaused(lane)).toBe(true);
      await server.resume(lane);
      expect(await store.isPaused(lane)).toBe(false);
    });

    check('G1, G3: interrupted adds are stored once when repeated, after the earlier envelopes', async () => {
      const added = await addOneByOne(3);
      const interrupted = entries(3);
      await server.failDuring(() => producer.add(interrupted));
      await waitUntil(() => store.ready(), { what: 'the store' });
      await waitUntil(() => producer.add(interrupted).then(() => true), { what: 'the repeated add' });
      await waitUntil(
        async () => {
          expect(await store.head(lane, 99)).toEqual(idsOf([...added, ...interrupted]));
          return true;
        },
        { what: 'each envelope once', deadline: 10_000 },
      );
      const { next, finish } = work();
      for (const { id } of [...added, ...interrupted]) {
        expect((await next()).lease.id).toBe(id);
        finish();
      }
      await waitUntilEmpty();
    });

    check('G3: an add to a store that came back empty restores the limit of the lane first', async () => {
      await addOneByOne(1);
      expect(await store.isLimited(lane)).toBe(true);
      await server.comeBackEmpty();
      await waitUntil(async () => !(await store.isLimited(lane)), { what: 'the empty store' });
      if (!server.dropsProducers) {
        await producer.stop();
        producer = store.createProducer({ timeout: 5000, log });
      }
      await waitUntil(() => producer.add([entry()]).then(() => true), { what: 'an add' });
      expect(await store.isLimited(lane)).toBe(true);
    });

    check('a lost limit is reported, and can be set again', async () => {
      await store.limit(lane);
      expect(await store.isLimited(lane)).toBe(true);
      await server.forgetLimit(lane);
      expect(await store.isLimited(lane)).toBe(false);
      await store.limit(lane);
      expect(await store.isLimited(lane)).toBe(true);
    });
  });
}

function envelopeOf(user: string): Envelope {
  const request = { request_id: newId(), workspace_id: newId(), accepted_at: '2026-01-02T03:04:05Z' };
  const object = {
    ...{ kind: 'events', id: newId(), index: 0 },
    identifier: { external_id: user },
  };
  return {
    requests: [{ ...request, count: 1 }],
    objects: [{ ...object, name: 'seen', time: '2026-01-31T12:00:00.000Z' } as Envelope['objects'][number]],
  };
}
