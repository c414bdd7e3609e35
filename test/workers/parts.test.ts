import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { type Part, WHOLE } from '../../workers/batch/parts.ts';
import { sharesOf } from '../../workers/batch/shares.ts';
import { Isolation } from '../../workers/lane/isolation.ts';
import { type AccountsView, nextBatch } from '../../workers/lane/next-batch.ts';
import { remaining, Scheduler, type WaitingDelivery, waiting } from '../../workers/lane/scheduler.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { identity } from '../identity/objects.ts';
import { isAboutOnePostgres } from '../setup/nodes.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
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

/** Creates a workspace, and an envelope of eight users with many rounds, since each rename starts a new round. */
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

async function rowsOf(delivery: Delivery): Promise<{ ledger: number; cut: number }> {
  // On a Citus, each workspace of a shared envelope has a row under its own id.
  const shares = sharesOf([delivery]).flatMap(({ deliveries }) => deliveries.map(({ id }) => id));
  const { rows } = await pool.query(
    `select (select count(*)::integer from ledger where envelope_id = $1) as ledger,
            (select count(*)::integer from cut_envelopes where envelope_id = any ($2::uuid[])) as cut`,
    [delivery.id, [delivery.id, ...shares]],
  );
  return rows[0];
}

const part: Part = { milliseconds: 0 };

