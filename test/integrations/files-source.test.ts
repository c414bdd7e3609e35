import { mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openDuckDb } from '../../src/integrations/duckdb.ts';
import { loadDuckDb } from '../../src/integrations/files/part.ts';
import { createScratch } from '../../src/integrations/files/scratch.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { open, readAll, runOnDuckDb, type Stocked } from './warehouses.ts';

const csv = (id: string) => `EXTERNAL_ID,UPDATED_AT\n${id},2026-01-01\n`;

function folder(files: Record<string, string>): { path: string; stocked: Stocked } {
  const dir = temporaryFolder('penstock-files-');
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    writeFileSync(path.join(dir, name), text);
  }
  return { path: dir, stocked: { definition: { type: 'folder', path: dir, format: 'csv' } } };
}

async function idsOf(stocked: Stocked): Promise<string[]> {
  return (await readAll(stocked)).map(({ identifiers }) => identifiers.external_id!).sort();
}

function scratchFolders(): string[] {
  return readdirSync(tmpdir()).filter(
    (name) => name.startsWith('penstock-rows-') && name.includes(`-${process.pid}-`),
  );
}

test('all files of the format count, also in subfolders, except for unfinished and hidden ones', async () => {
  const { stocked } = folder({
    'a.csv': csv('a'),
    'B.CSV': csv('b'),
    'day=1/part.csv': csv('c'),
    'users.ndjson': '{}',
    'users.csv.tmp': csv('x'),
    '.hidden.csv': csv('x'),
    '_temporary/part.csv': csv('x'),
  });
  expect(await idsOf(stocked)).toEqual(['a', 'b', 'c']);
});

test('a single file may be named, whatever its extension', async () => {
  const { path: dir } = folder({ 'export.txt': csv('a'), 'other.csv': csv('b') });
  const file = path.join(dir, 'export.txt');
  expect(await idsOf({ definition: { type: 'folder', path: file, format: 'csv' } })).toEqual(['a']);
});

test('a file name may contain any characters', async () => {
  const names = [
    "it's.csv",
    '*.csv',
    'a[0-9].csv',
    '$(touch x).csv',
    "'); drop table x; --.csv",
    'ä 🌊\n.csv',
  ];
  const { stocked } = folder(Object.fromEntries(names.map((name, index) => [name, csv(`${index}`)])));
  expect(await idsOf(stocked)).toEqual(['0', '1', '2', '3', '4', '5']);
});

test('a link within the folder is followed, and a link out of it is ignored', async () => {
  const outside = folder({ 'secret.csv': csv('secret') });
  const { path: dir, stocked } = folder({ 'data/a.csv': csv('a') });
  symlinkSync(path.join(dir, 'data/a.csv'), path.join(dir, 'again.csv'));
  symlinkSync(path.join(outside.path, 'secret.csv'), path.join(dir, 'stolen.csv'));
  symlinkSync(outside.path, path.join(dir, 'elsewhere'));
  expect(await idsOf(stocked)).toEqual(['a', 'a']);
});

test('a missing file or folder and a missing permission are configuration errors with the path', async () => {
  const { path: dir, stocked } = folder({ 'a.ndjson': '{}' });
  await expect(open(stocked)).rejects.toMatchObject({
    reason: 'config',
    message: expect.stringContaining(dir),
  });
  const missing = path.join(dir, 'missing');
  await expect(open({ definition: { type: 'folder', path: missing, format: 'csv' } })).rejects.toMatchObject({
    reason: 'config',
    message: expect.stringContaining(missing),
  });
});

test('the scratch folder is private, and is removed when the source is closed or fails to open', async () => {
  const before = scratchFolders();
  const { stocked, path: dir } = folder({ 'a.csv': csv('a') });
  const source = await open(stocked);
  const [own] = scratchFolders().filter((name) => !before.includes(name));
  expect(statSync(path.join(tmpdir(), own!)).mode & 0o777).toBe(0o700);
  await source.close();
  await expect(
    open({ definition: { type: 'folder', path: path.join(dir, 'none'), format: 'csv' } }),
  ).rejects.toThrow();
  expect(scratchFolders()).toEqual(before);
});

test('more rows than one sort holds are ordered and read once, also with equal times', async () => {
  const dir = temporaryFolder('penstock-files-');
  const moment = (spread: string) => `timestamptz '2026-01-01 00:00:00Z' + to_microseconds(${spread})`;
  // 250 MB of payloads.
  await runOnDuckDb(
    `copy (select 'user-' || n as external_id, repeat('x', 5000) as payload,
       case when n % 2 = 0 then ${moment('5000')} else ${moment('(n * 7919) % 50000')} end as updated_at
     from range(50000) numbers(n)) to '${dir}/rows.parquet' (format parquet)`,
  );
  const source = await open({ definition: { type: 'folder', path: dir, format: 'parquet' } });
  const ids = new Set<string>();
  let last = '';
  let ordered = true;
  const { signal } = new AbortController();
  for await (const rows of source.rowsSince(undefined, { batch: 1000, signal })) {
    for (const { updatedAt, identifiers } of rows) {
      ordered &&= updatedAt! >= last;
      last = updatedAt!;
      ids.add(identifiers.external_id!);
    }
  }
  await source.close();
  expect(ordered).toBe(true);
  expect(ids.size).toBe(50_000);
});

test('DuckDB can read only the scratch folder', async () => {
  const { path: dir } = folder({ 'secret.csv': csv('secret') });
  const scratch = await createScratch(1_000_000);
  const duckDb = await openDuckDb(await loadDuckDb(), scratch);
  const connection = await duckDb.connect();
  writeFileSync(path.join(scratch.inputs, '0.csv'), csv('a'));
  await connection.run(`from read_csv('${scratch.inputs}/0.csv')`);
  for (const statement of [
    `from read_csv('${dir}/secret.csv')`,
    `from read_csv('${scratch.inputs}/../../${path.basename(dir)}/secret.csv')`,
    `from read_text('/etc/hostname')`,
    `from glob('/etc/*')`,
    `from read_csv('http://127.0.0.1:1/x.csv')`,
    `copy (select 1) to '${dir}/written.csv'`,
    `attach '${dir}/x.db'`,
    'load httpfs',
    'set enable_external_access = true',
    'set memory_limit = 1',
    `set allowed_directories = ['/']`,
  ]) {
    await expect(connection.run(statement), statement).rejects.toThrow(
      /disabled|locked|Cannot access|cannot be changed|Cannot change/,
    );
  }
  connection.closeSync();
  duckDb.close();
  await scratch.remove();
});

test('scratch folders of killed processes are removed, and those of running ones are kept', async () => {
  const scratch = await createScratch(1_000_000);
  const name = path.basename(scratch.path);
  const left = path.join(tmpdir(), name.replace(`-${process.pid}-`, '-4194305-'));
  const running = path.join(tmpdir(), name.replace(`-${process.pid}-`, `-${process.ppid}-`));
  mkdirSync(left);
  mkdirSync(running);
  const second = await createScratch(1_000_000);
  const names = readdirSync(tmpdir());
  expect(names).not.toContain(path.basename(left));
  expect(names).toContain(path.basename(running));
  expect(names).toContain(name);
  await second.remove();
  await scratch.remove();
  rmSync(running, { recursive: true });
});
