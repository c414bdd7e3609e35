import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { newId } from '../../src/platform/ids.ts';
import { createDestination } from '../../src/store/stream-destinations.ts';
import { spawnPenstock } from '../admin/spawn-penstock.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createIntegration } from '../setup/integrations.ts';
import { startProcess } from '../setup/processes.ts';
import { CONSOLE, surfacesOf } from './surfaces.ts';

/** Makes a process end with an uncaught error when it receives SIGUSR2. */
const THROWS_ON_SIGNAL = path.join(packageRoot, 'test/setup/throw-on-signal.cjs');

let fleet: Fleet;
let surfaces: ReturnType<typeof surfacesOf>;
beforeAll(async () => {
  fleet = await startFleet('redis', {
    edges: 1,
    workers: 1,
    env: { ...CONSOLE, LANES: '1', LOG_LEVEL: 'info' },
  });
  surfaces = surfacesOf(fleet, await fleet.startBoard());
  await surfaces.signIn();
  return fleet.stop;
});

const countRows = async (pid: number) =>
  (await fleet.pool.query('select from processes where pid = $1', [pid])).rowCount;

test('failed dead letters, streams, syncs, exports and imports are listed with their links', async () => {
  const { pool, workspace } = fleet;
  await pool.query(
    `insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason, failed_at)
     select gen_random_uuid(), $1, gen_random_uuid()::text, 'event', 'objects', '{}', 'too large', now() - interval '1 hour'
     from generate_series(1, 3)`,
    [workspace.id],
  );
  const stream = { workspaceId: workspace.id, id: newId() };
  await createDestination(pool as never, {
    ...{ ...stream, name: 'crm', kind: 'webhook', settings: { url: 'https://x.example' }, secret: null },
  });
  await pool.query(
    `update stream_destinations set failures = 18, last_error = 'HTTP 500', failed_at = now(), next_try_at = now() + interval '1 hour'
     where id = $1`,
    [stream.id],
  );
  const integration = await createIntegration(pool, workspace.id, { name: 'warehouse' });
  await pool.query(
    `insert into sync_jobs (id, integration_id, status, asked_by, finished_at, rows_failed)
     values (gen_random_uuid(), $1, 'partial', 'api', now(), 7)`,
    [integration],
  );
  await pool.query(
    `insert into segment_exports (workspace_id, id, segment_id, object_prefix, fields, output_format, state, last_error, ended_at)
     values ($1, gen_random_uuid(), gen_random_uuid(), 'p', '{}', 'zip', 'failed', 'no such bucket', now())`,
    [workspace.id],
  );
  await pool.query(
    `insert into imports (workspace_id, key, id, file, digest, reading, rows_done, started_at, staged_at)
     values ($1, '\\x01', gen_random_uuid(), 'people.csv', '\\x02', '{}', 40, now() - interval '3 hours', now() - interval '2 hours')`,
    [workspace.id],
  );
  const wanted: [RegExp, RegExp][] = [
    [/^3 dead letters need attention/, /^\/dead-letters/],
    [/^The stream crm \(\S+\) has failed 18 times in a row and is [^:]+ behind: HTTP 500/, /^\/streams/],
    [/^The last run of warehouse \(\S+\) ended as partial: 7 rows failed/, /^\/syncs/],
    [/^A segment export of \S+ \(\S+\) failed: no such bucket/, /^\/exports/],
    [/^The import of people\.csv \(\S+\) has not continued for 2 h/, /^\//],
  ];
  const [letters, ...ofWorkspaces] = wanted.map(([pattern]) => pattern);
  await surfaces.everywhere(letters!);
  // /readyz needs no key, so it does not name workspaces.
  for (const pattern of ofWorkspaces) await surfaces.everywhere(pattern, ['readyz']);
  const readyz = await surfaces.readyz();
  expect(readyz.filter((one) => one.startsWith('A workspace has a problem.'))).toHaveLength(4);
  expect(readyz.join()).not.toMatch(/crm|warehouse|people/);
  const listed = await surfaces.problems();
  for (const [pattern, link] of wanted)
    expect(listed.find(({ sentence }) => pattern.test(sentence))!.link).toMatch(link);
}, 120_000);

test('a sync process that ends repeatedly is counted with its last error', async ({ annotate }) => {
  let from = 0;
  for (let life = 0; life < 3; life++) {
    const sync = await fleet.startSync({ NODE_OPTIONS: `--require ${THROWS_ON_SIGNAL}` });
    // The row of the process must exist before it ends.
    await waitUntil(async () => (await countRows(sync.pid)) === 1, { what: 'the first heartbeat' });
    const { code } = await fleet.end(sync, 'SIGUSR2');
    expect(code).not.toBe(0);
  }
  await fleet.startSync();
  from = Date.now();
  const counted = /^sync ended 3 times in 5 min; last error: the scratch disk is full\.$/;
  await surfaces.measure(counted, { from, within: 10, except: ['readyz'], annotate });
  // An error can have details that only an operator may see.
  await surfaces.until('readyz', /^sync ended 3 times in 5 min\.$/);
}, 400_000);

test('release forgets the processes of a restored backup', async () => {
  await fleet.pool.query(
    `insert into processes (id, name, host, pid, version, address, lanes, missing, objects, objects_per_second,
       resident_bytes, loop_busy, refused, refused_per_second, started_at, seen_at)
     select gen_random_uuid(), 'web', 'old-' || n, n, '1.0.0', null, '{}', '{}', 5, 0, 1, 0, 0, 0,
       now() - interval '1 hour', now() - interval '8 minutes'
     from generate_series(1, 4) as n`,
  );
  await surfaces.until('console', /^web old-1 .* has sent no heartbeat for 8 min/, 10_000);
  const { exit } = startProcess('dist/src/release.js', fleet.env);
  expect((await exit).code).toBe(0);
  await surfaces.nowhere(/old-/);
  // Running processes stay.
  const { stdout } = await spawnPenstock(['status', '--json'], fleet.env);
  expect(JSON.parse(stdout).processes.map(({ name }: { name: string }) => name)).toEqual(
    expect.arrayContaining(['board', 'web', 'worker']),
  );
}, 120_000);
