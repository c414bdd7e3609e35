import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { everyStatementByIndex } from '../../src/store/database.ts';
import { selectByRequest, selectDeadLetters, selectLatestWaiting } from '../../src/store/dead-letters.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { selectTombstones } from '../../src/store/tombstones.ts';
import { formOf } from '../../tools/generate/citus-forms.ts';
import { cleanUpTombstones } from '../../workers/upkeep/tombstones.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { lengthOf } from '../setup/length.ts';
import { makeGate, passGate } from '../setup/nodes.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { deliver, event, makeTriggers, point } from '../workers/batch.ts';
import {
  cleanUp,
  DEADLINE,
  FILLING,
  grow,
  growingScene,
  idOf,
  left,
  neighbourWaits,
  pool,
  store,
  url,
  workspace,
} from './grown-scene.ts';
import { merge, remove } from './objects.ts';

growingScene();

const LETTERS = lengthOf({ short: 8000, long: 100_000 });
const FAILED_ROWS = lengthOf({ short: 4000, long: 50_000 });

/**
 * Inserts dead letters and failed rows of a user directly into the tables. Half of the dead letters are older
 * than the
 * user and contain only the external id. @returns the ids of a few of each kind
 */
async function growLetters(
  externalId: string,
  { deadLetters = 0, failedRows = 0 },
): Promise<{ id: string; some: string[] }> {
  const id = await grow(externalId, {});
  await pool.query(
    `insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason, identifiers)
     select overlay(gen_random_uuid()::text placing '019aaaaa-0000-7' from 1 for 15)::uuid, $1, $2, 'events', 'envelope',
       '{}', 'reason', case when number % 2 = 0 then array['x:' || $2] else array['x:' || $2, 'u:' || $3] end
     from generate_series(1, $4::integer) as number`,
    [workspace.id, externalId, id, deadLetters],
  );
  const integration = uuidv7();
  await pool.query(
    `insert into integrations (id, workspace_id, name, kind, warehouse_type, status, source, schedule)
     values ($1::uuid, $2, $1::uuid, 'attributes', 'postgres', 'active', '{}', '0 * * * *')`,
    [integration, workspace.id],
  );
  await pool.query(
    `insert into sync_jobs (id, integration_id, asked_by, status, finished_at) values ($1::uuid, $1, 'schedule', 'error', now())`,
    [integration],
  );
  await pool.query(
    `insert into sync_row_errors (job_id, number, reason, identifiers, workspace_id)
     select $1, number, 'reason', array['x:' || $2], $4 from generate_series(1, $3::integer) as number`,
    [integration, externalId, failedRows, workspace.id],
  );
  const { rows } = await pool.query<{ id: string }>(
    `(select id from dead_letters where workspace_id = $2 and request_id = $1 order by place limit 2)
     union all (
       select id from dead_letters where workspace_id = $2 and request_id = $1 order by place desc limit 2)`,
    [externalId, workspace.id],
  );
  return { id, some: rows.map((row) => row.id) };
}

/** Counts the stored rows of the names, readable or not. */
async function stored(...externalIds: string[]) {
  const { rows } = await pool.query(
    `select
       (select count(*)::integer from dead_letters where workspace_id = $2 and request_id = any($1)) as "deadLetters",
       (select count(*)::integer from sync_row_errors
         where workspace_id = $2
           and identifiers && array(select 'x:' || name from unnest($1::text[]) as name)) as "failedRows",
       (select count(*)::integer from left_names where workspace_id = $2) as names`,
    [externalIds, workspace.id],
  );
  return rows[0];
}

/** Restricted to one workspace, so that a distributed Postgres accepts it too. */
const keptRows = formOf(`
  select count(*)::integer as "failedRows"
  from kept_row_errors as kept
  where kept.identifiers @> array['x:' || $1::text] and kept.workspace_id = $2::uuid`).text;

/** Counts the readable rows by each way of reading. */
async function readable(externalId: string, some: string[]) {
  const { rows } = await pool.query(keptRows, [externalId, workspace.id]);
  const latest = await selectLatestWaiting(pool, 1000);
  return {
    deadLetters: (await selectByRequest(pool, workspace.id, externalId)).length,
    some: (await selectDeadLetters(pool, some)).length,
    shown: latest.filter(({ id }) => some.includes(id)).length,
    failedRows: rows[0].failedRows,
  };
}

const nothing = { deadLetters: 0, some: 0, shown: 0, failedRows: 0 };

const replayOf = (object: AcceptedObject) => {
  const delivery = deliver(workspace, [object]);
  return { ...delivery, envelope: { ...delivery.envelope, replay: true as const } };
};

const usersNamed = async (externalId: string): Promise<number> =>
  (
    await pool.query('select from profiles where workspace_id = $1 and external_id = $2', [
      workspace.id,
      externalId,
    ])
  ).rowCount!;

