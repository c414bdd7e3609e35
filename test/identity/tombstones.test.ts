import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Connection, Pool } from '../../src/store/database.ts';
import { isDistributed, noteDistributed, readSequenceValues } from '../../src/store/distributed.ts';
import { selectTombstones } from '../../src/store/tombstones.ts';
import { noIdentityChanges } from '../../workers/batch/changes.ts';
import { writeIdentity } from '../../workers/batch/write.ts';
import { cleanUpTombstones, startTombstoneCleanup } from '../../workers/upkeep/tombstones.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { applyObjects } from '../workers/apply-batch.ts';
import { openPool, silent } from '../workers/batch.ts';
import { merge, remove } from './objects.ts';
import { createScene, does, has, type Scene } from './scene.ts';

let scene: Scene;
let pool: Pool;
beforeAll(async () => {
  scene = await createScene();
  pool = openPool(scene.url);
});
afterAll(async () => {
  await pool.end();
  await scene.stop();
});

/** Maximum number of rows that one step erases. */
const SLICE = 5000;

/** Starts a transaction of another lane that has applied an event and is not committed yet. */
async function unfinished(objects: AcceptedObject[]) {
  const tx = await pool.connect();
  await tx.query('begin');
  // Every batch writes to the ledger before it looks up a user, which gives it a transaction id.
  await tx.query('insert into ledger (envelope_id) values ($1)', [uuidv7()]);
  const items = objects.map((object, ordinal) => ({
    ...{ workspaceId: scene.workspaceId, requestId: 'request', lane: 1 },
    ...{ ordinal, object },
  }));
  await applyObjects(tx, items, new Date().toISOString());
  return {
    async commit() {
      await tx.query('commit');
      tx.release();
    },
  };
}

/** Wraps the transaction so that another one commits immediately before the statement of this name. */
function committingBefore(name: string, tx: Connection, other: { commit(): Promise<void> }): Connection {
  const answers: unknown[] = [];
  const query = async (given: { name?: string }) => {
    if (given.name === name) {
      await Promise.all(answers);
      await other.commit();
    }
    const answer = tx.query(given as never);
    answers.push(answer);
    return answer;
  };
  return new Proxy(tx, {
    get: (target, key) => (key === 'query' ? query : Reflect.get(target, key)),
  });
}

/** Recognizes the statement that reads the horizon, of one Postgres or of nodes. */
function asksForHorizon(statement: unknown): boolean {
  const { name } = (statement ?? {}) as { name?: string };
  return name === 'is-horizon-passed' || String(statement).includes('run_command_on_all_nodes');
}

/** Settles with as many workers as requested, until all tombstones are settled. */
async function cleanUp(workers = 1): Promise<void> {
  const running = Array.from({ length: workers }, () => startTombstoneCleanup(pool, silent));
  try {
    await waitUntil(async () => (await left()) === 0, { what: 'removed profiles to be settled' });
  } finally {
    await Promise.all(running.map((one) => one.stop()));
  }
}

async function left(): Promise<number> {
  return (await scene.rows('select from removed_profiles')).length;
}

/** Counts the rows of these profiles in each table. */
async function rowsOf(ids: string[]): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const table of ['events', 'purchases', 'event_summaries', 'purchase_summaries', 'merged_profiles']) {
    const [row] = await scene.rows(
      `select count(*)::integer as rows from ${table} where profile_id = any($1::uuid[])`,
      [ids],
    );
    if (row.rows > 0) counts[table] = row.rows;
  }
  return counts;
}

/** Inserts events directly into the table. */
async function makeEvents(profileId: string, count: number): Promise<void> {
  await scene.rows(
    `insert into events (workspace_id, id, profile_id, name, "time")
     select $1, gen_random_uuid(), $2, 'many', now() from generate_series(1, $3)`,
    [scene.workspaceId, profileId, count],
  );
}

