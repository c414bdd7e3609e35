import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Envelope } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { Queue } from '../../src/queue/bullmq.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import { laneName } from '../../src/queue/lanes.ts';
import { decodeEnvelope } from '../../src/queue/wire.ts';
import { eraseStaleRows, withImportLock } from '../../src/store/imports.ts';
import { expectRefusal, type PenstockOn, penstockOn } from '../admin/penstock.ts';
import { startS3, startStrictS3 } from '../integrations/s3.ts';
import { createDatabase, startRedis } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { fileOf } from './scene.ts';

let pool: pg.Pool;
let on: PenstockOn;
let inLane: () => Promise<{ id: string; name: string }[]>;

beforeAll(async () => {
  const [{ url }, redis] = await Promise.all([createDatabase(), startRedis()]);
  pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  await createWorkspace(pool);
  on = penstockOn(url, { REDIS_URL: redis.url, LOG_LEVEL: 'silent' });
  const queue = connectWorker(readConfig({ REDIS_URL: redis.url }), url);
  const lane = new Queue(laneName(0), queue.options, queue.factory);
  inLane = async () => {
    const jobs = await lane.getJobs(['waiting'], 0, -1, true);
    const objects = jobs.flatMap(({ data }) => (decodeEnvelope(data) as Envelope).objects);
    return objects.map((object) => ({ id: object.id, name: 'name' in object ? object.name : object.kind }));
  };
  afterAll(async () => {
    await lane.close();
    await queue.stop();
    await pool.end();
  });
});

const header = 'external_id,name,time,n\n';
const eventRow = (n: number) => `user${n % 7},event-${n},2026-01-31T12:00:00Z,${n}\n`;
const events = (count: number) => header + Array.from({ length: count }, (_, n) => eventRow(n)).join('');
const onEvents = ['--workspace', 'shop', '--type', 'events'];
const importing = (file: string, ...more: string[]) => ['import', file, ...onEvents, ...more];
const asOptions = (options: Record<string, string>) =>
  Object.entries(options).flatMap(([option, value]) => [`--${option}`, value]);
const lately = async (prefix: string) =>
  (await inLane()).map(({ name }) => name).filter((name) => name.startsWith(prefix));

test('rows enter the lanes in order, and a second run adds none', async () => {
  const file = fileOf('events.csv', events(5000));
  expect(await on.json(importing(file))).toEqual({
    imports: [{ file, state: 'imported', rows: 5000, accepted: 5000, refused: 0, warned: 0, rejects: null }],
    next: null,
  });
  const expected = Array.from({ length: 5000 }, (_, n) => `event-${n}`);
  expect(await lately('event-')).toEqual(expected);
  const again = await on.json(importing(file));
  expect(again.imports).toMatchObject([{ state: 'imported before', rows: 5000, accepted: 5000 }]);
  const { rows: auditRows } = await pool.query("select detail from audit where action = 'imports.begin'");
  expect(auditRows).toEqual([{ detail: { file } }]);
  // The same bytes under another name are the same file.
  const copy = fileOf('copy.csv', events(5000));
  expect((await on.json(importing(copy))).imports).toMatchObject([{ state: 'imported before' }]);
  expect(await lately('event-')).toEqual(expected);
});

test('rejected rows are written to a file with row, field and rule, and set the exit code', async () => {
  const file = fileOf(
    'some.csv',
    `${header}a,refused-1,2026-01-31T12:00:00Z,1\nb,refused-2,never,2\n,x,2026-01-31T12:00:00Z,3\n`,
  );
  const { code, stdout, stderr } = await on.run([...importing(file), '--json']);
  expect([code, stderr]).toEqual([2, '']);
  const rejects = `${file}.rejects.ndjson`;
  expect(JSON.parse(stdout).imports).toMatchObject([{ rows: 3, accepted: 1, refused: 2, rejects }]);
  const lines = readFileSync(rejects, 'utf8').trimEnd().split('\n');
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    {
      ...{ file, row: 2, line: 3, column: 'time', field: 'time', value: 'never' },
      text: 'b,refused-2,never,2',
      reason: "'time' is not valid: it must be a time in ISO 8601 or as yyyy-MM-dd'T'HH:mm:ss:SSSZ",
    },
    {
      ...{ file, row: 3, line: 4, column: 'external_id', field: 'external_id', value: '' },
      ...{ reason: expect.any(String), text: ',x,2026-01-31T12:00:00Z,3' },
    },
  ]);
});

