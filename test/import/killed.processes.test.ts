import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { spawnPenstock } from '../admin/spawn-penstock.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { startProcess } from '../setup/processes.ts';
import { fileOf } from './scene.ts';

const ROWS = 12_000;

let fleet: Fleet;
beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 1 });
  await liftLimits(fleet.pool, fleet.workspace.id);
});
afterAll(() => fleet?.stop());

const run = (...args: string[]) =>
  spawnPenstock(['import', ...args, '--workspace', 'shop', '--json'], fleet.env);
const track = (json: Json) =>
  send(fleet.edges[0]!.port, { path: '/users/track', key: fleet.workspace.key, json });

/**
 * Milliseconds between two live requests: heartbeats report them, and the import still gets processor time.
 */
const PAUSE = 15;

/**
 * Sends an event every few milliseconds. @returns a function that stops it and returns the number of events
 */
function sendLive() {
  const leaving = new AbortController();
  let sent = 0;
  const sending = (async () => {
    while (!leaving.signal.aborted) {
      const events = [{ external_id: `user-${sent % 50}`, name: 'live', time: '2026-01-31T12:00:00Z' }];
      expect((await track({ events })).status).toBe(201);
      sent += 1;
      await sleep(PAUSE);
    }
  })();
  return async () => {
    leaving.abort();
    await sending;
    return sent;
  };
}

/**
 * Waits until heartbeats report live requests. From then on an import yields, and lasts long enough to be
 * killed.
 */
const liveIsTold = () =>
  waitUntil(
    async () =>
      (await fleet.pool.query("select from processes where name = 'web' and objects_per_second > 0"))
        .rowCount,
    { what: 'a heartbeat of live requests' },
  );

async function countEvents(like: string) {
  const { rows } = await fleet.pool.query(
    `select count(*)::integer as rows, count(distinct name)::integer as names from events where name like $1`,
    [like],
  );
  return rows[0] as { rows: number; names: number };
}

test('an import that is killed repeatedly during live requests applies each row once', async () => {
  const header = 'external_id,name,time\n';
  const rows = Array.from({ length: ROWS }, (_, n) => `user-${n % 50},row-${n},2026-01-31T12:00:00Z\n`);
  const file = fileOf('events.csv', header + rows.join(''));
  const stopLive = sendLive();
  await liveIsTold();
  const doneRows = async () => {
    const { rows: records } = await fleet.pool.query(
      'select rows_done::integer as done, finished_at from imports',
    );
    return records[0] as { done: number; finished_at: Date | null } | undefined;
  };
  const importing = ['import', file, '--workspace', 'shop', '--type', 'events'];
  for (const goal of [500, 3000]) {
    const killed = startProcess('dist/src/cli.js', fleet.env, importing);
    await waitUntil(async () => ((await doneRows())?.done ?? 0) >= goal, {
      what: `${goal} rows`,
      fleeting: true,
    });
    killed.kill('SIGKILL');
    await killed.exit;
    expect((await doneRows())!.finished_at).toBeNull();
  }
  const stopped = startProcess('dist/src/cli.js', fleet.env, importing);
  await waitUntil(async () => ((await doneRows())?.done ?? 0) >= 8000, { what: '8000 rows', fleeting: true });
  stopped.kill('SIGTERM');
  expect((await stopped.exit).code).toBe(1);
  const { text } = stopped.log.at(-1)!;
  expect(text).toMatch(/^error: .*events\.csv: stopped after row \d+; run the same command again to resume$/);
  const last = await run(file, '--type', 'events');
  expect([last.code, last.stderr]).toEqual([0, '']);
  expect(JSON.parse(last.stdout).imports).toMatchObject([
    { state: 'imported', rows: ROWS, accepted: ROWS, refused: 0 },
  ]);
  const live = await stopLive();
  await waitUntil(async () => (await countEvents('row-%')).rows >= ROWS, { what: 'all rows' });
  await waitUntil(async () => (await countEvents('live')).rows >= live, { what: 'all live events' });
  expect(await countEvents('row-%')).toEqual({ rows: ROWS, names: ROWS });
  expect((await countEvents('live')).rows).toBe(live);
  const { rows: summed } = await fleet.pool.query(
    "select sum(count)::integer as count from event_summaries where name like 'row-%'",
  );
  expect(summed).toEqual([{ count: ROWS }]);
  expect(JSON.parse((await run(file, '--type', 'events')).stdout).imports).toMatchObject([
    { state: 'imported before' },
  ]);
});

test('a folder whose import is killed within its second file is resumed there', async () => {
  const rowsOf = (name: string, rows: number) =>
    `external_id,name,time\n${Array.from({ length: rows }, (_, n) => `user-1,${name}-${n},2026-01-31T12:00:00Z\n`).join('')}`;
  const first = fileOf('1.csv', rowsOf('folder-a', 300));
  const folder = path.dirname(first);
  writeFileSync(path.join(folder, '2.csv'), rowsOf('folder-b', 4000));
  const stopLive = sendLive();
  await liveIsTold();
  const killed = startProcess('dist/src/cli.js', fleet.env, [
    ...['import', folder, '--workspace', 'shop', '--type', 'events'],
  ]);
  const doneOfSecond = async () => {
    const { rows } = await fleet.pool.query(
      "select rows_done::integer as done from imports where file like '%/2.csv'",
    );
    return rows[0]?.done ?? 0;
  };
  await waitUntil(async () => (await doneOfSecond()) >= 250, { what: 'rows of the second', fleeting: true });
  killed.kill('SIGKILL');
  await killed.exit;
  await stopLive();
  expect(await doneOfSecond()).toBeLessThan(4000);
  expect(JSON.parse((await run(folder, '--type', 'events')).stdout).imports).toMatchObject([
    { file: first, state: 'imported before' },
    { state: 'imported', rows: 4000, accepted: 4000 },
  ]);
  await waitUntil(async () => (await countEvents('folder-%')).rows >= 4300, { what: 'all rows' });
  expect(await countEvents('folder-%')).toEqual({ rows: 4300, names: 4300 });
});

test('rows take effect in order, between earlier and later requests', async () => {
  const users = Array.from({ length: 20 }, (_, n) => `ordered-${n}`);
  const adding = (value: string) => users.map((external_id) => ({ external_id, log: { add: [value] } }));
  await track({ attributes: adding('before') });
  const lines = ['row 1', 'row 2', 'row 3'].flatMap(adding);
  const file = fileOf('ordered.ndjson', `${lines.map((line) => JSON.stringify(line)).join('\n')}\n`);
  expect((await run(file, '--type', 'users')).code).toBe(0);
  await track({ attributes: adding('after') });
  const logs = () =>
    fleet.pool.query(
      "select custom_attributes -> 'log' as log from profiles where external_id like 'ordered-%'",
    );
  await waitUntil(async () => (await logs()).rows.every(({ log }) => log?.includes('after')), {
    what: 'the last value',
  });
  const expected = ['before', 'row 1', 'row 2', 'row 3', 'after'];
  expect((await logs()).rows).toEqual(users.map(() => ({ log: expected })));
});
