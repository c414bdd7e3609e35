import type pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Identifier } from '../../src/profile/identifier.ts';
import { identifierKey, laneOf } from '../../src/queue/lanes.ts';
import { readTotals } from '../../src/store/counters.ts';
import type { TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes, createStore, deliver, event, silent } from './batch.ts';

let pool: pg.Pool;
let workspace: TestWorkspace;
beforeAll(async () => {
  ({ pool, workspace } = await createStore());
});
afterAll(() => pool.end());

const LANES = 8;
const laneOfName = (name: Identifier) => laneOf(workspace.id, identifierKey(name), LANES);

/** A user whose external id and email address are in the same lane, or in two. */
function userIn(lanes: 'one' | 'two'): { external_id: string; email: string } {
  for (let number = 0; ; number++) {
    const external_id = `user ${number}`;
    const email = `user-${number}@example.com`;
    if ((laneOfName({ external_id }) === laneOfName({ email })) === (lanes === 'one'))
      return { external_id, email };
  }
}

/** How many objects have been counted, after an event by email of a user who has an external id too. */
async function countAfterEvent(lanes: 'one' | 'two', number: number): Promise<number> {
  const { external_id, email } = userIn(lanes);
  const run = (object: ReturnType<typeof event>) =>
    applyBatch(pool, [{ ...deliver(workspace, [object]), lanes: number }], silent);
  await applyBatch(
    pool,
    [deliver(workspace, [attributes({ external_id }, { standard: { email } })])],
    silent,
  );
  await run(event({ external_id }));
  await run(event({ email }));
  return (await readTotals(pool)).namedElsewhere;
}

it('who names a user in two ways that have two lanes is counted, and nobody else', async () => {
  expect(await countAfterEvent('one', LANES)).toBe(0);
  expect(await countAfterEvent('two', 1)).toBe(0);
  expect(await countAfterEvent('two', LANES)).toBe(1);
});