test('columns that differ from a field only in case are reported by imports and dry runs', async () => {
  const file = fileOf('case.csv', 'EXTERNAL_ID,EMAIL,\nada,ada@example.com,1\n');
  const options = [
    '--workspace',
    'shop',
    '--type',
    'users',
    '--map',
    'external_id=EXTERNAL_ID',
    '--ignore',
    '',
  ];
  const warning = `warning: ${file}: the column EMAIL becomes the custom attribute EMAIL`;
  const tried = await on.run(['import', file, ...options, '--dry-run']);
  expect([tried.code, tried.stdout]).toEqual([0, expect.stringContaining(warning)]);
  const imported = await on.run(['import', file, ...options]);
  expect([imported.code, imported.stderr]).toEqual([0, expect.stringContaining(warning)]);
});

test('a file without rows ends with 1 and its cause, and other files are imported', async () => {
  const [empty, full] = [
    fileOf('empty.csv', header),
    fileOf('full.csv', `${header}a,beside-1,2026-01-31,1\n`),
  ];
  expectRefusal(await on.run(importing(empty)), `${empty} has a header but no rows`);
  expect((await pool.query('select from imports where file = $1', [empty])).rowCount).toBe(0);
  const { code, stdout, stderr } = await on.run(['import', empty, full, ...onEvents, '--json']);
  expect([code, stderr]).toEqual([1, expect.stringContaining('has a header but no rows')]);
  expect(JSON.parse(stdout).imports).toMatchObject([
    { file: empty, state: 'no rows', rows: 0 },
    { file: full, state: 'imported', rows: 1 },
  ]);
});

test('a dry run shows the first rows, validates all of them, and imports none', async () => {
  const file = fileOf('dry.csv', `User,What,time\na,dry-1,2026-01-31T12:00:00Z\nb,dry-2,never\n`);
  const map = ['--map', 'external_id=User,name=What', '--dry-run'];
  const { code, stdout } = await on.run([...importing(file, ...map), '--json']);
  expect(code).toBe(2);
  expect(JSON.parse(stdout).imports).toMatchObject([
    {
      ...{ state: 'dry run', rows: 2, accepted: 1, refused: 1 },
      columns: [
        { column: 'User', field: 'external_id', reading: 'text' },
        { column: 'What', field: 'name', reading: 'text' },
        { column: 'time', field: 'time', reading: 'text' },
      ],
      first_rows: [
        {
          row: 1,
          objects: [
            { type: 'events', object: { external_id: 'a', name: 'dry-1', time: '2026-01-31T12:00:00Z' } },
          ],
          refused: null,
        },
        { row: 2, refused: expect.stringContaining("'time' is not valid") },
      ],
    },
  ]);
  expect((await on.run(importing(file, ...map))).stdout).toContain('"external_id": "a"');
  expect(await lately('dry-')).toEqual([]);
  expect((await pool.query('select from imports where file = $1', [file])).rowCount).toBe(0);
});

