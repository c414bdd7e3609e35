import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Progress } from '../../src/export/progress.ts';
import { penstockOn } from '../admin/penstock.ts';
import { spawnPenstock } from '../admin/spawn-penstock.ts';
import { createDatabase, temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { startProcess } from '../setup/processes.ts';
import { createWorkspace } from '../setup/workspace.ts';

const USERS = 2000;
const EVENTS = 250_000;
const FIRST = 'events-000001.ndjson.gz';

let url: string;
let pool: pg.Pool;
beforeAll(async () => {
  ({ url } = await createDatabase());
  pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  afterAll(() => pool.end());
  const { id } = await createWorkspace(pool);
  await pool.query(
    `insert into profiles (workspace_id, id, external_id, created_at, updated_at)
     select $1, gen_random_uuid(), 'user' || n, now(), now() from generate_series(1, $2::integer) as n`,
    [id, USERS],
  );
  await pool.query(
    `insert into events (workspace_id, id, profile_id, name, "time")
     select $1, gen_random_uuid(), who.id, 'event ' || n, now()
     from (select id, row_number() over () - 1 as place from profiles) as who
     join generate_series(1, $2::integer) as n on n % $3::integer = who.place`,
    [id, EVENTS, USERS],
  );
  await pool.query('analyze');
});

test('a killed export continues after its last complete file, and has every row once', async () => {
  const folder = path.join(temporaryFolder(), 'events');
  const args = ['export', '--workspace', 'shop', '--what', 'events', '--to', folder];
  const killed = startProcess('dist/src/cli.js', { DATABASE_URL: url }, args);
  await waitUntil(async () => existsSync(path.join(folder, 'unfinished.json')), {
    what: 'the first file',
    fleeting: true,
  });
  killed.kill('SIGKILL');
  await killed.exit;
  expect(existsSync(path.join(folder, 'manifest.json'))).toBe(false);
  const first = readFileSync(path.join(folder, FIRST));
  const output = await penstockOn(url, {}, spawnPenstock).run([...args, '--json']);
  expect(output).toMatchObject({ code: 0, stderr: '' });
  expect(JSON.parse(output.stdout)).toMatchObject({ what: 'events', rows: EVENTS, moments: 2 });
  expect(readFileSync(path.join(folder, FIRST))).toEqual(first);
  const { files, moments }: Progress = JSON.parse(readFileSync(path.join(folder, 'manifest.json'), 'utf8'));
  expect(moments.map(({ first_file }) => first_file)).toEqual([FIRST, expect.not.stringMatching(FIRST)]);
  const names = new Set<string>();
  let rows = 0;
  for (const { key } of files) {
    const lines = gunzipSync(readFileSync(path.join(folder, key)))
      .toString()
      .trimEnd()
      .split('\n');
    rows += lines.length;
    for (const line of lines) names.add(JSON.parse(line).name);
  }
  expect([rows, names.size]).toEqual([EVENTS, EVENTS]);
  const visible = readdirSync(folder).filter((name) => !name.startsWith('.'));
  expect(visible.sort()).toEqual([...files.map(({ key }) => key), 'manifest.json'].sort());
});

test.each(['ndjson', 'parquet'])(
  'an export as %s larger than its heap does not run out of memory',
  async (format) => {
    await pool.query(
      `update profiles set custom_attributes = ('{"text":"' || repeat(md5(external_id), 3800) || '"}')::jsonb`,
    );
    const folder = path.join(temporaryFolder(), 'users');
    const fields = ['--fields', 'external_id,custom_attributes', '--format', format];
    const args = ['export', '--workspace', 'shop', '--to', folder, '--json', ...fields];
    // 243 MB of attributes.
    const small = { NODE_OPTIONS: '--max-old-space-size=128' };
    const output = await penstockOn(url, small, spawnPenstock).run(args);
    expect(output).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(output.stdout)).toMatchObject({ what: 'profiles', rows: USERS });
  },
);
