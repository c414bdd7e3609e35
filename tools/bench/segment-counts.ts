import { parseArgs } from 'node:util';
import { countUsers } from '../../src/board/pages/segment-count.ts';
import { NIL_UUID, newId } from '../../src/platform/ids.ts';
import type { Definition } from '../../src/profile/segment.ts';
import { openPool } from '../../src/store/database.ts';
import { median } from './figure.ts';
import { openStore } from './postgres-servers.ts';

/**
 * `npm run build:tools && node dist/tools/bench/segment-counts.js` measures the count of a segment and of its rows in the
 * console, for workspaces of several sizes: the time of one count, the users that it evaluates, and the number of counts
 * until all users are counted. It starts a Postgres of its own. The defaults take about five minutes.
 */

/** Filters of the segment builder: one row, three rows, and three rows with one on another table. */
const filters: Record<string, Definition> = {
  '1 row': { attribute: 'country', equals: 'DE' },
  '3 rows': {
    all: [
      { attribute: 'country', equals: 'DE' },
      { custom_attribute: 'plan', equals: 'pro' },
      { custom_attribute: 'visits', more_than: 50 },
    ],
  },
  '3 rows, 1 of events': {
    all: [
      { attribute: 'country', equals: 'DE' },
      { custom_attribute: 'plan', equals: 'pro' },
      { event: 'visited', count_at_least: 2 },
    ],
  },
};

const fillUsers = `
  insert into profiles (workspace_id, id, external_id, country, custom_attributes, created_at, updated_at)
  select $1, uuid_v7_floor(now() - number * interval '1 ms'), 'user-' || number,
    (array['DE', 'FR', 'US'])[1 + number % 3],
    jsonb_build_object('plan', (array['free', 'pro'])[1 + number % 2], 'visits', number % 100, 'city', 'city ' || number % 500,
      'score', number, 'joined', now()),
    now(), now()
  from generate_series(1, $2::integer) as number`;

/** Two of three users have the event. */
const fillEvents = `
  insert into event_summaries (workspace_id, profile_id, name, count, first, last, updated_at)
  select profiles.workspace_id, profiles.id, 'visited', 1 + abs(hashtext(profiles.external_id)) % 4, now(), now(), now()
  from profiles
  where profiles.workspace_id = $1 and profiles.country <> 'US'`;

const { values } = parseArgs({
  options: {
    users: { type: 'string', multiple: true, default: ['100000', '1000000'] },
    rounds: { type: 'string', default: '5' },
  },
});

const store = await openStore({ citus: false });
const pool = openPool(store.url, 2);
try {
  for (const users of values.users.map(Number)) {
    const workspaceId = newId();
    await pool.query(fillUsers, [workspaceId, users]);
    await pool.query(fillEvents, [workspaceId]);
    await pool.query('vacuum analyze profiles');
    await pool.query('vacuum analyze event_summaries');
    for (const [name, definition] of Object.entries(filters)) await measure(workspaceId, name, definition);
  }
} finally {
  await pool.end();
  await store.stop();
}

/** Counts all users of the workspace in several rounds, as the button “Continue counting” does. */
async function measure(workspaceId: string, name: string, definition: Definition): Promise<void> {
  const times: number[] = [];
  const read: number[] = [];
  const counts: number[] = [];
  for (let round = 0; round < Number(values.rounds); round++) {
    let after: string | undefined = NIL_UUID;
    let number = 0;
    for (; after !== undefined; number++) {
      const begun = performance.now();
      const counted = await countUsers(pool, {
        ...{ workspaceId, definition, bySubfilter: true, after, sample: 10 },
        milliseconds: number === 0 ? 250 : 1000,
      });
      times.push(performance.now() - begun);
      read.push(counted.read);
      after = counted.after;
    }
    counts.push(number);
  }
  const longest = Math.round(Math.max(...times));
  process.stdout.write(
    `${name}: one count evaluates ${Math.max(...read)} users at most, in ${Math.round(median(times))} ms (p50) and ${longest} ms at most; all users take ${median(counts)} counts\n`,
  );
}