test('a resumed import enqueues its staged jobs first, with the same ids, and then its rows', async () => {
  const file = fileOf('left.csv', events(600).replaceAll('event-', 'left-'));
  await on.json(importing(file));
  const before = await inLane();
  // The state after the process died with its last chunk enqueued: the next run enqueues it again.
  const { rows } = await pool.query('select * from imports where file = $1', [file]);
  expect(rows[0]).toMatchObject({ rows_done: 600, staged: null, envelope_ids: [] });
  const half = fileOf('half.csv', events(600).replaceAll('event-', 'half-'));
  await on.json(importing(half));
  const staged = [
    { lane: 0, id: '019c13ec-a2e2-7b61-8f0c-55a3d7000001', envelope: { requests: [], objects: [] } },
  ];
  await pool.query(
    `update imports set finished_at = null, rows_done = 250, accepted = 250, staged = $2, envelope_ids = array['019c13ec-a2e2-7b61-8f0c-55a3d7000001'::uuid]
     where file = $1`,
    [half, JSON.stringify(staged)],
  );
  const again = await on.json(importing(half));
  expect(again.imports).toMatchObject([{ state: 'imported', rows: 600, accepted: 600 }]);
  const halves = await lately('half-');
  expect(halves.slice(600)).toEqual(Array.from({ length: 350 }, (_, n) => `half-${n + 250}`));
  expect((await inLane()).slice(0, before.length)).toEqual(before);
  expect((await pool.query('select from imports where staged is not null')).rowCount).toBe(0);
});

test('rows of an interrupted import are erased after 7 days, with instructions to continue', async () => {
  const [lost, applied] = [newId(), newId()];
  for (const [name, id] of [
    ['stale.csv', lost],
    ['done.csv', applied],
  ] as const) {
    const file = fileOf(name, events(3).replaceAll('event-', `${name}-`));
    await on.json(importing(file));
    await pool.query(
      `update imports set finished_at = null, rows_done = 2, staged = '[]', envelope_ids = array[$2::uuid],
         staged_at = now() - interval '6 days'
       where file = $1`,
      [file, id],
    );
    await eraseStaleRows(pool);
    expect((await pool.query('select from imports where staged is not null')).rowCount).toBe(1);
    if (id === applied) await pool.query('insert into ledger (envelope_id) values ($1)', [id]);
    await pool.query("update imports set staged_at = now() - interval '8 days' where file = $1", [file]);
    await eraseStaleRows(pool);
    expect((await pool.query('select from imports where staged is not null')).rowCount).toBe(0);
    const again = await on.run(importing(file));
    expect([again.code, again.stderr]).toEqual(
      id === applied
        ? [0, expect.any(String)]
        : [1, expect.stringMatching(/interrupted more than 7 days ago.*import drop [0-9a-f-]{36}/)],
    );
  }
});

test('rejected rows of a chunk that was not committed are written only once', async () => {
  const bad = (n: number) => `u,torn-${n},never,${n}\n`;
  const file = fileOf('torn.csv', header + Array.from({ length: 600 }, (_, n) => bad(n)).join(''));
  await on.run(importing(file));
  const rejects = `${file}.rejects.ndjson`;
  const whole = readFileSync(rejects, 'utf8');
  const lines = whole.split('\n');
  const bytes = Buffer.byteLength(`${lines.slice(0, 250).join('\n')}\n`);
  await pool.query(
    'update imports set finished_at = null, rows_done = 250, refused = 250, refused_bytes = $2 where file = $1',
    [file, bytes],
  );
  writeFileSync(rejects, `${lines.slice(0, 300).join('\n')}\n{"torn`);
  await on.run(importing(file));
  expect(readFileSync(rejects, 'utf8')).toBe(whole);
});

test('an import fails immediately while another process is importing the same file', async () => {
  const file = fileOf('alone.csv', events(3).replaceAll('event-', 'alone-'));
  await on.json(importing(file));
  const { rows } = await pool.query('select workspace_id, key from imports where file = $1', [file]);
  const key = { workspaceId: rows[0].workspace_id, key: rows[0].key };
  const output = await withImportLock(pool, key, () => on.run(importing(file)));
  expectRefusal(output!, `${file}: another process is importing this file`);
  expect((await on.json(importing(file))).imports).toMatchObject([{ state: 'imported before' }]);
});

