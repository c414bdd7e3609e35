import { Command } from 'commander';
import { NIL_UUID } from '../../src/platform/ids.ts';
import { toServiceId } from '../../src/profile/identifier.ts';
import { indexUsers } from '../../src/store/user-search.ts';
import { createVisitor } from '../../test/board/browser-session.ts';
import { runCommand } from '../../test/setup/run-command.ts';
import { type Installation, startInstallation } from '../screenshots/installation.ts';

/**
 * `npm run pages` measures how long each page of the console takes with many users, from the request to the
 * last byte, on a separate `npm start` with everything embedded. Example: `-- --users 100000 --events
 * 100000 --rounds 100`. The pages take turns, one request at a time. The first user has all the events. Prints a
 * Markdown table, and fails if the p99 of a page is above MAX_MS.
 */

/** Maximum milliseconds of a page. */
const MAX_MS = 300;

interface Options {
  users: number;
  events: number;
  rounds: number;
}

/**
 * Inserts users with a profile, an address with a state and an event summary, and a dead letter for every
 * tenth user.
 */
const fill = [
  `insert into profiles (workspace_id, id, external_id, email, phone, phone_valid, first_name, country, custom_attributes,
     created_at, updated_at)
   select $1, user_id(n), 'user-' || n, 'user' || n || '@example.com', '+4420' || 10000000 + n, true, 'Name' || n % 1000,
     (array['DE', 'FR', 'GB'])[n % 3 + 1], jsonb_build_object('plan', n % 7, 'points', n), now() - n * interval '1 second', now()
   from generate_series(1, $2::integer) as n`,
  `insert into email_addresses (workspace_id, email, state, changed_at)
   select $1, 'user' || n || '@example.com', 'subscribed', now() from generate_series(1, $2::integer) as n`,
  `insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
   select $1, user_id(n), 'event ' || n % 100, now() - interval '9 days', now(), 3, now()
   from generate_series(1, $2::integer) as n`,
  `insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason, state, failed_at, identifiers)
   select gen_random_uuid(), $1, uuid_v7_of(n), 'events', 'track', '{"name": "read"}', 'reason ' || n % 20, 'waiting', now(),
     array['x:user-' || n]
   from generate_series(1, $2::integer / 10) as n`,
];

const fillEvents = `
  insert into events (workspace_id, id, profile_id, name, "time", properties)
  select $1, uuid_v7_of(n), user_id(1), 'event ' || n % 100, now() - n * interval '2 seconds', '{"screen": "home"}'
  from generate_series(1, $2::integer) as n`;

const functions = [
  `create function pg_temp.user_id(n integer) returns uuid language sql immutable as $$
     select (lpad(to_hex(1700000000000 + n), 12, '0') || '7abc8def' || lpad(to_hex(n), 6, '0') || '000000')::uuid $$`,
  `create function pg_temp.uuid_v7_of(n integer) returns uuid language sql as $$
     select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint - n), 12, '0') || '7def8000' || lpad(to_hex(n), 12, '0'))::uuid $$`,
];

async function main(): Promise<void> {
  const { users, events, rounds } = new Command('npm run pages --')
    .description("Measure the console's pages with many users.")
    .option('--users <number>', 'users of the workspace', Number, 1_000_000)
    .option('--events <number>', 'events of one of them', Number, 1_000_000)
    .option('--rounds <number>', 'requests for each page', Number, 40)
    .parse(process.argv)
    .opts<Options>();
  if (!(users >= 10 && events >= 0 && rounds >= 1)) throw new Error('these are numbers above 0');
  const installation = await startInstallation();
  try {
    await fillTables(installation, { users, events });
    await measure(installation, { users, rounds });
  } finally {
    await installation.stop();
  }
}