test(
  'G8: merging and deleting a user with many dead letters delays no lane and hides them all',
  async () => {
    const merged = await growLetters('lettered', { deadLetters: LETTERS, failedRows: FAILED_ROWS });
    await store(event('reader', 'first'));
    expect(await neighbourWaits(merge('lettered', 'reader'))).toBeLessThan(DEADLINE);
    // Some dead letters are transferred, most are not.
    for (let step = 0; step < 3; step++) await cleanUpTombstones(pool, await selectTombstones(pool, 100));
    expect(await readable('lettered', merged.some)).toMatchObject({ deadLetters: LETTERS, some: 4 });
    // A later user with the same name has dead letters of its own.
    const late = await growLetters('lettered', { deadLetters: 2, failedRows: 1 });
    expect(await neighbourWaits(remove('reader'))).toBeLessThan(DEADLINE);
    expect(await stored('lettered')).toMatchObject({ deadLetters: LETTERS + 2, failedRows: FAILED_ROWS + 1 });
    expect(await readable('lettered', merged.some)).toEqual({
      deadLetters: 2,
      some: 0,
      shown: 0,
      failedRows: 1,
    });
    expect(await readable('lettered', late.some)).toMatchObject({ some: 4 - 2 });

    // A replay that was in progress.
    for (const id of merged.some)
      expect(await applyBatch(pool, [replayOf({ ...point('returned'), id })])).toMatchObject({
        objects: 0,
      });
    expect(await usersNamed('returned')).toBe(0);
    await cleanUp(2);
    expect(await stored('lettered')).toEqual({ deadLetters: 2, failedRows: 1, names: 0 });
    await store(remove('lettered'));
    expect(await readable('lettered', late.some)).toEqual(nothing);
    await cleanUp();
    expect(await stored('lettered')).toEqual({ deadLetters: 0, failedRows: 0, names: 0 });
  },
  FILLING,
);

describe('G1: dead letters after a merge or delete', () => {
  /** Settles with connections that are cut at some point of a step, as when the worker is killed. */
  async function settleCutOff(times: number): Promise<void> {
    for (let kills = 0; kills < times; kills++) {
      const victims = openDatabase(url, 2, { session: { ...everyStatementByIndex } });
      const keys = await selectTombstones(pool, 100);
      let over = false;
      const steps = Promise.allSettled([0, 1].map(() => cleanUpTombstones(victims.pool, keys))).finally(
        () => {
          over = true;
        },
      );
      await waitUntil(
        async () => {
          const { rowCount } = await pool.query(
            `select pg_terminate_backend(pid) from pg_stat_activity
             where pid <> pg_backend_pid() and datname = current_database()
               and state = 'active' and query like '%named_failures%'`,
          );
          return rowCount! > 0 || over;
        },
        { what: 'a step to be cut off, or over before that', fleeting: true },
      );
      await steps;
      await victims.stop();
    }
  }

  test(
    'are transferred and erased completely, however often settling is interrupted',
    async () => {
      const size = { deadLetters: 9000, failedRows: 3000 };
      const merged = await growLetters('torn', size);
      await store(event('mender', 'first'), merge('torn', 'mender'));
      await settleCutOff(8);
      await cleanUp(2);
      const { rows } = await pool.query(
        `select count(*)::integer as handed from named_failures
         where workspace_id = $1 and name = 'u:' || $2::uuid`,
        [workspace.id, await idOf('mender')],
      );
      expect(rows[0].handed).toBe(size.deadLetters + size.failedRows);
      expect(await stored('torn')).toEqual({ ...size, names: 0 });
      await store(remove('mender'));
      expect(await readable('torn', merged.some)).toEqual(nothing);
      await settleCutOff(8);
      expect(await readable('torn', merged.some)).toEqual(nothing);
      await cleanUp(2);
      expect(await stored('torn')).toEqual({ deadLetters: 0, failedRows: 0, names: 0 });
    },
    FILLING,
  );

  test.each([0, 1, 3])(
    'are erased when the last keeper of a chain is deleted, after %i steps of settling',
    async (steps) => {
      const names = [0, 1, 2].map((position) => `deadLetters ${steps} ${position}`);
      const grown = [];
      for (const name of names) grown.push(await growLetters(name, { deadLetters: 2500, failedRows: 500 }));
      await store(merge(names[0]!, names[1]!), merge(names[1]!, names[2]!));
      for (let step = 0; step < steps; step++)
        await cleanUpTombstones(pool, await selectTombstones(pool, 100));
      for (const [index, { some }] of grown.entries())
        expect(await readable(names[index]!, some)).toMatchObject({ deadLetters: 2500, some: 4 });
      await store(remove(names[2]!));
      for (const [at, { some }] of grown.entries()) expect(await readable(names[at]!, some)).toEqual(nothing);
      await cleanUpTombstones(pool, await selectTombstones(pool, 100));
      for (const [offset, { some }] of grown.entries())
        expect(await readable(names[offset]!, some)).toEqual(nothing);
      await cleanUp(2);
      expect(await left()).toBe(0);
      expect(await stored(...names)).toEqual({ deadLetters: 0, failedRows: 0, names: 0 });
    },
    FILLING,
  );
});

test('G3: a replay has no effect if the user is deleted while it is being applied', async () => {
  const { some } = await growLetters('overtaken', { deadLetters: 1 });
  await makeTriggers(pool, [
    `create function wait_at_gate() returns trigger language plpgsql as $$
    begin
      ${passGate(7)}
      return new;
    end $$`,
    `create trigger wait_at_gate before insert on events
      for each row when (new.name = 'held up') execute function wait_at_gate()`,
  ]);
  const gate = await makeGate(url, 7);
  await gate.shut();
  const replay = applyBatch(pool, [replayOf({ ...event('overtaken', 'held up'), id: some[0]! })]);
  // Handle the rejection from here on, because the replay ends while the gate is being removed.
  const refused = expect(replay).rejects.toThrow('deleted with its user while it was being replayed');
  await waitUntil(gate.isWaitedFor, { what: 'the replay to be under way' });
  await store(remove('overtaken'));
  await gate.open();
  await gate.stop();
  await refused;
  expect(await usersNamed('overtaken')).toBe(0);
  await cleanUp();
});