test('an import with changed options fails, and starts over under a new name', async () => {
  const file = fileOf('other.csv', events(3).replaceAll('event-', 'other-'));
  await on.json(importing(file));
  await pool.query('update imports set finished_at = null, rows_done = 1 where file = $1', [file]);
  expectRefusal(await on.run(importing(file, '--ignore', 'n')), file, 'with other options', '--name');
  // The order of the members is irrelevant.
  const turned = `select json_object_agg(key, value order by key desc) from json_each(reading)`;
  await pool.query(`update imports set reading = (${turned}) where file = $1`, [file]);
  expect((await on.json(importing(file))).imports).toMatchObject([{ state: 'imported', rows: 3 }]);
  // A corrected mapping must not seem to have had an effect.
  expectRefusal(
    await on.run(importing(file, '--ignore', 'n')),
    'already imported with other options',
    '--name',
  );
  expect(await lately('other-')).toHaveLength(5);
  await on.json(importing(file, '--ignore', 'n', '--name', 'once more'));
  expect(await lately('other-')).toHaveLength(8);
  const another = fileOf('another.csv', events(4));
  expectRefusal(await on.run(importing(another, '--name', 'once more')), 'has other content');
});

test('a file that cannot be read or written is reported in one line, with its name and rule', async () => {
  expectRefusal(await on.run(importing('/nowhere/users.csv')), '/nowhere/users.csv cannot be read: ENOENT');
  const nameless = fileOf('export', 'external_id,name,time\n');
  expectRefusal(await on.run(importing(nameless)), 'set it with --format');
  const file = fileOf('full.csv', `${header}u,full,never,1\n`);
  expectRefusal(
    await on.run(importing(file, '--rejects', '/dev/full')),
    '/dev/full',
    'its disk is full',
    'run the same command again',
  );
  expectRefusal(await on.run(importing(file, '--rejects', path.join(file, 'x'))), 'ENOTDIR');
  expect(existsSync(`${file}.rejects.ndjson`)).toBe(false);
  expectRefusal(await on.run(['import', file, '--workspace', 'none', '--type', 'events']), "'none'");
  expect((await pool.query('select rows_done from imports where file = $1', [file])).rows).toEqual([
    { rows_done: 0 },
  ]);
});

test('objects of a bucket are fetched one by one, and recognized by their content', async () => {
  const { endpoint, credentials, fill } = await startS3();
  const folder = path.dirname(fileOf('1.csv', events(20).replaceAll('event-', 'bucket-a-')));
  writeFileSync(path.join(folder, '2.csv.gz'), gzipSync(events(20).replaceAll('event-', 'bucket-b-')));
  writeFileSync(path.join(folder, '_unfinished.csv'), 'x');
  const bucket = await fill(folder, 'exports/');
  const secret = fileOf('secret', `${credentials.secret_access_key}\n`);
  const access = { region: 'us-east-1', endpoint, 'access-key-id': credentials.access_key_id };
  const from = (position: string) => importing(position, ...asOptions({ ...access, 'secret-file': secret }));
  expect((await on.json(from(`s3://${bucket}/exports/1.csv`))).imports).toMatchObject([
    { file: `s3://${bucket}/exports/1.csv`, state: 'imported', rows: 20 },
  ]);
  expect((await on.json(from(`s3://${bucket}/exports/`))).imports).toMatchObject([
    { file: `s3://${bucket}/exports/1.csv`, state: 'imported before' },
    { file: `s3://${bucket}/exports/2.csv.gz`, state: 'imported', rows: 20 },
  ]);
  expect(await lately('bucket-')).toHaveLength(40);
  expectRefusal(
    await on.run(from(`s3://${bucket}/exports/3.csv`)),
    bucket,
    'no object was found under the prefix "exports/3.csv"',
  );
  expectRefusal(await on.run(from('s3://nowhere/x.csv')), 'bucket nowhere', 'NoSuchBucket');
  const keyless = await on.run(importing(`s3://${bucket}/exports/`));
  expectRefusal(keyless, 's3:// needs --region and --access-key-id');
});

