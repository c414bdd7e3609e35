import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Pool } from '../../src/store/database.ts';
import { isPassed, readHorizon } from '../../src/store/horizon.ts';
import { createDatabase, waitUntil } from '../setup/fixtures.ts';
import { openPool } from '../workers/batch.ts';

let pool: Pool;
beforeAll(async () => {
  pool = openPool((await createDatabase()).url);
});
afterAll(() => pool.end());

/** Starts a transaction that has an id. */
async function begin() {
  const tx = await pool.connect();
  await tx.query('begin');
  await tx.query('select pg_current_xact_id()');
  return {
    async commit() {
      await tx.query('commit');
      tx.release();
    },
  };
}

test('G2: the horizon waits for every transaction that had an id when it was read', async () => {
  const removing = await begin();
  const finding = await begin();
  // The newest ended transaction has an older id than the transaction still open.
  await removing.commit();
  const horizon = await readHorizon(pool);
  expect(await isPassed(pool, horizon)).toBe(false);
  await finding.commit();
  // Other databases of the cluster may have older transactions.
  await waitUntil(() => isPassed(pool, horizon), { what: 'the horizon to be passed' });
});
