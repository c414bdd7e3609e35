import { parseArgs } from 'node:util';
import { newId } from '../../src/platform/ids.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import { countStates, type GroupState, setSubscriptionStates } from '../../src/store/subscription-states.ts';
import { median } from './figure.ts';
import { openStore } from './postgres-servers.ts';

/**
 * `npm run build:tools && node dist/tools/bench/group-counts.js` measures what the counts of subscription groups cost:
 * the time of the counts of one page, and the rows per second that are stored with the index
 * subscription_states_of_group and without it, in turns. It starts a Postgres of its own. The defaults take about two
 * minutes.
 */

/** Groups of one page. */
const GROUPS = 50;

/** States that one transaction changes. */
const STATES = 500;

const createIndex =
  'create index if not exists subscription_states_of_group on subscription_states (workspace_id, subscription_group_id, state)';

const fillStatement = `
  insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
  select $1, 'email', 'user' || user_number || '@example.com', given.id,
    case when (user_number + given.number) % 2 = 0 then 'subscribed' else 'unsubscribed' end, now()
  from generate_series(0, $3::integer - 1) as user_number
  cross join unnest($2::uuid[]) with ordinality as given (id, number)`;

const { values } = parseArgs({
  options: {
    users: { type: 'string', default: '25000' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '5' },
  },
});
const [users, rounds, seconds] = [values.users, values.rounds, values.seconds].map(Number) as [
  number,
  number,
  number,
];
const workspaceId = newId();
const groups = Array.from({ length: GROUPS }, () => newId());

const store = await openStore({ citus: false });
const pool = openPool(store.url, 2);
try {
  await pool.query(fillStatement, [workspaceId, groups, users]);
  await pool.query('vacuum analyze subscription_states');
  const counts: number[] = [];
  for (let round = 0; round < 20; round++) {
    const begun = performance.now();
    await countStates(pool, workspaceId, groups);
    counts.push(performance.now() - begun);
  }
  process.stdout.write(
    `counts of ${GROUPS} groups with ${users} states each: p50 ${Math.round(median(counts))} ms, longest ${Math.round(Math.max(...counts))} ms\n`,
  );
  await change(pool, seconds);
  const ratios: number[] = [];
  for (let round = 0; round < rounds; round++) {
    await pool.query(createIndex);
    const indexed = await measure(pool);
    await pool.query('drop index subscription_states_of_group');
    const bare = await measure(pool);
    ratios.push(indexed / bare);
    process.stdout.write(
      `states/s with the index ${Math.round(indexed)}, without ${Math.round(bare)}, ratio ${(indexed / bare).toFixed(2)}\n`,
    );
  }
  process.stdout.write(`median ratio ${median(ratios).toFixed(2)}\n`);
} finally {
  await pool.end();
  await store.stop();
}

async function measure(of: Pool): Promise<number> {
  await of.query('vacuum subscription_states');
  return change(of, seconds);
}

/** Changes random states in transactions of 500, and returns the states per second. */
async function change(of: Pool, duration: number): Promise<number> {
  const tx = await of.connect();
  const [begun, end] = [performance.now(), performance.now() + duration * 1000];
  let changed = 0;
  try {
    while (performance.now() < end) {
      const states = new Map(Array.from({ length: STATES }, randomState).map((one) => [keyOf(one), one]));
      await tx.query('begin');
      await setSubscriptionStates(tx, [...states.values()], new Date().toISOString());
      await tx.query('commit');
      changed += states.size;
    }
  } finally {
    tx.release();
  }
  return (changed * 1000) / (performance.now() - begun);
}

function randomState(): GroupState {
  return {
    ...{ workspaceId, subjectKind: 'email' },
    subject: `user${Math.floor(Math.random() * users)}@example.com`,
    subscriptionGroupId: groups[Math.floor(Math.random() * GROUPS)]!,
    state: Math.random() < 0.5 ? 'subscribed' : 'unsubscribed',
  };
}

function keyOf({ subject, subscriptionGroupId }: GroupState): string {
  return `${subject} ${subscriptionGroupId}`;
}