test('an unreachable bucket and a wrong key are reported in one line', async () => {
  const secret = fileOf('secret', 'wrong');
  const from = (endpoint: string) =>
    importing(
      's3://rows/x.csv',
      ...asOptions({ region: 'us-east-1', endpoint, 'access-key-id': 'S3RVER', 'secret-file': secret }),
    );
  const nowhere = 'http://127.0.0.1:1';
  expectRefusal(await on.run(from(nowhere)), `bucket rows at ${nowhere}`, 'ECONNREFUSED');
  expectRefusal(await on.run(from(await startStrictS3())), 'bucket rows', 'SignatureDoesNotMatch');
  expectRefusal(
    await on.run(from('ftp://x')),
    '--endpoint must be a URL that starts with http:// or https://',
  );
});

test('a rejects file is overwritten only with --force, and the source never', async () => {
  const content = `${header}u,over-1,never,1\n`;
  const file = fileOf('over.csv', content);
  const rejects = `${file}.rejects.ndjson`;
  writeFileSync(rejects, 'of somebody\n');
  expectRefusal(await on.run(importing(file)), `${rejects} already exists`, '--force');
  expect(readFileSync(rejects, 'utf8')).toBe('of somebody\n');
  // The import was not started, so a second attempt fails in the same way.
  expectRefusal(await on.run(importing(file)), `${rejects} already exists`);
  expectRefusal(await on.run(importing(file, '--rejects', file, '--force')), 'name another file');
  expect(readFileSync(file, 'utf8')).toBe(content);
  expect((await on.run(importing(file, '--force'))).code).toBe(2);
  expect(readFileSync(rejects, 'utf8')).toContain('over-1');
});

test('an import that fails leaves none of its rows in the outbox', async () => {
  const file = fileOf('early.csv', `${events(5000).replaceAll('event-', 'early-')}u,early-bad,never,1\n`);
  expectRefusal(await on.run(importing(file, '--rejects', '/dev/full')), 'its disk is full');
  const { rows } = await pool.query('select * from imports where file = $1', [file]);
  expect(rows[0].rows_done).toBeGreaterThan(0);
  expect(rows[0]).toMatchObject({ staged: null, envelope_ids: [], finished_at: null });
});

test('imports are listed page by page, and a dropped one starts over and is audited', async () => {
  const file = fileOf('drop.csv', events(2).replaceAll('event-', 'drop-'));
  await on.json(importing(file));
  const { imports } = await on.json(['import', 'list', '--workspace', 'shop']);
  const last = imports.at(-1);
  const whole = { rows: 2, accepted: 2, refused: 0 };
  expect(last).toMatchObject({ workspace: 'shop', file, state: 'imported', ...whole });
  const page = await on.json(['import', 'list', '--limit', '1']);
  expect(page).toMatchObject({ imports: [{ id: imports[0].id }], next: imports[0].id });
  expect((await on.json(['import', 'list', '--after', imports.at(-2).id])).imports).toEqual([last]);

  const { rows } = await pool.query('select workspace_id, key from imports where id = $1', [last.id]);
  const key = { workspaceId: rows[0].workspace_id, key: rows[0].key };
  expectRefusal(
    (await withImportLock(pool, key, () => on.run(['import', 'drop', last.id])))!,
    'a process is importing it',
  );
  expect(await on.json(['import', 'drop', last.id])).toMatchObject({ id: last.id, state: 'dropped' });
  expectRefusal(await on.run(['import', 'drop', last.id]), 'no import has the id');
  const { rows: auditRows } = await pool.query("select detail from audit where action = 'imports.drop'");
  expect(auditRows).toEqual([{ detail: { file, rows: 2 } }]);
  expect((await on.json(importing(file))).imports).toMatchObject([{ state: 'imported', rows: 2 }]);
  expectRefusal(await on.run(['import', file, '--type', 'events']), '--workspace is required');
});
