import { describe, expect, test } from 'vitest';
import { everyStatementByIndex } from '../../src/store/database.ts';
import { MAX_ALIASES } from '../../src/store/merges.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { selectTombstones } from '../../src/store/tombstones.ts';
import { cleanUpTombstones } from '../../workers/upkeep/tombstones.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { lengthOf } from '../setup/length.ts';
import { event, readDeadLetters } from '../workers/batch.ts';
import {
  belongingsOf,
  CHANGES,
  cleanUp,
  DEADLINE,
  FILLING,
  grow,
  growingScene,
  idOf,
  left,
  MAX_TOUCHED,
  neighbourWaits,
  nothing,
  pool,
  rowsOf,
  SUMS,
  store,
  TOKENS,
  url,
  workspace,
} from './grown-scene.ts';
import { alias, merge, remove } from './objects.ts';

growingScene();

test(
  'G8: merging and deleting a user with many rows delays no lane and keeps sums exact',
  async () => {
    const size = { sums: SUMS, tokens: TOKENS, changes: CHANGES };
    const [from, into] = [await grow('grown', size), await grow('keeper', { sums: 10_000 })];
    const doomed = await grow('doomed', size);
    const before = [await rowsOf(from), await rowsOf(doomed)] as const;
    expect(await neighbourWaits(merge('grown', 'keeper'))).toBeLessThan(DEADLINE);
    expect(before[0] - (await rowsOf(from))).toBeLessThan(MAX_TOUCHED);
    expect(await neighbourWaits(remove('doomed'))).toBeLessThan(DEADLINE);
    expect(before[1] - (await rowsOf(doomed))).toBeLessThan(MAX_TOUCHED);
    expect(await readDeadLetters(pool)).toEqual([]);
    await cleanUp(2);
    const events = 2 * (SUMS + 10_000) + 2;
    expect(await belongingsOf(into)).toMatchObject({ events, revenue: (SUMS + 10_000) / 20, tokens: TOKENS });
    expect(await belongingsOf(from)).toEqual(nothing);
    expect(await belongingsOf(doomed)).toEqual(nothing);
  },
  FILLING,
);

describe('G1: rows of a merged user', () => {
  test(
    'are moved exactly once, also with interruptions and two settling workers',
    async () => {
      const [from, into] = [
        await grow('cut', { sums: 12_000, tokens: 9000 }),
        await grow('whole', { sums: 100 }),
      ];
      await store(merge('cut', 'whole'));
      for (let kills = 0; kills < 15; kills++) {
        // The settling connections are cut at some point of a step, as when their worker is killed.
        const victims = openDatabase(url, 2, { session: { ...everyStatementByIndex } });
        const steps = Promise.allSettled(
          [0, 1].map(() => cleanUpTombstones(victims.pool, [{ workspaceId: workspace.id, id: from }])),
        );
        let isOver = false;
        void steps.then(() => {
          isOver = true;
        });
        await waitUntil(
          async () => {
            const { rowCount } = await pool.query(
              `select pg_terminate_backend(pid) from pg_stat_activity
               where pid <> pg_backend_pid() and datname = current_database()
                 and state = 'active' and query like '%summaries%'`,
            );
            return rowCount! > 0 || isOver;
          },
          { what: 'a step to be cut off', fleeting: true },
        );
        await steps;
        await victims.stop();
      }
      await cleanUp(2);
      expect(await belongingsOf(from)).toEqual(nothing);
      expect(await belongingsOf(into)).toMatchObject({ events: 24_202, revenue: 605, tokens: 9000 });
    },
    FILLING,
  );

  test(
    'follow merges of merges, and events sent meanwhile are added',
    async () => {
      const ids = [];
      for (const name of ['first', 'second', 'third'])
        ids.push(await grow(name, { sums: 5000, tokens: 1500 }));
      await store(merge('first', 'second'), event('second', 'kind1'), merge('second', 'third'));
      await store(event('third', 'kind5000'));
      await cleanUp();
      expect(await belongingsOf(ids[0]!)).toEqual(nothing);
      expect(await belongingsOf(ids[1]!)).toEqual(nothing);
      expect(await belongingsOf(ids[2]!)).toMatchObject({ events: 30_005, revenue: 750, tokens: 4500 });
    },
    FILLING,
  );

  test.each([0, 1, 3])(
    'are erased when the last keeper of a chain is deleted, after %i steps of settling',
    async (steps) => {
      const ids: string[] = [];
      for (const position of [0, 1, 2]) {
        ids.push(await grow(`chain ${steps} ${position}`, { sums: 5000, tokens: 500, changes: 500 }));
      }
      await store(...[0, 1].map((index) => merge(`chain ${steps} ${index}`, `chain ${steps} ${index + 1}`)));
      for (let step = 0; step < steps; step++)
        await cleanUpTombstones(pool, await selectTombstones(pool, 100));
      await store(remove(`chain ${steps} 2`));
      await cleanUp();
      for (const id of ids) expect(await belongingsOf(id)).toEqual(nothing);
      const { rows } = await pool.query(
        `select (select count(*)::integer from merged_profiles where profile_id = any($1)) as merges,
           (select count(*)::integer from events where profile_id = any($1)) as events`,
        [ids],
      );
      expect(rows).toEqual([{ merges: 0, events: 0 }]);
    },
    FILLING,
  );
});

test(
  'G8: deleting a user with very many merged users requests their erasure outside the lanes',
  async () => {
    const id = await grow('gatherer', {});
    const others = lengthOf({ short: 5000, long: 20_000 });
    await pool.query(
      `insert into merged_profiles (workspace_id, profile_id, kept_id, merged_at)
     select $1, gen_random_uuid(), $2, now() from generate_series(1, $3::integer)`,
      [workspace.id, id, others],
    );
    await store(remove('gatherer'));
    expect(await left()).toBe(1);
    await cleanUp();
    const { rows } = await pool.query('select from merged_profiles where kept_id = $1', [id]);
    expect(rows).toEqual([]);
  },
  FILLING,
);

test(
  'G8: a request of fifty chained merges of users with many rows delays no lane',
  async () => {
    const names = Array.from({ length: 51 }, (_, at) => `link ${at}`);
    await store(...names.map((name) => event(name, 'first')));
    await pool.query(
      `insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
     select $1, profiles.id, 'kind' || number, now(), now(), 1, now()
     from profiles, generate_series(1, 2000) as number
     where workspace_id = $1 and external_id like 'link %'`,
      [workspace.id],
    );
    await pool.query(
      `insert into user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at)
     select $1, 'label' || number, 'link 0', $2, now() from generate_series(1, $3::integer) as number`,
      [workspace.id, await idOf('link 0'), MAX_ALIASES],
    );
    const chain = names.slice(1).map((name, offset) => merge(names[offset]!, name));
    expect(await neighbourWaits(...chain)).toBeLessThan(2 * DEADLINE);
    await store(event(alias('label500:link 0'), 'first'));
    await cleanUp();
    expect(await belongingsOf(await idOf('link 50'))).toMatchObject({ events: 51 * 2001 + 1 });
  },
  FILLING,
);
