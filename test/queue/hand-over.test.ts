import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { newId } from '../../src/platform/ids.ts';
import { type WatchApplied, watchApplied } from '../../src/queue/effects.ts';
import {
  handOver,
  handOverUntilApplied,
  lanesOf,
  Outbox,
  packStaged,
  TakenOver,
  type TargetLanes,
} from '../../src/queue/hand-over.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { type LaneEntry, QueueUnavailable } from '../../src/queue/lanes.ts';
import { findImport, type ImportKey, stageEnvelopes } from '../../src/store/imports.ts';
import type { StagedEnvelopes } from '../../src/store/staged-envelopes.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { createScene, LANES, log, people, type Scene } from './scene.ts';

interface Chunk {
  rows: number;
  staged: StagedEnvelopes;
}

const EMPTY: StagedEnvelopes = { entries: [], envelopeIds: [] };

const objectOf = (user: string, index: number): AcceptedObject => ({
  ...{ id: newId(), index, create: true },
  ...{ kind: 'attributes', identifier: { external_id: user }, set: { number: index } },
});

describe.each(['redis', 'postgres'] as const)('a hand-over to lanes in %s', (kind) => {
  let scene: Scene;
  let workspaceId: string;
  let target: TargetLanes;
  let applied: WatchApplied;
  beforeAll(async () => {
    scene = await createScene(kind);
    ({ id: workspaceId } = await createWorkspace(scene.pool));
    const producer = createLaneProducer(scene.connection, { timeout: scene.config.QUEUE_TIMEOUT_MS, log });
    target = lanesOf(producer, LANES);
    applied = watchApplied(scene.pool as never);
  });
  afterAll(() => scene.stop());
  beforeEach(() => Promise.all(scene.queues.map((queue) => queue.drain())));

  /** Packs a chunk with one object for each user. */
  function chunkOf(rows: number, users: string[]): Chunk {
    const request = { request_id: newId(), workspace_id: workspaceId, accepted_at: 'now' };
    const packing = { lanes: LANES, maxEnvelopeObjects: 2000 };
    return { rows, staged: packStaged({ request, objects: users.map(objectOf), bytes: 1000 }, packing) };
  }

  /** Begins an import, whose row is the outbox. */
  async function beginOwner(): Promise<ImportKey> {
    const key = { workspaceId, key: createHash('sha256').update(newId()).digest() };
    await scene.pool.query(
      "insert into imports (workspace_id, key, id, file, digest, reading) values ($1, $2, $3, 'f', $2, '{}')",
      [workspaceId, key.key, newId()],
    );
    return key;
  }

  const stored = async (key: ImportKey) => (await findImport(scene.pool as never, key))!;

  /** Opens the outbox of an owner as a process does, which resumes the stored chunk. */
  async function openOutbox(key: ImportKey, lanes = target): Promise<Outbox<Chunk, number>> {
    let { rows, staged } = await stored(key);
    const outbox = new Outbox<Chunk, number>({
      async store({ next = { rows, staged: EMPTY } }) {
        const progress = { rows: next.rows, accepted: 0, refused: 0, refusedBytes: 0 };
        const step = { expected: rows, progress, staged: next.staged };
        if (!(await stageEnvelopes(scene.pool as never, key, step))) throw new TakenOver();
        rows = next.rows;
        return true;
      },
      handOver: (chunk) => handOver(chunk.staged.entries, lanes, { patience: 0 }),
    });
    if (staged) outbox.resume({ rows, staged: { ...EMPTY, entries: staged } });
    return outbox;
  }

  /** The users of all waiting objects. */
  const waiting = async () => (await scene.everything()).map(({ user }) => user.slice(2)).sort();

  /** Lanes that count the adds. */
  function counted() {
    const counting = { adds: 0, ...target };
    counting.add = (entries) => {
      counting.adds++;
      return target.add(entries);
    };
    return counting;
  }

  test('G1: a chunk whose process died before the add reaches the lanes through its successor', async () => {
    const key = await beginOwner();
    const dying = await openOutbox(key, { lanes: LANES, add: () => new Promise(() => {}) });
    expect(await dying.advance(chunkOf(3, ['ada', 'bob', 'eve']))).toBe(true);
    expect(await waiting()).toEqual([]);
    const successor = await openOutbox(key);
    await successor.advance();
    expect(await waiting()).toEqual(['ada', 'bob', 'eve']);
    expect((await stored(key)).staged).toBeNull();
  });

  test('G2: a chunk whose process died between the add and the mark is in the lanes once', async () => {
    const key = await beginOwner();
    const dying = await openOutbox(key);
    await dying.advance(chunkOf(2, ['ada', 'bob']));
    await dying.handedOver();
    expect((await stored(key)).staged).not.toBeNull();
    const lanes = counted();
    const successor = await openOutbox(key, lanes);
    await successor.advance(chunkOf(3, ['eve']));
    await successor.handedOver();
    expect(lanes.adds).toBe(2);
    expect(await waiting()).toEqual(['ada', 'bob', 'eve']);
  });

  test('G2: a chunk whose process died after the mark is not added again', async () => {
    const key = await beginOwner();
    const dying = await openOutbox(key);
    await dying.advance(chunkOf(2, ['ada', 'bob']));
    await dying.advance();
    const lanes = counted();
    const successor = await openOutbox(key, lanes);
    expect(await successor.handedOver()).toBeUndefined();
    await successor.advance();
    expect(lanes.adds).toBe(0);
    expect(await waiting()).toEqual(['ada', 'bob']);
  });

  test('G2: if two processes resume one chunk at once, one continues and the other stops', async () => {
    const key = await beginOwner();
    const dying = await openOutbox(key, { lanes: LANES, add: () => new Promise(() => {}) });
    await dying.advance(chunkOf(2, ['ada', 'bob']));
    const both = [await openOutbox(key), await openOutbox(key)] as const;
    const advanced = await Promise.allSettled([
      both[0].advance(chunkOf(3, ['next-0'])),
      both[1].advance(chunkOf(3, ['next-1'])),
    ]);
    const winner = advanced.findIndex(({ status }) => status === 'fulfilled');
    expect(advanced[1 - winner]).toMatchObject({ status: 'rejected', reason: expect.any(TakenOver) });
    await both[winner]!.handedOver();
    expect(await waiting()).toEqual(['ada', 'bob', `next-${winner}`]);
    expect((await stored(key)).rows).toBe(3);
  });

  test('G2: a process that was frozen during its add stops when another has taken over', async () => {
    const key = await beginOwner();
    const thaw = new AbortController();
    const add = async (entries: LaneEntry[]) => {
      await once(thaw.signal, 'abort');
      await target.add(entries);
    };
    const frozen = await openOutbox(key, { lanes: LANES, add });
    await frozen.advance(chunkOf(2, ['ada', 'bob']));
    const successor = await openOutbox(key);
    await successor.advance(chunkOf(3, ['eve']));
    await successor.advance();
    thaw.abort();
    await expect(frozen.advance(chunkOf(3, ['eve']))).rejects.toThrow(TakenOver);
    expect(await waiting()).toEqual(['ada', 'bob', 'eve']);
    expect(await stored(key)).toMatchObject({ rows: 3, staged: null });
  });

  test('a chunk that the queue refuses stays stored, and advance rejects with the refusal', async () => {
    const key = await beginOwner();
    const full = { lanes: LANES, add: () => Promise.reject(new QueueUnavailable('full')) };
    const outbox = await openOutbox(key, full);
    await outbox.advance(chunkOf(2, ['ada', 'bob']));
    await expect(outbox.advance()).rejects.toThrow(QueueUnavailable);
    expect(await stored(key)).toMatchObject({ rows: 2, staged: expect.any(Array) });
    await (await openOutbox(key)).advance();
    expect(await waiting()).toEqual(['ada', 'bob']);
  });

  test('a chunk that the store did not accept is not added', async () => {
    const lanes = counted();
    const outbox = new Outbox<Chunk, number>({
      store: async () => false,
      handOver: ({ staged }) => handOver(staged.entries, lanes),
    });
    expect(await outbox.advance(chunkOf(1, ['ada']))).toBe(false);
    expect(await outbox.handedOver()).toBeUndefined();
    expect(lanes.adds).toBe(0);
  });

  test('the result of a chunk is recorded once', async () => {
    const done: unknown[] = [];
    const outbox = new Outbox<string, string>({
      async store(step) {
        done.push(step.done);
        return true;
      },
      handOver: async (chunk) => `${chunk} has taken effect`,
    });
    await outbox.advance('first');
    await outbox.advance();
    await outbox.advance('second');
    await outbox.advance();
    expect(done).toEqual([undefined, 'first has taken effect', undefined, 'second has taken effect']);
  });

  test('envelopes of an installation with more lanes go to the first lane', async () => {
    const { staged } = chunkOf(6, people(6));
    expect(staged.entries.length).toBeGreaterThan(1);
    await handOver(staged.entries, { ...target, lanes: 1 });
    expect(await scene.contentsOf(0)).toHaveLength(6);
    expect(await scene.everything()).toHaveLength(6);
  });

  test('a wait for the effect adds envelopes again after the queue has lost them', async () => {
    const { staged } = chunkOf(4, people(4));
    const lanes = counted();
    const losing: WatchApplied = async (missing, watching) => {
      if (lanes.adds === 1) {
        for (const queue of scene.queues) await queue.drain();
        return { ends: new Map(), missing: new Set(missing) };
      }
      await scene.pool.query('insert into ledger (envelope_id) select unnest($1::uuid[])', [
        staged.envelopeIds,
      ]);
      return applied(missing, watching);
    };
    const abandon = new AbortController().signal;
    const milliseconds = await handOverUntilApplied(staged, lanes, { applied: losing, abandon });
    expect(milliseconds).toBeGreaterThan(0);
    expect(lanes.adds).toBe(2);
    expect(await waiting()).toEqual(people(4));
  });

  test('a wait for the effect ends with the reason of the signal or the error of the store', async () => {
    const abandon = new AbortController();
    const { staged } = chunkOf(1, ['ada']);
    const ended = handOverUntilApplied(staged, target, { applied, abandon: abandon.signal });
    ended.catch(() => {});
    await waitUntil(async () => (await waiting()).length === 1, { what: 'the add' });
    abandon.abort(new Error('shutting down'));
    await expect(ended).rejects.toThrow('shutting down');
    const away = watchApplied({ query: () => Promise.reject(new Error('store away')) } as never);
    const never = new AbortController().signal;
    await expect(handOverUntilApplied(staged, target, { applied: away, abandon: never })).rejects.toThrow(
      'store away',
    );
  });

  test('a chunk without envelopes is handed over without an add', async () => {
    const lanes = counted();
    await handOver([], lanes);
    const abandon = new AbortController().signal;
    expect(await handOverUntilApplied(EMPTY, lanes, { applied, abandon })).toBe(0);
    expect(lanes.adds).toBe(0);
  });

  test('a fence has one ledger row for any number of lanes', () => {
    const objects: AcceptedObject[] = [
      { ...{ id: newId(), index: 0 }, kind: 'delete', identifier: { external_id: 'ada' } },
    ] as never;
    const request = { request_id: newId(), workspace_id: workspaceId, accepted_at: 'now' };
    const packing = { lanes: LANES, maxEnvelopeObjects: 2000 };
    const { entries, envelopeIds } = packStaged({ request, objects, bytes: 100 }, packing);
    expect(entries).toHaveLength(LANES);
    expect(envelopeIds).toEqual([entries[0]!.id]);
  });
});

