import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { createCoalescer } from '../../workers/batch/coalescer.ts';
import { byTurns } from '../../workers/batch/handed-in.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { identity } from '../identity/objects.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { isAboutOnePostgres } from '../setup/nodes.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch, applyPart } from './apply-batch.ts';
import {
  applyInParts,
  attributes,
  createStore,
  deliver,
  event,
  openPool,
  point,
  readDeadLetters,
  readSums,
  refuseEvents,
  silent,
} from './batch.ts';
import { startCommitCutter } from './commit-cutter.ts';
import { changesOfFull, countChanged, growFullUsers } from './full-users.ts';

let url: string;
let pool: pg.Pool;
beforeAll(async () => {
  ({ url, pool } = await createStore());
});
afterAll(() => pool.end());

const range = (length: number) => Array.from({ length }, (_, index) => index);

/** A workspace of its own, and an envelope of eight users in many rounds: each rename begins another. */
async function scene(): Promise<{ workspace: TestWorkspace; delivery: Delivery }> {
  const workspace = await createWorkspace(pool, uuidv7());
  const objects = range(8).flatMap((user) => [
    point(`user-${user}`),
    event(`user-${user}`),
    identity('external_id_rename', {
      current_external_id: `user-${user}`,
      new_external_id: `renamed-${user}`,
    }),
    point(`renamed-${user}`),
  ]);
  return { workspace, delivery: deliver(workspace, objects) };
}
const once = { users: 8, points: 16, events: 8, counted: 8, usage: 24 };

async function rowsOf({ id }: Delivery): Promise<{ ledger: number; cut: number }> {
  const { rows } = await pool.query(
    `select (select count(*)::integer from ledger where envelope_id = $1) as ledger,
            (select count(*)::integer from cut_envelopes where envelope_id = $1) as cut`,
    [id],
  );
  return rows[0];
}

const part = (late: string[] = [], isForOthers = false) => ({
  log: silent,
  part: { milliseconds: 0, late: new Set(late), isForOthers },
});

describe('G2: an envelope that is applied in parts has one effect', () => {
  test('and the ledger knows it when the last part is in, not before', async () => {
    const { workspace, delivery } = await scene();
    const result = await applyPart(pool, [delivery], part());
    expect(result).toMatchObject({ left: { envelopes: new Set([delivery.id]) } });
    expect(await rowsOf(delivery)).toEqual({ ledger: 0, cut: 1 });
    expect(await applyInParts(pool, [delivery])).toBeGreaterThan(5);
    expect(await rowsOf(delivery)).toEqual({ ledger: 1, cut: 0 });
    expect(await applyBatch(pool, [delivery], silent)).toEqual({ kind: 'skipped' });
    expect(await readSums(pool, workspace)).toEqual(once);
  });

  test('by several workers at once, some of them in one piece', async () => {
    for (let round = 0; round < 10; round++) {
      const { workspace, delivery } = await scene();
      await Promise.all([
        applyInParts(pool, [delivery]),
        applyInParts(pool, [delivery, delivery]),
        applyPart(pool, [delivery], part()).then(() => applyBatch(pool, [delivery], silent)),
      ]);
      expect(await readSums(pool, workspace)).toEqual(once);
      expect(await rowsOf(delivery)).toEqual({ ledger: 1, cut: 0 });
    }
  });

  test.each(['before', 'after'] as const)(
    'when the connection is cut %s COMMIT of any part',
    async (when) => {
      const cutter = await startCommitCutter(url);
      const throughProxy = openPool(cutter.url);
      const { workspace, delivery } = await scene();
      for (let parts = 0; parts < 100; parts++) {
        if (parts % 2 === 0) cutter.arm(when);
        const result = await applyPart(throughProxy, [delivery], part()).catch(() => undefined);
        if (result && (result.kind === 'skipped' || !result.left)) break;
      }
      expect(cutter.cuts()).toBeGreaterThan(3);
      expect(await readSums(pool, workspace)).toEqual(once);
      expect(await rowsOf(delivery)).toEqual({ ledger: 1, cut: 0 });
      await throughProxy.end();
    },
  );

  test.skipIf(isAboutOnePostgres('no earlier release runs on a distributed Postgres'))(
    'and a worker of an earlier release, which claims the whole, is told to try again',
    async () => {
      const { delivery } = await scene();
      await applyPart(pool, [delivery], part());
      const claim = () => pool.query('insert into ledger (envelope_id) values ($1)', [delivery.id]);
      await expect(claim()).rejects.toMatchObject({ code: '55P03' });
      await applyInParts(pool, [delivery]);
      expect(await rowsOf(delivery)).toEqual({ ledger: 1, cut: 0 });
    },
  );

  test('G4: with objects that cannot be applied, and others that no release knows', async () => {
    const { pool: own, workspace } = await createStore();
    await refuseEvents(own, 'poison');
    const unknown = () => ({ ...point('ann'), kind: 'unheard of' }) as unknown as AcceptedObject;
    const objects = range(12).flatMap((index) => [
      point(`user-${index % 3}`),
      event(`user-${index % 3}`, index % 2 ? 'poison' : 'fine'),
      ...(index % 4 === 0 ? [unknown()] : []),
      ...(index === 6 ? [identity('delete', { user: { identifier: { external_id: 'nobody' } } })] : []),
    ]);
    expect(await applyInParts(own, [deliver(workspace, objects)])).toBeGreaterThan(1);
    expect(await readSums(own, workspace)).toMatchObject({ points: 12, events: 6, counted: 6 });
    expect(await readDeadLetters(own)).toHaveLength(6 + 3);
    await own.end();
  });
});

