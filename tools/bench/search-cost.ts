import { parseArgs } from 'node:util';
import { indexUsers } from '../../src/store/user-search.ts';
import { HttpConnection } from '../load/http-connection.ts';
import type { Contender } from './contender.ts';
import { readCpu } from './cpu.ts';
import { type Environment, startEnvironment } from './environment.ts';
import { median } from './figure.ts';
import { startOurs } from './ours.ts';
import { post } from './post.ts';

/**
 * `npm run build:tools && node dist/tools/bench/search-cost.js` measures the cost of the index of the search of users: the
 * processor time of a pass for each user, and the processor time of web, worker, Redis and Postgres for each applied object
 * that changes a name and an email, with the passes that maintain the index and without them, in turns. It starts servers
 * of its own. The defaults take about ten minutes.
 */

/** Objects of one request, and requests at a time. */
const OBJECTS = 75;
const CONNECTIONS = 16;

const givenNames = ['Ada', 'Grace', 'Edsger', 'Barbara', 'Donald', 'Frances', 'Alan', 'Radia'];
const familyNames = ['Lovelace', 'Hopper', 'Dijkstra', 'Liskov', 'Knuth', 'Allen', 'Turing', 'Perlman'];

const { values } = parseArgs({
  options: {
    users: { type: 'string', default: '100000' },
    pairs: { type: 'string', default: '8' },
    seconds: { type: 'string', default: '30' },
  },
});
const [users, pairs, seconds] = [values.users, values.pairs, values.seconds].map(Number) as [
  number,
  number,
  number,
];

/** Without passes: the turn is taken until the end of the measurement. */
const stopPasses = `update user_search_pass set leased_until = now() + interval '1 day'`;
const startPasses = 'update user_search_pass set leased_until = now()';

const countIndexed = `
  select coalesce(sum(pg_stat_user_tables.n_tup_ins + pg_stat_user_tables.n_tup_upd), 0)::float8 as indexed
  from pg_stat_user_tables where pg_stat_user_tables.relname = 'user_search'`;

const countApplied = 'select coalesce(sum(usage.attributes), 0)::float8 as applied from usage';

const environment = await startEnvironment();
try {
  const ours = await startOurs(environment, { QUEUE_TIMEOUT_MS: '10000' }, { name: 'search', redis: 0 });
  try {
    await fill(ours);
    await change(ours, 5);
    const ratios: number[] = [];
    for (let pair = 0; pair < pairs; pair++) {
      // The order within a pair alternates, so that growth of the tables affects both alike.
      const first = pair % 2 === 0;
      const one = await measure(ours, environment, first);
      const other = await measure(ours, environment, !first);
      const [maintained, bare] = first ? [one, other] : [other, one];
      ratios.push(maintained.microseconds / bare.microseconds);
      process.stdout.write(
        `µs/object with the passes ${maintained.microseconds.toFixed(1)} (${Math.round(maintained.rate)}/s, ${maintained.indexed} users indexed), without ${bare.microseconds.toFixed(1)} (${Math.round(bare.rate)}/s), ratio ${ratios.at(-1)!.toFixed(3)}\n`,
      );
    }
    process.stdout.write(`median ratio ${median(ratios).toFixed(3)}\n`);
  } finally {
    await ours.stop();
  }
} finally {
  await environment.stop();
}

/** Creates the users, and fills the index. */
async function fill(ours: Contender): Promise<void> {
  const connection = new HttpConnection(ours.target);
  for (let user = 0; user < users; user += OBJECTS)
    await post(connection, ours, '/users/track', {
      attributes: Array.from({ length: Math.min(OBJECTS, users - user) }, (_, index) => person(user + index)),
    });
  connection.close();
  await applied(ours, users);
  process.stdout.write(`processor time of a changed user in a pass: ${(await pass(ours)).toFixed(1)} µs\n`);
  process.stdout.write(`of a user who has not changed: ${(await pass(ours)).toFixed(1)} µs\n`);
}

/** Runs a whole pass in this process. @returns its processor time and the time of Postgres, in microseconds per user */
async function pass(ours: Contender): Promise<number> {
  const { rows } = await ours.pool.query<{ pid: number }>('select pg_backend_pid() as pid');
  const postgres = rows[0]!.pid;
  await ours.pool.query(startPasses);
  const [before, own] = [readCpu({ postgres }), process.cpuUsage()];
  for (let ended = false; !ended; )
    ended = (await indexUsers(ours.pool, { turn: Number.POSITIVE_INFINITY }))?.ended ?? false;
  const { user, system } = process.cpuUsage(own);
  const used = (readCpu({ postgres }).postgres! - before.postgres!) * 1e6 + user + system;
  await ours.pool.query(stopPasses);
  return used / users;
}

/** Changes users for some seconds. @returns processor time of an object, and objects per second */
async function measure(ours: Contender, { postgresPid, redisPid }: Environment, hasPasses: boolean) {
  await ours.pool.query(hasPasses ? startPasses : stopPasses);
  await ours.pool.query('checkpoint');
  const pids = { ...ours.pids, postgres: postgresPid, redis: redisPid };
  const indexedBefore = await indexed(ours);
  const before = readCpu(pids);
  const begun = performance.now();
  const objects = await change(ours, seconds);
  const elapsed = (performance.now() - begun) / 1000;
  const after = readCpu(pids);
  await ours.pool.query(stopPasses);
  const used = Object.keys(pids).reduce((sum, name) => sum + after[name]! - before[name]!, 0);
  return {
    microseconds: (used * 1e6) / objects,
    rate: objects / elapsed,
    indexed: (await indexed(ours)) - indexedBefore,
  };
}

/** Sends changes of names and emails, and waits until they are applied. @returns the number of objects */
async function change(ours: Contender, duration: number): Promise<number> {
  const before = await appliedSoFar(ours);
  const end = performance.now() + duration * 1000;
  let sent = 0;
  await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      const connection = new HttpConnection(ours.target);
      while (performance.now() < end) {
        const attributes = Array.from({ length: OBJECTS }, () => person(Math.floor(Math.random() * users)));
        await post(connection, ours, '/users/track', { attributes });
        sent += OBJECTS;
      }
      connection.close();
    }),
  );
  await applied(ours, before + sent);
  return sent;
}

function person(user: number) {
  const version = Math.floor(Math.random() * 1e6);
  return {
    external_id: `user-${user}`,
    first_name: givenNames[version % givenNames.length]!,
    last_name: `${familyNames[Math.floor(version / 8) % familyNames.length]} ${version}`,
    email: `user${user}.${version}@example.com`,
  };
}

async function appliedSoFar({ pool }: Contender): Promise<number> {
  const { rows } = await pool.query<{ applied: number }>(countApplied);
  return rows[0]!.applied;
}

async function applied(ours: Contender, wanted: number): Promise<void> {
  while ((await appliedSoFar(ours)) < wanted) await new Promise((resolve) => setTimeout(resolve, 100));
}

async function indexed({ pool }: Contender): Promise<number> {
  const { rows } = await pool.query<{ indexed: number }>(countIndexed);
  return rows[0]!.indexed;
}
