import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import type pg from 'pg';
import { v7 } from 'uuid';
import { beforeAll, expect, test } from 'vitest';
import { exportRows } from '../../src/export/export-rows.ts';
import type { Format, Wanted } from '../../src/export/progress.ts';
import { writeRows } from '../../src/export/write-rows.ts';
import { type ObjectStore, ObjectStoreError } from '../../src/object-store/object-store.ts';
import { openObjectStore } from '../../src/object-store/open-object-store.ts';
import { readParquet } from '../../src/object-store/parquet.ts';
import { createReach } from '../../src/platform/reach.ts';
import { expectRefusal, type PenstockOn } from '../admin/penstock.ts';
import { startS3 } from '../integrations/s3.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { openShop } from './shop.ts';

let pool: pg.Pool;
let on: PenstockOn;
let workspaceId: string;
const command = ['export', '--workspace', 'shop', '--what', 'purchases'];

beforeAll(async () => {
  ({ pool, on, workspaceId } = await openShop());
  const id = v7();
  await pool.query(
    `insert into profiles (workspace_id, id, external_id, created_at, updated_at) values ($1, $2, 'ada', now(), now())`,
    [workspaceId, id],
  );
  for (let n = 0; n < 10; n += 1)
    await pool.query(
      `insert into purchases (workspace_id, id, profile_id, product_id, currency, price, quantity, "time", properties)
       values ($1, $2, $3, 'hat', 'EUR', 19.99, 2, '2026-01-31T12:00:00.123Z', '{"size": {"cm": 56.5}}')`,
      [workspaceId, v7(), id],
    );
});

const row = {
  ...{ external_id: 'ada', product_id: 'hat', currency: 'EUR', price: 19.99, quantity: 2 },
  ...{ time: '2026-01-31T12:00:00.123Z', properties: { size: { cm: 56.5 } } },
};

test('a target named as a file is one file, complete or absent, and never overwritten', async () => {
  const folder = temporaryFolder();
  const read: Record<Exclude<Format, 'parquet'>, (bytes: Buffer) => string> = {
    ndjson: String,
    'ndjson.gz': (bytes) => gunzipSync(bytes).toString(),
  };
  for (const [ending, text] of Object.entries(read)) {
    const file = path.join(folder, `purchases.${ending}`);
    expect(await on.json([...command, '--to', file])).toMatchObject({ to: file, rows: 10, files: 1 });
    const lines = text(readFileSync(file)).trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line))).toEqual(Array.from({ length: 10 }, () => row));
    expectRefusal(await on.run([...command, '--to', file]), `has a file purchases.${ending} already`);
  }
  const visible = readdirSync(folder).filter((name) => !name.startsWith('.'));
  expect(visible.sort()).toEqual(['purchases.ndjson', 'purchases.ndjson.gz']);
  // Also for an empty export: a requested file always exists.
  const none = path.join(folder, 'none.ndjson');
  await on.json([...command, '--until', '2001-01-01', '--to', none]);
  expect(readFileSync(none, 'utf8')).toBe('');
});

test('Parquet has a column for each member, times as times, and objects as JSON', async () => {
  const file = path.join(temporaryFolder(), 'purchases.parquet');
  await on.json([...command, '--to', file]);
  const rows: Record<string, unknown>[] = [];
  const columns = [
    ...['external_id', 'alias_name', 'product_id', 'app_id'].map((name) => ({ name, type: 'text' as const })),
    ...[
      { name: 'price', type: 'double' as const },
      { name: 'properties', type: 'json' as const },
    ],
    { name: 'time', type: 'timestamp' as const },
  ];
  for await (const page of readParquet(file, columns)) rows.push(...page);
  expect(rows).toHaveLength(10);
  expect(rows[0]).toMatchObject({
    ...{ external_id: 'ada', alias_name: null, product_id: 'hat', price: 19.99, app_id: null },
    ...{ properties: '{"size":{"cm":56.5}}', time: expect.stringContaining('12:00:00.123') },
  });
});

test('options that contradict each other are rejected before any write', async () => {
  const folder = path.join(temporaryFolder(), 'never');
  const refused = async (rule: string, ...args: string[]) =>
    expectRefusal(await on.run([...command, '--to', folder, ...args]), rule);
  await refused('--fields needs --what profiles', '--fields', 'email');
  await refused('--from and --until require', '--what', 'states', '--from', '2026-01-01');
  await refused('must be later than', '--from', '2026-01-02', '--until', '2026-01-02');
  await refused('A time must be written', '--from', 'yesterday');
  await refused('ends in .parquet', '--to', `${folder}.parquet`, '--format', 'ndjson');
  await refused('--no-gzip is set', '--to', `${folder}.ndjson.gz`, '--no-gzip');
  await refused('is not a valid key of an object', '--to', `${folder} a.ndjson`);
  await refused("'nobody'", '--workspace', 'nobody');
  await refused('has no active segment', '--segment', v7());
  expect(existsSync(folder)).toBe(false);
});

