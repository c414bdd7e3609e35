import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectRefusal, type PenstockOn, penstockOn } from '../admin/penstock.ts';
import { createDatabase, startRedis } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { fileOf } from './scene.ts';

let pool: pg.Pool;
let on: PenstockOn;

beforeAll(async () => {
  const [{ url }, redis] = await Promise.all([createDatabase(), startRedis()]);
  pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  await createWorkspace(pool);
  on = penstockOn(url, { REDIS_URL: redis.url, LOG_LEVEL: 'silent' });
});
afterAll(() => pool.end());

const header = 'external_id,name,time,n\n';
const eventRow = (n: number) => `user${n % 7},event-${n},2026-01-31T12:00:00Z,${n}\n`;
const events = (count: number) => header + Array.from({ length: count }, (_, n) => eventRow(n)).join('');
const importing = (file: string, ...more: string[]) => [
  ...['import', file, '--workspace', 'shop', '--type', 'events'],
  ...more,
];

test('files of a folder are imported in order, and skipped by their content in a second run', async () => {
  const folder = path.dirname(fileOf('2.csv', events(20).replaceAll('event-', 'folder-b-')));
  mkdirSync(path.join(folder, '1'));
  writeFileSync(
    path.join(folder, '1', 'first.csv.gz'),
    gzipSync(events(20).replaceAll('event-', 'folder-a-')),
  );
  writeFileSync(path.join(folder, '.hidden.csv'), 'x');
  writeFileSync(path.join(folder, '3.csv'), 'external_id,name,time\nuser-1,folder-c,never\n');
  const [first, second, third] = ['1/first.csv.gz', '2.csv', '3.csv'].map((name) => path.join(folder, name));
  const twice = [await on.run(importing(folder, '--json')), await on.run(importing(`${folder}/`, '--json'))];
  expect(twice.map(({ code }) => code)).toEqual([2, 2]);
  expect(twice.map(({ stdout }) => JSON.parse(stdout).imports)).toMatchObject([
    [
      { file: first, state: 'imported', rows: 20 },
      { file: second, state: 'imported', rows: 20 },
      { file: third, state: 'imported', refused: 1, rejects: `${third}.rejects.ndjson` },
    ],
    // The rejects files of the first run are in the folder now, and are not imported.
    [first, second, third].map((file) => ({ file, state: 'imported before' })),
  ]);
  writeFileSync(path.join(folder, '4.csv'), events(5).replaceAll('event-', 'folder-d-'));
  const more = await on.run(importing(folder, '--json'));
  expect(JSON.parse(more.stdout).imports.map(({ state }: { state: string }) => state)).toEqual([
    ...['imported before', 'imported before', 'imported before', 'imported'],
  ]);
  expectRefusal(await on.run(importing(folder, '--name', 'x')), '--name and --rejects need exactly one file');
});