describe('an event of a transaction that found the user before', () => {
  it('a merge and commits after it is counted for the kept user', async () => {
    await scene.apply([has('late a', {}), has('late b', {}), does('late b', 'late')]);
    const late = await unfinished([does('late a', 'late')]);
    await scene.apply([merge('late a', 'late b')]);
    await late.commit();
    expect((await scene.user('late b')).custom_events).toMatchObject([{ name: 'late', count: 1 }]);
    await cleanUp();
    expect((await scene.user('late b')).custom_events).toMatchObject([{ name: 'late', count: 2 }]);
  });

  it('a merge and commits during it is counted for the kept user', async () => {
    await scene.apply([has('amid a', {}), has('amid b', {}), does('amid b', 'late')]);
    const late = await unfinished([does('amid a', 'late')]);
    const tx = await pool.connect();
    await tx.query('begin');
    await readSequenceValues(tx);
    await writeIdentity(
      committingBefore('remove-profiles', tx, late),
      {
        ...noIdentityChanges(),
        merges: [
          {
            workspaceId: scene.workspaceId,
            mergedId: await scene.profileId('amid a'),
            keptId: await scene.profileId('amid b'),
            requestId: 'request',
          },
        ],
      },
      new Date().toISOString(),
    );
    await tx.query('commit');
    tx.release();
    await cleanUp();
    expect((await scene.user('amid b')).custom_events).toMatchObject([{ name: 'late', count: 2 }]);
  });

  it('two consecutive merges and commits after them is counted for the last keeper', async () => {
    await scene.apply([has('row a', {}), has('row b', {}), has('row c', {})]);
    const late = await unfinished([does('row a', 'late'), does('row b', 'late')]);
    await scene.apply([merge('row a', 'row b'), merge('row b', 'row c')]);
    await late.commit();
    await cleanUp();
    expect((await scene.user('row c')).custom_events).toMatchObject([{ name: 'late', count: 2 }]);
  });

  it('a delete and commits after it is erased with the user', async () => {
    await scene.apply([has('erased', {}), does('erased')]);
    const id = await scene.profileId('erased');
    const late = await unfinished([does('erased', 'late')]);
    await scene.apply([remove('erased')]);
    await late.commit();
    await cleanUp();
    expect(await rowsOf([id])).toEqual({});
  });

  it("a merge and the keeper's deletion is erased with both", async () => {
    await scene.apply([has('both a', {}), has('both b', {}), does('both a'), does('both b')]);
    const ids = [await scene.profileId('both a'), await scene.profileId('both b')];
    const late = await unfinished([does('both a', 'late')]);
    await scene.apply([merge('both a', 'both b')]);
    await scene.apply([remove('both b')]);
    await late.commit();
    await cleanUp();
    expect(await rowsOf(ids)).toEqual({});
  });

  it('blocks the settling until it has committed', async () => {
    await scene.apply([has('waits', {})]);
    const id = await scene.profileId('waits');
    const late = await unfinished([does('waits', 'late')]);
    await scene.apply([remove('waits')]);
    let polls = 0;
    const counting = new Proxy(pool, {
      get(target, name) {
        const member = Reflect.get(target, name);
        if (typeof member !== 'function') return member;
        return (...given: unknown[]) => {
          if (asksForHorizon(given[0])) polls++;
          return member.apply(target, given);
        };
      },
    });
    noteDistributed(counting, await isDistributed(pool));
    const settling = startTombstoneCleanup(counting, silent);
    await waitUntil(() => polls >= 3, { what: 'looks whether the transaction has ended' });
    expect(await left()).toBe(1);
    await late.commit();
    await waitUntil(async () => (await left()) === 0, { what: 'the profile to be settled' });
    await settling.stop();
    expect(await rowsOf([id])).toEqual({});
  });
});

