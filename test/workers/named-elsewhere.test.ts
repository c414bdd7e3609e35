import type pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Identifier } from '../../src/profile/identifier.ts';
import { identifierKey, laneOf } from '../../src/queue/lanes.ts';
import { readTotals } from '../../src/store/counters.ts';
import type { TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes, createStore, deliver, event } from './batch.ts';

let pool: pg.Pool;
let workspace: TestWorkspace;
beforeAll(async () => {
  ({ pool, workspace } = await createStore());
});
afterAll(() => pool.end());

const LANES = 8;
const laneOfName = (name: Identifier) => laneOf(workspace.id, identifierKey(name), LANES);

/** Returns a user whose external id and email address belong to the same lane or to two lanes. */
function userIn(lanes: 'one' | 'two'): { external_id: string; email: string } {
  for (let number = 0; ; number++) {
    const external_id = `user ${number}`;
    const email = `user-${number}@example.com`;
    if ((laneOfName({ external_id }) === laneOfName({ email })) === (lanes === 'one'))
      return { external_id, email };
  }
}

/** Returns the counter after an event by email address for a user that also has an external id. */
async function countAfterEvent(lanes: 'one' | 'two', number: number): Promise<number> {
  const { external_id, email } = userIn(lanes);
  const run = (object: ReturnType<typeof event>) =>
    applyBatch(pool, [{ ...deliver(workspace, [object]), lanes: number }]);
  await applyBatch(pool, [deliver(workspace, [attributes({ external_id }, { standard: { email } })])]);
  await run(event({ external_id }));
  await run(event({ email }));
  return (await readTotals(pool)).namedElsewhere;
}

it('an event counts as named elsewhere only if the user has identifiers in two lanes', async () => {
  expect(await countAfterEvent('one', LANES)).toBe(0);
  expect(await countAfterEvent('two', 1)).toBe(0);
  expect(await countAfterEvent('two', LANES)).toBe(1);
});
