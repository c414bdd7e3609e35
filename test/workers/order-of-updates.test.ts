import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { MAX_SHARING } from '../../src/store/identifiers.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { isAboutOnePostgres } from '../setup/nodes.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes, deliver, event, openPool } from './batch.ts';

let pool: pg.Pool;
let url: string;
beforeAll(async () => {
  ({ url } = await createDatabase());
  pool = openPool(url);
});
afterAll(() => pool.end());

/** Opens connections whose clock advances by `step` microseconds per call. */
async function slowClock(step: number): Promise<pg.Pool> {
  const schema = `clock_${newId().replaceAll('-', '')}`;
  await pool.query(`
    create schema ${schema};
    create sequence ${schema}.looks;
    create function ${schema}.clock_timestamp() returns timestamptz language sql as $$
      select timestamptz '2026-05-01T00:00:00.123400Z' + nextval('${schema}.looks') * ${step} * interval '1 microsecond'
    $$`);
  return new pg.Pool({
    connectionString: url,
    max: 2,
    options: `-c search_path=${schema},public,pg_catalog`,
    pipeline: true,
  } as pg.PoolConfig);
}

it.skipIf(isAboutOnePostgres("its clock is the coordinator's, and no node has it"))(
  'an address means the user updated last, even if two batches fall into one millisecond',
  async () => {
    const workspace = await createWorkspace(pool);
    const clock = await slowClock(100);
    const holds = (who: string) => attributes(who, { standard: { email: 'shared@example.com' } });
    const others = Array.from({ length: 50 }, (_, index) => event(`other ${index}`));
    await applyBatch(clock, [deliver(workspace, [...others, holds('earlier')])]);
    await applyBatch(clock, [deliver(workspace, [holds('later')])]);
    await applyBatch(clock, [
      deliver(workspace, [attributes({ email: 'shared@example.com' }, { set: { named: true } })]),
    ]);
    await clock.end();
    const { rows } = await pool.query(
      `select external_id from profiles where workspace_id = $1 and custom_attributes ? 'named'`,
      [workspace.id],
    );
    expect(rows).toEqual([{ external_id: 'later' }]);
  },
);

it('a crowded address means the holder that only an event of the same batch has touched', async () => {
  const workspace = await createWorkspace(pool, 'crowd');
  const email = 'crowd@example.com';
  const oldest = 'oldest';
  const crowd = Array.from({ length: MAX_SHARING + 5 }, (_, index) =>
    attributes(index === 0 ? oldest : `holder ${index}`, { standard: { email } }),
  );
  await applyBatch(pool, [deliver(workspace, crowd)]);
  await applyBatch(pool, [deliver(workspace, [event(oldest, 'by name'), event({ email }, 'by address')])]);
  const { rows } = await pool.query(
    `select profiles.external_id from profiles
     join events on events.workspace_id = profiles.workspace_id and events.profile_id = profiles.id
     where profiles.workspace_id = $1 and events.name = 'by address'`,
    [workspace.id],
  );
  expect(rows).toEqual([{ external_id: oldest }]);
});