describe('a deleted user', () => {
  it('is erased in slices, with all users that were merged into it', async () => {
    await scene.track({
      attributes: [{ external_id: 'slices a' }, { external_id: 'slices b' }],
      purchases: ['slices a', 'slices b'].map((external_id) => ({
        ...{ external_id, product_id: 'book', currency: 'EUR', price: 1, time: '2026-01-01T00:00:00Z' },
      })),
    });
    const ids = [await scene.profileId('slices a'), await scene.profileId('slices b')];
    await makeEvents(ids[0]!, 12_000);
    await makeEvents(ids[1]!, 8000);
    await scene.apply([merge('slices a', 'slices b')]);
    await cleanUp();
    expect(await rowsOf(ids)).toMatchObject({ events: 20_000, purchases: 2 });
    await scene.apply([remove('slices b')]);
    const erased: number[] = [];
    for (let before = 20_000; (await left()) > 0; ) {
      await cleanUpTombstones(pool, await selectTombstones(pool, 100));
      const { events = 0 } = await rowsOf(ids);
      erased.push(before - events);
      before = events;
    }
    expect(erased.reduce((sum, rows) => sum + rows)).toBe(20_000);
    expect(Math.max(...erased)).toBe(SLICE);
    expect(await rowsOf(ids)).toEqual({});
  });

  it('is erased without effect on other users', async () => {
    await scene.apply([does('stranger'), does('leaves'), remove('leaves')]);
    const stranger = await scene.profileId('stranger');
    await cleanUp();
    expect(await rowsOf([stranger])).toEqual({ events: 1, event_summaries: 1 });
  });
});

it('several workers that settle at the same time count each row once and erase all', async () => {
  const names = Array.from({ length: 40 }, (_, position) => `crowd ${position}`);
  await scene.apply([has('crowd', {}), ...names.map((name) => has(name, {}))]);
  const ids = await Promise.all(names.map((name) => scene.profileId(name)));
  const late = await unfinished(names.map((name) => does(name, 'late')));
  const [merged, deleted] = [names.slice(0, 30), names.slice(30)];
  await scene.apply([...merged.map((name) => merge(name, 'crowd')), ...deleted.map(remove)]);
  await makeEvents(ids.at(-1)!, 2 * SLICE);
  await late.commit();
  await cleanUp(3);
  expect((await scene.user('crowd')).custom_events).toMatchObject([{ name: 'late', count: 30 }]);
  expect(await rowsOf(ids)).toEqual({ events: 30, merged_profiles: 30 });
});

it('a worker skips tombstones that another worker is settling', async () => {
  await scene.apply([does('in hand'), remove('in hand')]);
  const keys = await selectTombstones(pool, 100);
  const tx = await pool.connect();
  await tx.query('begin');
  await tx.query('select from removed_profiles where workspace_id = $1 for update', [scene.workspaceId]);
  expect(await cleanUpTombstones(pool, keys)).toBe(false);
  await tx.query('rollback');
  tx.release();
  expect(await cleanUpTombstones(pool, keys)).toBe(true);
  await cleanUp();
});

it('a merge of a user with many events reads and writes only summaries', async () => {
  await scene.apply([has('busy a', {}), has('busy b', {})]);
  const id = await scene.profileId('busy a');
  await makeEvents(id, 20_000);
  const tx = await pool.connect();
  // The counters of a session may include its earlier statements.
  const touched = async () => {
    const { rows } = await tx.query(
      `select sum(seq_scan + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd + n_tup_del)::integer as touched
       from pg_stat_xact_user_tables where relname like 'events%' or relname like 'purchases%'`,
    );
    return rows[0].touched;
  };
  await tx.query('begin');
  const before = await touched();
  const object = merge('busy a', 'busy b');
  await applyObjects(
    tx,
    [{ workspaceId: scene.workspaceId, requestId: 'request', lane: 0, ordinal: 0, object }],
    new Date().toISOString(),
  );
  const after = await touched();
  await tx.query('commit');
  tx.release();
  expect(after).toBe(before);
  expect(await rowsOf([id])).toMatchObject({ events: 20_000, merged_profiles: 1 });
  await cleanUp();
});