async function fillTables({ pool }: Installation, { users, events }: Pick<Options, 'users' | 'events'>) {
  const client = await pool.connect();
  try {
    const { rows } = await client.query("select id from workspaces where name = 'default'");
    const workspace = rows[0].id;
    for (const text of functions) await client.query(text);
    const named = (text: string) => text.replace(/\b(user_id|uuid_v7_of)\(/g, 'pg_temp.$1(');
    for (const text of fill) await client.query(named(text), [workspace, users]);
    if (events > 0) await client.query(named(fillEvents), [workspace, events]);
    await client.query('vacuum (analyze)');
  } finally {
    client.release();
  }
  await fillSearch(pool, users);
}

/** Fills the index of the search without the pauses of upkeep, and prints the time. */
async function fillSearch(pool: Installation['pool'], users: number) {
  const free = "update user_search_pass set leased_until = '-infinity', workspace_id = $1, profile_id = $1";
  for (const name of ['filled', 'compared again']) {
    const from = performance.now();
    await pool.query(free, [NIL_UUID]);
    // A worker of the installation may have taken the turn.
    for (let ended = false; !ended; ) {
      ended = (await indexUsers(pool, { turn: Number.POSITIVE_INFINITY }))?.ended ?? false;
      if (!ended) await pool.query(free, [NIL_UUID]);
    }
    const seconds = (performance.now() - from) / 1000;
    process.stdout.write(`search index of ${users} users ${name} in ${seconds.toFixed(1)} s\n`);
  }
}

async function measure(
  { console: board, pool }: Installation,
  { users, rounds }: Pick<Options, 'users' | 'rounds'>,
) {
  const visitor = createVisitor({ url: board.url });
  await visitor.signIn(board.user, board.password);
  const one = async (text: string) => Object.values((await pool.query(text)).rows[0])[0] as string;
  const userOf = async (n: number) =>
    toServiceId(await one(`select id from profiles where external_id = 'user-${n}'`));
  const [deadLetter, request] = [
    await one('select id from dead_letters limit 1'),
    await one('select request_id from dead_letters limit 1'),
  ];
  const groups = await (await visitor.get('/dead-letters', { accept: 'text/html' })).text();
  const group = /href="(\/dead-letters\?[^"]*group=[^"]+)"/.exec(groups)![1]!.replaceAll('&amp;', '&');
  /** Names of the pages in the report. */
  const pagesByName: Record<string, string> = {
    '/users/<who has the events>': `/users/${await userOf(1)}`,
    '/users/<another>': `/users/${await userOf(users)}`,
    '/dead-letters?group=<one of 5,000>': group,
    '/dead-letters/<id>': `/dead-letters/${deadLetter}`,
    '/requests/<id>': `/requests/${request}`,
    '/workspaces/<id>': `/workspaces/${await one("select id from workspaces where name = 'default'")}`,
    '/keys/<id>': `/keys/${await one('select id from api_keys limit 1')}`,
  };
  const pages = [
    ...['/', '/?range=day', '/?range=week', '/history', `/users?q=user-${users}`, '/users?q=user-99'],
    ...menuPaths(await (await visitor.get('/', { accept: 'text/html' })).text()),
    ...[
      '/users?q=user5@example.com',
      '/users?q=ser77',
      '/users?q=ame777',
      '/users?q=example.com&has_phone=yes',
      '/users?email_state=unsubscribed',
    ],
    ...['/refused-objects?range=month', '/requests?state=failed', '/search?q=user-1', '/sessions'],
    ...['/permission-sets', '/teams', '/scim-tokens'],
    ...Object.values(pagesByName),
  ];
  const namesByPage = new Map(Object.entries(pagesByName).map(([name, page]) => [page, name]));
  const times = new Map<string, number[]>(pages.map((page) => [page, []]));
  const sizes = new Map<string, number>();
  for (let round = -2; round < rounds; round++) {
    for (const page of pages) {
      const begun = performance.now();
      const answer = await visitor.get(page, { accept: 'text/html' });
      const text = await answer.text();
      const taken = performance.now() - begun;
      if (answer.status !== 200) throw new Error(`${page}: ${answer.status}`);
      sizes.set(page, text.length);
      // The first two rounds warm up.
      if (round >= 0) times.get(page)!.push(taken);
    }
  }
  process.stdout.write('| Page | p50 ms | p99 ms | KB |\n| --- | ---: | ---: | ---: |\n');
  const slow: string[] = [];
  for (const [page, taken] of times) {
    const sorted = taken.toSorted((one, other) => one - other);
    const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
    const name = namesByPage.get(page) ?? page;
    if (at(0.99) > MAX_MS) slow.push(name);
    const kilobytes = (sizes.get(page)! / 1024).toFixed(0);
    process.stdout.write(`| \`${name}\` | ${at(0.5).toFixed(0)} | ${at(0.99).toFixed(0)} | ${kilobytes} |\n`);
  }
  if (slow.length > 0) throw new Error(`the p99 is above ${MAX_MS} ms: ${slow.join(', ')}`);
  process.stdout.write(`every page has a p99 of ${MAX_MS} ms at most\n`);
}

/** Returns the pages of the menu. */
const menuPaths = (text: string): string[] =>
  [...text.matchAll(/<li><a href="(\/[\w-]*)"/g)]
    .map(([, path]) => path!)
    .filter((path) => path !== '/queues');

await runCommand(main);