test('an invalid target is rejected in one line that names it, and stays empty', async () => {
  const folder = temporaryFolder();
  writeFileSync(path.join(folder, 'file'), '');
  expectRefusal(
    await on.run([...command, '--to', path.join(folder, 'file', 'x')]),
    'is a file, not a folder',
  );
  if (process.getuid?.() !== 0) {
    mkdirSync(path.join(folder, 'closed'));
    chmodSync(path.join(folder, 'closed'), 0o500);
    expectRefusal(await on.run([...command, '--to', path.join(folder, 'closed', 'x')]), 'permission denied');
  }
  // Node's recursive mkdir would loop indefinitely there.
  if (process.platform === 'linux')
    expectRefusal(await on.run([...command, '--to', '/proc/exported']), 'no folder can be created there');
  expectRefusal(await on.run([...command, '--to', 'ftp://somewhere']), 'is not a location for objects');
  const s3 = await startS3();
  const bucket = await s3.fill(temporaryFolder(), '');
  const secret = path.join(folder, 'secret');
  writeFileSync(secret, s3.credentials.secret_access_key);
  const access = ['--region', 'eu-central-1', '--secret-file', secret];
  const key = ['--access-key-id', s3.credentials.access_key_id];
  const service = ['--endpoint', s3.endpoint];
  const inBucket = (name: string, ...more: string[]) =>
    on.run([...command, '--to', name, ...access, ...more]);
  expectRefusal(await inBucket('s3://nowhere/x', ...service, ...key), 's3://nowhere/x/', 'NoSuchBucket');
  expectRefusal(
    await inBucket(`s3://${bucket}/x`, ...service, '--access-key-id', 'nobody'),
    `s3://${bucket}/x/`,
    'run the same command again',
  );
  expectRefusal(
    await inBucket(`s3://${bucket}/x`, '--endpoint', 'http://127.0.0.1:1', ...key),
    `s3://${bucket}/x/`,
    'ECONNREFUSED',
  );
  const one = `s3://${bucket}/one/purchases.ndjson.gz`;
  expect(JSON.parse((await inBucket(one, ...service, ...key, '--json')).stdout)).toMatchObject({
    to: one,
    rows: 10,
  });
  expectRefusal(await inBucket(one, ...service, ...key), 'has a file purchases.ndjson.gz already');
  const table = await inBucket(`s3://${bucket}/table`, ...service, ...key, '--format', 'parquet', '--json');
  expect(JSON.parse(table.stdout)).toMatchObject({ to: `s3://${bucket}/table/`, rows: 10, files: 1 });
});

const storeOf = (folder: string) =>
  openObjectStore(folder, {
    reach: createReach({ refused: 'none' }),
    accessTo: () => {
      throw new Error('no bucket');
    },
  });

test('a disk that fills up keeps complete files, and the next run continues after them', async () => {
  const folder = temporaryFolder();
  const store = await storeOf(folder);
  let puts = 0;
  const filling: ObjectStore = {
    ...store,
    async put(key, from, options) {
      if (!key.endsWith('.ndjson') || ++puts < 2) return store.put(key, from, options);
      for await (const _ of from) break;
      throw new ObjectStoreError('full', `${folder}/${key} cannot be written: its disk is full (ENOSPC)`);
    },
  };
  const wanted: Wanted = {
    ...{ what: 'purchases', format: 'ndjson', workspace: { id: workspaceId, name: 'shop' } },
    ...{ segment: null, fields: null, from: null, until: null },
  };
  const options = {
    ...{ pool, serviceIdField: 'service_id', leaving: new AbortController().signal },
    ...{ rowsOfFile: 4, lookedAt: 2 },
  };
  await expect(exportRows(wanted, { ...options, store: filling })).rejects.toThrow('its disk is full');
  expect(readdirSync(folder).filter((name) => name.endsWith('.ndjson'))).toEqual(['purchases-000001.ndjson']);
  const { rows, files, moments } = await exportRows(wanted, { ...options, store });
  expect([rows, files.map((file) => file.rows)]).toEqual([10, [4, 4, 2]]);
  expect(moments.map(({ first_file }) => first_file)).toEqual(files.slice(0, 2).map(({ key }) => key));
});

test('a value that its column cannot hold is named with file, row and field', async () => {
  const store = await storeOf(temporaryFolder());
  async function* rows() {
    yield { price: 1 };
    yield { price: 'much' };
  }
  const writing = writeRows(rows(), {
    ...{ store, key: 'purchases-000001.parquet', format: 'parquet', onRow: () => {} },
    ...{ columns: [{ name: 'price', type: 'double' }], signal: new AbortController().signal },
  });
  await expect(writing).rejects.toThrow(
    `${store.where}/purchases-000001.parquet: row 2: price must be a number, and is "much"`,
  );
});
