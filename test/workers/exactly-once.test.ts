import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { causeOf } from '../../src/store/error-cause.ts';
import { type Delivery, ledgerKey } from '../../workers/batch/open.ts';
import { lengthOf } from '../setup/length.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { createStore, deliver, event, openPool, point, readSums } from './batch.ts';
import { type Cut, startCommitCutter } from './commit-cutter.ts';

let url: string;
let pool: pg.Pool;
beforeAll(async () => {
  ({ url, pool } = await createStore());
});
afterAll(() => pool.end());

/** Creates a workspace, and an envelope with an event and a point for each of three users. */
async function scene(): Promise<{ workspace: TestWorkspace; delivery: Delivery }> {
  const workspace = await createWorkspace(pool, crypto.randomUUID());
  const users = ['ann', 'bob', 'eve'];
  return {
    workspace,
    delivery: deliver(
      workspace,
      users.flatMap((user) => [point(user), event(user)]),
    ),
  };
}
const once = { users: 3, points: 3, events: 3, counted: 3, usage: 6 };

/** On Citus, a process creates the place of a workspace in a separate transaction. This runs it in advance, uncut. */
async function comeBefore(to: pg.Pool, workspace: TestWorkspace): Promise<void> {
  const delivery = deliver(workspace, [event('ann')]);
  await to.query('insert into ledger (workspace_id, envelope_id) values ($1, $2)', [
    workspace.id,
    delivery.id,
  ]);
  expect(await applyBatch(to, [delivery])).toEqual({ kind: 'skipped' });
}

test('G2: an envelope that is delivered twice has one effect', async () => {
  const { workspace, delivery } = await scene();
  expect(await applyBatch(pool, [delivery])).toMatchObject({ kind: 'applied', objects: 6 });
  expect(await applyBatch(pool, [delivery])).toEqual({ kind: 'skipped' });
  expect(await readSums(pool, workspace)).toEqual(once);
});

test('G2: an envelope that is delivered three times at once has one effect', async () => {
  for (let round = 0; round < 20; round++) {
    const { workspace, delivery } = await scene();
    const results = await Promise.all([1, 2, 3].map(() => applyBatch(pool, [delivery])));
    expect(results.map(({ kind }) => kind).sort()).toEqual(['applied', 'skipped', 'skipped']);
    expect(await readSums(pool, workspace)).toEqual(once);
  }
});

test('G2: a new envelope takes effect in a batch with an already applied envelope', async () => {
  const { workspace, delivery } = await scene();
  await applyBatch(pool, [delivery]);
  const fresh = deliver(workspace, [point('ann')], 1);
  expect(await applyBatch(pool, [delivery, fresh])).toMatchObject({ kind: 'applied', objects: 1 });
  expect(await readSums(pool, workspace)).toEqual({ ...once, points: 4, usage: 7 });
});

test('G2: a job that was added by hand with an arbitrary id has one effect', async () => {
  const { workspace, delivery } = await scene();
  const keys = ['17', 'by hand', '17'].map(ledgerKey);
  expect(keys[0]).toBe(keys[2]);
  expect(keys[0]).not.toBe(keys[1]);
  await applyBatch(pool, [{ ...delivery, id: keys[0]! }]);
  expect(await applyBatch(pool, [{ ...delivery, id: keys[2]! }])).toEqual({ kind: 'skipped' });
  expect(await readSums(pool, workspace)).toEqual(once);
});

test('G2: an event that is already stored becomes a dead letter, and the other objects apply', async () => {
  const { workspace, delivery } = await scene();
  await applyBatch(pool, [delivery]);
  const stored = delivery.envelope.objects.find(({ kind }) => kind === 'events')!;
  const again = deliver(workspace, [point('ann'), stored, point('ann')], 1);
  expect(await applyBatch(pool, [again])).toMatchObject({ objects: 2, deadLetters: [stored.id] });
  expect(await readSums(pool, workspace)).toMatchObject({ points: 5, events: 3, counted: 3 });
});

describe('the connection is cut around COMMIT', () => {
  /** See test/faults/cut-commits.test.ts for more rounds, with batches of several envelopes. */
  const ROUNDS = lengthOf({ short: 10, long: 50 });

  test.each([
    ['before Postgres has received it', 'before', 'applied'],
    ['after it has taken effect, with the reply lost', 'after', 'skipped'],
  ] as const)('G2: %s: after a retry, the envelope has one effect', async (_, when: Cut, second) => {
    const cutter = await startCommitCutter(url);
    const throughProxy = openPool(cutter.url);
    for (let round = 0; round < ROUNDS; round++) {
      const { workspace, delivery } = await scene();
      await comeBefore(throughProxy, workspace);
      cutter.arm(when);
      const error = await applyBatch(throughProxy, [delivery]).catch((failure: unknown) => failure);
      expect(error).toBeInstanceOf(Error);
      expect(causeOf(error)).not.toBe('object');
      expect(await applyBatch(throughProxy, [delivery])).toMatchObject({ kind: second });
      expect(await readSums(pool, workspace)).toEqual(once);
    }
    expect(cutter.cuts()).toBe(ROUNDS);
    await throughProxy.end();
  });
});