describe('G2: an envelope that is applied in parts has one effect', () => {
  test('and the ledger contains it only after the last part', async () => {
    const { workspace, delivery } = await scene();
    const result = await applyBatch(pool, [delivery], part);
    expect(result).toMatchObject({
      left: new Map([[delivery.id, new Map([[workspace.id, expect.any(Number)]])]]),
    });
    expect(await rowsOf(delivery)).toEqual({ ledger: 0, cut: 1 });
    expect(await applyInParts(pool, [delivery])).toBeGreaterThan(5);
    expect(await rowsOf(delivery)).toEqual({ ledger: 1, cut: 0 });
    expect(await applyBatch(pool, [delivery])).toEqual({ kind: 'skipped' });
    expect(await readSums(pool, workspace)).toEqual(once);
  });

  test('if several workers apply it at once, some of them as a whole', async () => {
    for (let round = 0; round < 10; round++) {
      const { workspace, delivery } = await scene();
      await Promise.all([
        applyInParts(pool, [delivery]),
        applyInParts(pool, [delivery, delivery]),
        applyBatch(pool, [delivery], part).then(() => applyBatch(pool, [delivery])),
      ]);
      expect(await readSums(pool, workspace)).toEqual(once);
      expect(await rowsOf(delivery)).toEqual({ ledger: 1, cut: 0 });
    }
  });

  test.each(['before', 'after'] as const)('if the connection is cut %s COMMIT of any part', async (when) => {
    const cutter = await startCommitCutter(url);
    const throughProxy = openPool(cutter.url);
    const { workspace, delivery } = await scene();
    for (let parts = 0; parts < 100; parts++) {
      if (parts % 2 === 0) cutter.arm(when);
      const result = await applyBatch(throughProxy, [delivery], part).catch(() => undefined);
      if (result && (result.kind === 'skipped' || !result.left)) break;
    }
    expect(cutter.cuts()).toBeGreaterThan(3);
    expect(await readSums(pool, workspace)).toEqual(once);
    expect(await rowsOf(delivery)).toEqual({ ledger: 1, cut: 0 });
    await throughProxy.end();
  });

  test.skipIf(isAboutOnePostgres('no earlier release runs on a distributed Postgres'))(
    'and a worker of an earlier release, which claims all of it, gets a retryable error',
    async () => {
      const { delivery } = await scene();
      await applyBatch(pool, [delivery], part);
      const claim = () => pool.query('insert into ledger (envelope_id) values ($1)', [delivery.id]);
      await expect(claim()).rejects.toMatchObject({ code: '55P03' });
      await applyInParts(pool, [delivery]);
      expect(await rowsOf(delivery)).toEqual({ ledger: 1, cut: 0 });
    },
  );

  test('G4: if it contains objects that cannot be applied and objects of unknown kind', async () => {
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

describe('a part', () => {
  test('G3, G8: applies the share of a workspace and leaves all other objects of its envelope', async () => {
    const [one, other] = await Promise.all([1, 2].map(() => createWorkspace(pool, uuidv7())));
    const shared = deliver(one!, [point('a'), point('a'), point('a')]);
    shared.envelope.requests[0]!.count = 3;
    shared.envelope.requests.push({ ...deliver(other!, []).envelope.requests[0]!, count: 2 });
    shared.envelope.objects.push(point('b'), point('b'));
    const take = (id: string, shares: Map<string, number>) =>
      applyBatch(pool, [{ ...shared, only: new Set([id]) }], { ...WHOLE, shares });
    const left = (counts: [string, number][]) => ({ left: new Map([[shared.id, new Map(counts)]]) });
    expect(await take(one!.id, new Map([[one!.id, 2]]))).toMatchObject(
      left([
        [one!.id, 1],
        [other!.id, 2],
      ]),
    );
    expect(await readSums(pool, one!)).toMatchObject({ points: 2 });
    expect(await take(other!.id, new Map())).toMatchObject(left([[one!.id, 1]]));
    expect(await readSums(pool, other!)).toMatchObject({ points: 2 });
    expect(await rowsOf(shared)).toEqual({ ledger: 0, cut: 1 });
    expect(await take(one!.id, new Map())).not.toHaveProperty('left');
    expect(await readSums(pool, one!)).toMatchObject({ points: 3 });
    expect(await rowsOf(shared)).toEqual({ ledger: 1, cut: 0 });
  });

  test('G3: keeps the order of the objects of a workspace in a lane, for any order of workspaces', async () => {
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
      // The chosen workspaces and their shares change from part to part.
      const only = new Set(range(1 + (parts % 3)).map((index) => workspaces[(parts + index) % 3]!.id));
      const shares = new Map([[workspaces[parts % 3]!.id, 1 + (parts % 4)]]);
      const deliveries = batch.slice(0, 3 + (parts % 7)).map((delivery) => ({ ...delivery, only }));
      const result = await applyBatch(pool, deliveries, { ...part, shares });
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

  test('G2, G3: leaves exactly the objects of shared envelopes that have not taken effect', async () => {
    const workspaces = await Promise.all(range(3).map(() => createWorkspace(pool, uuidv7())));
    const each = 6;
    const add = (index: number) =>
      attributes('ann', { change: { trail: { array: { add: [String(index)] } } } });
    const deliveries = range(4).map((envelope) => {
      const own = workspaces.map((one) =>
        deliver(
          one,
          range(each).map((index) => add(each * envelope + index)),
        ),
      );
      const requests = own.map((one) => ({ ...one.envelope.requests[0]!, count: each }));
      return { ...own[0]!, envelope: { requests, objects: own.flatMap((one) => one.envelope.objects) } };
    });
    const deliveryById = new Map(deliveries.map((delivery) => [delivery.id, delivery]));
    const trails = async () => {
      const { rows } = await pool.query<{ workspace_id: string; trail: string[] }>(
        `select workspace_id, custom_attributes -> 'trail' as trail from profiles
         where workspace_id = any ($1::uuid[])`,
        [workspaces.map(({ id }) => id)],
      );
      return new Map(rows.map(({ workspace_id, trail }) => [workspace_id, trail]));
    };

    let window: readonly WaitingDelivery[] = deliveries.map((delivery) => waiting(delivery));
    for (let parts = 0; window.length > 0; parts++) {
      expect(parts).toBeLessThan(200);
      // The order of workspaces, the size of a slice and the size of a round change from part to part.
      const accounts: AccountsView = {
        servedUntil: (id) => (workspaces.findIndex((one) => one.id === id) + parts) % 3,
        unitsOf: (_, { objects }) => objects,
      };
      const limits = { objects: 100, bytes: 1_000_000, slice: 1 + (parts % 5), isolation: new Isolation() };
      const { envelopes, shares } = nextBatch(window, accounts, limits)!;
      const batch = envelopes.map((one) => ({ ...deliveryById.get(one.id)!, only: one.workspaces }));
      const result = await applyBatch(pool, batch, { milliseconds: 0, size: 1 + (parts % 4), shares });
      const left = (result.kind === 'applied' && result.left) || new Map();
      const done = batch.flatMap(({ id }) => (left.has(id) ? [] : [id]));
      window = remaining(window, { kind: 'applied', done, left });

      const applied = await trails();
      for (const trail of applied.values()) expect(trail).toEqual(range(trail.length).map(String));
      const missing = deliveries.flatMap(({ id }, envelope) => {
        const counts = workspaces.map((one) => {
          const count = each * (envelope + 1) - (applied.get(one.id)?.length ?? 0);
          return [one.id, Math.max(0, Math.min(each, count))] as const;
        });
        const some = counts.filter(([, count]) => count > 0);
        return some.length > 0 ? [[id, new Map(some)] as const] : [];
      });
      const kept = window.map(({ id, parts }) => {
        const counts = [...parts!].map(([workspaceId, { objects }]) => [workspaceId, objects] as const);
        return [id, new Map(counts)] as const;
      });
      expect(kept).toEqual(missing);
    }
    expect([...(await trails()).values()]).toEqual(workspaces.map(() => range(4 * each).map(String)));
  });
});

test('G8: a workspace after a very busy one in the same lane waits for only one part of it', async () => {
  const [busy, neighbour] = await Promise.all([1, 2].map(() => createWorkspace(pool, uuidv7())));
  await growFullUsers(pool, busy!.id, { count: 40, milliseconds: 40 });
  const scheduler = new Scheduler(pool, { metrics: createWorkerMetrics(), log: silent });
  let envelopes: readonly WaitingDelivery[] = [waiting(deliver(busy!, changesOfFull(40)))];
  for (let steps = 0; envelopes.length > 0; steps++) {
    if (steps === 1) {
      envelopes = [...envelopes, waiting(deliver(neighbour!, [event('ann')]))];
      for (const { id } of [busy!, neighbour!]) scheduler.accounts.see(id);
    }
    if (steps === 2) expect((await readSums(pool, neighbour!)).events).toBe(1);
    const step = await scheduler.step({ lane: 0, envelopes: () => envelopes });
    if (step.kind === 'applied') envelopes = remaining(envelopes, step);
    if (steps === 2) expect(envelopes).toHaveLength(1);
  }
  expect(await countChanged(pool, busy!.id)).toBe(40);
});