describe('a turn', () => {
  /** Which visits are stored by now, in their order. */
  async function visits(workspaceId: string): Promise<string[]> {
    const { rows } = await pool.query('select name from events where workspace_id = $1 order by id', [
      workspaceId,
    ]);
    return rows.map(({ name }) => name);
  }

  /** Each begins a round of its own. */
  const rounds = (user: string, names: string[]) =>
    names.flatMap((name, index) => [
      event(`${user}${index}`, name),
      identity('external_id_rename', {
        current_external_id: `${user}${index}`,
        new_external_id: `${user}${index + 1}`,
      }),
    ]);

  test('G8: whose time is over goes behind the others, and goes on in each part', async () => {
    const [slow, quick] = await Promise.all([1, 2].map(() => createWorkspace(pool, uuidv7())));
    const names = range(6).map((index) => `visit ${index}`);
    const batch = [deliver(slow!, rounds('a', names), 1), deliver(quick!, rounds('b', names), 1)];
    const late = new Set([slow!.id]);
    const first = await applyPart(pool, batch, part());
    expect(first).toMatchObject({ left: { over: late } });
    const before = await visits(slow!.id);
    await applyPart(pool, batch, part([...late]));
    expect(await visits(quick!.id)).not.toEqual([]);
    expect((await visits(slow!.id)).length).toBeGreaterThan(before.length);
    await applyInParts(pool, batch, late);
    expect(await visits(quick!.id)).toEqual(names);
    expect(await visits(slow!.id)).toEqual(names);
  });

  test('G8: whose time is over in one lane goes behind the others in all of them, and every second part is for those', async () => {
    const [slow, quick] = await Promise.all([1, 2].map(() => createWorkspace(pool, uuidv7())));
    const names = range(6).map((index) => `visit ${index}`);
    const lanes = [1, 2, 3].map((lane) => deliver(slow!, rounds(`a${lane}-`, names), lane));
    const first = await applyPart(pool, lanes, part());
    expect(first).toMatchObject({ left: { over: new Set([slow!.id]) } });
    const before = await visits(slow!.id);
    const quicks = names.map((name) => deliver(quick!, [event('b', name)], 3));
    const forOthers = await applyPart(pool, [...lanes, ...quicks], part([slow!.id], true));
    expect(await visits(quick!.id)).toEqual(names);
    expect(await visits(slow!.id)).toEqual(before);
    // Nothing more of theirs waits: it goes on.
    expect(forOthers).toMatchObject({ left: { workspaces: new Set([slow!.id]), over: new Set() } });
    await applyPart(pool, lanes, part([slow!.id], true));
    expect((await visits(slow!.id)).length).toBeGreaterThan(before.length);
  });

  test('G8: whoever waits for the first time is taken before those whose time was over, and nobody overtakes their own', () => {
    const [slow, quick, both] = [uuidv7(), uuidv7(), uuidv7()].map((id) => ({ id }));
    const shared = deliver(slow!, [event('a')], 1);
    shared.envelope.requests.push(...deliver(both!, []).envelope.requests);
    const pieces = [
      deliver(slow!, [event('a')], 1),
      deliver(quick!, [event('b')], 1),
      shared,
      deliver(both!, [event('c')], 1),
      deliver(slow!, [event('a')], 2),
      deliver(both!, [event('c')], 2),
    ];
    const late = new Set([slow!.id]);
    const held = pieces.map((delivery) => ({ deliveries: [delivery], done() {} }));
    const ids = byTurns(held, late).map((some) =>
      some.map(({ deliveries }) => pieces.indexOf(deliveries[0]!)),
    );
    expect(ids).toEqual([
      [1, 5],
      [0, 2, 3, 4],
    ]);
  });

  test('G3: what one workspace has in one lane keeps its order, whoever goes first', async () => {
    const workspaces = await Promise.all(range(3).map(() => createWorkspace(pool, uuidv7())));
    const add = (index: number) =>
      attributes('ann', { change: { trail: { array: { add: [String(index)] } } } });
    const objects = (from: number) =>
      range(3).flatMap((index) => [
        add(from + index),
        identity('external_id_rename', {
          current_external_id: 'nobody',
          new_external_id: `n${from + index}`,
        }),
      ]);
    const batch = [0, 3, 6].flatMap((from) => workspaces.map((one) => deliver(one, objects(from))));
    for (let parts = 0; parts < 200; parts++) {
      // Who is late changes from part to part, and who delivers what as well.
      const late = range(parts % 3).map((index) => workspaces[(parts + index) % 3]!.id);
      const result = await applyPart(pool, batch.slice(0, 3 + (parts % 7)), part(late, parts % 2 === 0));
      if (parts > 20 && result.kind === 'skipped') break;
    }
    await applyInParts(pool, batch);
    const { rows } = await pool.query(
      `select custom_attributes -> 'trail' as trail from profiles where workspace_id = any ($1::uuid[])`,
      [workspaces.map(({ id }) => id)],
    );
    expect(rows).toHaveLength(3);
    for (const { trail } of rows) expect(trail).toEqual(range(9).map(String));
  });
});

test('G8: a neighbour in the lane of someone with very much to do waits for a part of it', async () => {
  const [busy, neighbour] = await Promise.all([1, 2].map(() => createWorkspace(pool, uuidv7())));
  await growFullUsers(pool, busy!.id, { count: 40, milliseconds: 40 });
  const coalescer = createCoalescer(pool, { metrics: createWorkerMetrics(), log: silent });
  let isDone = false;
  const work = coalescer.apply(deliver(busy!, changesOfFull(40))).then(() => {
    isDone = true;
  });
  let handedIn = 0;
  coalescer.follow(0, {
    async onCut(pending) {
      expect(pending.size).toBe(1);
      if (handedIn++ === 0) void coalescer.apply(deliver(neighbour!, [event('ann')]));
    },
  });
  await waitUntil(async () => (await readSums(pool, neighbour!)).events === 1, { what: 'the neighbour' });
  expect(isDone).toBe(false);
  await work;
  expect(handedIn).toBeGreaterThan(1);
  expect(await countChanged(pool, busy!.id)).toBe(40);
});
