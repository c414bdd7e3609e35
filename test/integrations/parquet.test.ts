import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { temporaryFolder } from '../setup/left-behind.ts';
import { open, readAll, runOnDuckDb, type Stocked } from './warehouses.ts';

async function parquet(...selects: string[]): Promise<Stocked> {
  const folder = temporaryFolder('penstock-parquet-');
  for (const [index, select] of selects.entries()) {
    await runOnDuckDb(`copy (${select}) to '${path.join(folder, `${index}.parquet`)}' (format parquet)`);
  }
  return { definition: { type: 'folder', path: folder, format: 'parquet' } };
}

test.each([
  ["timestamp '2026-01-02 03:04:05.123456'", '2026-01-02T03:04:05.123456Z'],
  ["timestamp_s '2026-01-02 03:04:05'", '2026-01-02T03:04:05.000000Z'],
  ["timestamp_ms '2026-01-02 03:04:05.123'", '2026-01-02T03:04:05.123000Z'],
  ["timestamp_ns '2026-01-02 03:04:05.123456789'", '2026-01-02T03:04:05.123456Z'],
  ["timestamptz '2026-01-02 03:04:05.123456+02'", '2026-01-02T01:04:05.123456Z'],
  ["date '2026-01-02'", '2026-01-02T00:00:00.000000Z'],
  ["'2026-01-02T03:04:05.123456+02:00'", '2026-01-02T01:04:05.123456Z'],
])('UPDATED_AT %s is read as %s', async (value, read) => {
  const stocked = await parquet(`select 'a' as external_id, ${value} as updated_at`);
  expect(await readAll(stocked)).toEqual([{ updatedAt: read, identifiers: { external_id: 'a' } }]);
  expect(await readAll(stocked, read)).toHaveLength(1);
  const after = `${read.slice(0, -2)}9Z`;
  expect(await readAll(stocked, after === read ? '2027-01-01T00:00:00.000000Z' : after)).toHaveLength(0);
});

test.each([
  [
    "{'a': 1234567890123456789, 'b': ['x', null], 'c': {'d': true}}",
    '{"a":1234567890123456789,"b":["x",null],"c":{"d":true}}',
  ],
  ["map {'a': 1, 'b\"': 2}", '{"a":1,"b\\"":2}'],
  [`'{"a": 1.10}'`, '{"a": 1.10}'],
  [`'{"a": 1}'::json`, '{"a": 1}'],
  [`'{"a": 1}'::blob`, '{"a": 1}'],
])('a payload %s is read as %s', async (value, read) => {
  const [row] = await readAll(
    await parquet(
      `select 7::bigint as external_id, timestamp '2026-01-01' as updated_at, ${value} as payload`,
    ),
  );
  expect(row).toMatchObject({ identifiers: { external_id: '7' }, payload: read });
});

test('a file of any codec is read, except for Brotli, which is rejected before unpacking', async () => {
  const folder = temporaryFolder('penstock-parquet-');
  const file = path.join(folder, 'rows.parquet');
  const stocked: Stocked = { definition: { type: 'folder', path: folder, format: 'parquet' } };
  const rows =
    "select 'user-' || n as external_id, timestamp '2026-01-02' as updated_at from range(1000) as numbers (n)";
  for (const codec of ['uncompressed', 'snappy', 'gzip', 'zstd', 'lz4_raw', 'brotli']) {
    await runOnDuckDb(`copy (${rows}) to '${file}' (format parquet, compression '${codec}')`);
    if (codec !== 'brotli') expect(await readAll(stocked)).toHaveLength(1000);
    else await expect(readAll(stocked)).rejects.toThrow('rows.parquet: it is compressed with Brotli');
  }
});

test('files with different columns are one table', async () => {
  const rows = await readAll(
    await parquet(
      "select 'a' as external_id, timestamp '2026-01-02' as updated_at, 'x' as payload",
      "select timestamp '2026-01-01' as updated_at, 'b@example.com' as email",
    ),
  );
  expect(rows.map(({ identifiers }) => identifiers)).toEqual([
    { email: 'b@example.com' },
    { external_id: 'a' },
  ]);
});

test('a number in UPDATED_AT, and a file that is not Parquet, are errors of the configuration', async () => {
  await expect(
    readAll(await parquet('select 1 as external_id, 1767225600 as updated_at')),
  ).rejects.toMatchObject({
    reason: 'config',
    message: expect.stringMatching(/updated_at is of type INTEGER/),
  });
  const folder = temporaryFolder('penstock-parquet-');
  writeFileSync(path.join(folder, 'rows.parquet'), 'EXTERNAL_ID,UPDATED_AT\n');
  const stocked: Stocked = { definition: { type: 'folder', path: folder, format: 'parquet' } };
  await expect(readAll(stocked)).rejects.toMatchObject({
    reason: 'config',
    message: expect.stringMatching(/rows\.parquet/),
  });
});

test('describe returns the types', async () => {
  const source = await open(await parquet("select 'a' as id, timestamptz '2026-01-01' as updated_at"));
  expect(await source.describe()).toEqual([
    { name: 'id', type: 'VARCHAR' },
    { name: 'updated_at', type: 'TIMESTAMP WITH TIME ZONE' },
  ]);
  await source.close();
});