describe('full lanes', () => {
  let scene: Scene;
  let target: TargetLanes;
  beforeAll(async () => {
    scene = await createScene('redis');
    const producer = createLaneProducer(scene.connection, { timeout: scene.config.QUEUE_TIMEOUT_MS, log });
    target = lanesOf(producer, LANES);
  });
  afterAll(() => scene.stop());
  beforeEach(async () => {
    await scene.operator!.config('SET', 'maxmemory', '1');
  });

  function entriesOf(users: string[]): LaneEntry[] {
    const request = { request_id: newId(), workspace_id: newId(), accepted_at: 'now' };
    const packing = { lanes: LANES, maxEnvelopeObjects: 2000 };
    return packStaged({ request, objects: users.map(objectOf), bytes: 100 }, packing).entries;
  }

  const makeRoom = () => scene.operator!.config('SET', 'maxmemory', '0');

  test('G1: a hand-over is repeated until the lanes have room', async () => {
    let retries = 0;
    const onRetry = (refusal: QueueUnavailable) => {
      expect(refusal).toBeInstanceOf(QueueUnavailable);
      if (++retries === 2) void makeRoom();
    };
    await handOver(entriesOf(['ada']), target, { onRetry });
    expect(retries).toBeGreaterThanOrEqual(2);
    expect((await scene.everything()).map(({ user }) => user)).toEqual(['x:ada']);
  });

  test('G5: a hand-over ends with the refusal when its patience is over', async () => {
    let retries = 0;
    const retrying = { patience: 150, onRetry: () => void retries++ };
    await expect(handOver(entriesOf(['bob']), target, retrying)).rejects.toThrow(QueueUnavailable);
    expect(retries).toBeGreaterThanOrEqual(1);
  });

  test('G5: a hand-over without patience ends with the first refusal', async () => {
    let attempts = 0;
    // Even a refusal in the millisecond of the attempt is not retried.
    const refuse = () => {
      attempts++;
      return Promise.reject(new QueueUnavailable('full'));
    };
    const lanes = { lanes: LANES, add: refuse };
    await expect(handOver(entriesOf(['bob']), lanes, { patience: 0 })).rejects.toThrow('full');
    expect(attempts).toBe(1);
  });

  test('a hand-over ends after one more attempt when the process is leaving', async () => {
    const leaving = new AbortController();
    const onRetry = () => leaving.abort();
    const ended = handOver(entriesOf(['eve']), target, { leaving: leaving.signal, onRetry });
    await expect(ended).rejects.toThrow(QueueUnavailable);
  });

  test('a hand-over ends at once with any error other than a refusal of the queue', async () => {
    let attempts = 0;
    const add = () => {
      attempts++;
      return Promise.reject(new TypeError('a mistake'));
    };
    await expect(handOver(entriesOf(['eve']), { lanes: LANES, add })).rejects.toThrow('a mistake');
    expect(attempts).toBe(1);
  });
});
