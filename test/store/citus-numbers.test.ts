import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import { merge } from '../identity/objects.ts';
import { unknownGroup } from '../identity/scene.ts';
import { citusUrl } from '../setup/citus.ts';
import { createGroup, createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { email, says } from '../subscription/scene.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { attributes, deliver, point } from '../workers/batch.ts';
import { createDistributedDatabase } from './distributed-database.ts';

const HISTORY = {
  rows: 'select id as number from subscription_history',
  sequence: 'subscription_history_id_seq',
};
const LETTERS = { rows: 'select place as number from dead_letters', sequence: 'failure_places' };

/**
 * Some tables are read in the order of numbers from a sequence. A node that assigned the numbers itself would
 * start far
 * above the coordinator, and all its rows would sort after the rows that wait for their turn.
 */
describe.skipIf(!citusUrl)('on the Citus of CITUS_URL', () => {
  let pool: Pool;
  let workspace: TestWorkspace;
  let group: string;

  beforeAll(async () => {
    const url = await createDistributedDatabase();
    pool = openPool(url, 2);
    workspace = await createWorkspace(pool);
    group = await createGroup(pool, workspace.id, 'email', { name: 'news' });
    const email = 'bob@x.com';
    await apply(...['ann', 'bob', 'eve'].map((user) => point(user)));
    await apply(attributes('bob', { standard: { email } }), attributes('ann', { standard: { email } }));
  });
  afterAll(() => pool.end());

  async function apply(...objects: AcceptedObject[]): Promise<void> {
    expect(await applyBatch(pool, [deliver(workspace, objects)])).toMatchObject({ kind: 'applied' });
  }

  /** Expects that the rows which `work` adds have numbers from the coordinator's sequence. */
  async function expectOfCoordinator({ rows, sequence }: typeof HISTORY, work: () => Promise<void>) {
    const numbers = async () => (await pool.query(rows)).rows.map((row) => Number(row.number));
    const last = async () =>
      Number((await pool.query(`select last_value from ${sequence}`)).rows[0].last_value);
    const [numbered, before] = [await numbers(), await last()];
    await work();
    const [added, after] = [(await numbers()).filter((number) => !numbered.includes(number)), await last()];
    expect(added.length).toBeGreaterThan(0);
    for (const number of added) {
      expect(number).toBeGreaterThanOrEqual(before);
      expect(number).toBeLessThanOrEqual(after);
    }
  }

  const marked = (user: string) =>
    attributes(user, { standard: { marked_email_as_spam_at: '2026-01-01T00:00:00Z' } });
  const unknown = () => ({ ...point('ann'), kind: 'unheard of' }) as never;

  test.each<[string, AcceptedObject[], () => AcceptedObject[]]>([
    ['a state of an address', [], () => [email('bob@x.com', { state: 'unsubscribed' })]],
    ['a state of a group', [], () => [says({ email: 'bob@x.com' }, group, 'subscribed')]],
    ['a mark that goes', [marked('bob')], () => [email('bob@x.com', { marked_as_spam: false })]],
    ['a mark that a merge brings', [marked('eve')], () => [merge('eve', 'ann')]],
  ])('%s has a number that the coordinator assigned', async (_, before, objects) => {
    if (before.length > 0) await apply(...before);
    await expectOfCoordinator(HISTORY, () => apply(...objects()));
  });

  test('a dead letter has a number that the coordinator assigned', async () => {
    await expectOfCoordinator(LETTERS, () => apply(unknown(), unknown()));
  });

  test('a rejected object has a number that the coordinator assigned', async () => {
    await expectOfCoordinator(LETTERS, () => apply(unknownGroup({ external_id: 'ann' })));
  });
});

test.skipIf(citusUrl)('LEFT OUT: no Citus is tested, because CITUS_URL is not set', () => {});
