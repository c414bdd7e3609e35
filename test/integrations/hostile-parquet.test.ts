import { readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { temporaryFolder } from '../setup/fixtures.ts';
import { endure, type Ordeal } from './hostile.ts';
import { open, runOnDuckDb } from './warehouses.ts';

const at = "timestamp '2026-01-01' + to_seconds(n)";

async function parquet(select: string, options = ''): Promise<string> {
  const file = path.join(temporaryFolder('penstock-parquet-'), 'rows.parquet');
  await runOnDuckDb(`copy (${select}) to '${file}' (format parquet, compression zstd${options})`);
  return file;
}

const read = (file: string): Promise<Ordeal> =>
  endure(() => open({ definition: { type: 'folder', path: file, format: 'parquet' } }));

test('10 KB that a dictionary expands to a gigabyte of payloads are read row by row', async () => {
  const file = await parquet(
    `select 'u' || (n % 10) as external_id, ${at} as updated_at, repeat('x', 1000000) as payload from range(1000) t(n)`,
    ', row_group_size 100000',
  );
  expect(statSync(file).size).toBeLessThan(20_000);
  const { error, rows, stall, grown } = await read(file);
  expect(error).toBeUndefined();
  expect(rows).toBe(1000);
  expect(stall).toBeLessThan(1000);
  // DuckDB uses at most a gibibyte; rows are created one at a time.
  expect(grown).toBeLessThan(1500);
}, 120_000);

test('a payload of 100 MB is cut before it enters our memory, and rejected for its length', async () => {
  const file = await parquet(
    `select 'u' as external_id, ${at} as updated_at, repeat('x', 100000000) as payload from range(4) t(n)`,
  );
  let longest = 0;
  const { error, rows, stall } = await endure(
    () => open({ definition: { type: 'folder', path: file, format: 'parquet' } }),
    (batch) => {
      longest = Math.max(longest, ...batch.map(({ payload }) => payload!.length));
    },
  );
  expect(error).toBeUndefined();
  expect({ rows, longest }).toEqual({ rows: 4, longest: 1_048_577 });
  expect(stall).toBeLessThan(1000);
}, 120_000);

test('thousands of columns are described and read', async () => {
  const columns = Array.from({ length: 3000 }, (_, index) => `1 as c${index}`).join(', ');
  const file = await parquet(
    `select 'u' as external_id, ${at} as updated_at, '{}' as payload, ${columns} from range(1) t(n)`,
  );
  const { error, rows, stall } = await read(file);
  expect(error).toBeUndefined();
  expect(rows).toBe(1);
  expect(stall).toBeLessThan(1000);
}, 120_000);

test('a payload of 300 nested lists fails within the memory limit of DuckDB', async () => {
  const nested = `${'['.repeat(300)}'x'${']'.repeat(300)}`;
  const file = await parquet(
    `select 'u' as external_id, ${at} as updated_at, ${nested} as payload from range(1) t(n)`,
  );
  const { error, rows, stall, grown } = await read(file);
  if (error) expect(error).toMatchObject({ name: 'SourceError', message: expect.stringMatching(/Memory/) });
  else expect(rows).toBe(1);
  expect(stall).toBeLessThan(1000);
  expect(grown).toBeLessThan(1500);
}, 120_000);

test('wrong lengths and changed bytes in a file cause only errors of that file', async () => {
  const file = await parquet(
    `select 'u' || n as external_id, ${at} as updated_at, {'a': n, 'b': [n::varchar]} as payload from range(100) t(n)`,
  );
  const whole = readFileSync(file);
  const broken: Buffer[] = [0x7fffffff, 0xffffffff, whole.length, whole.length + 5].map((length) => {
    const bytes = Buffer.from(whole);
    bytes.writeUInt32LE(length, bytes.length - 8);
    return bytes;
  });
  let seed = 20_261_122;
  const random = (most: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((seed / 2_147_483_648) * most);
  };
  for (let count = 0; count < 60; count += 1) {
    const bytes = Buffer.from(whole);
    // Mostly in the footer, which contains sizes and types.
    for (let changes = 0; changes < 3; changes += 1) bytes[bytes.length - 1 - random(600)] = random(256);
    broken.push(bytes);
  }
  const failed: unknown[] = [];
  for (const bytes of broken) {
    writeFileSync(file, bytes);
    const { error, grown, stall } = await read(file);
    if (error) failed.push(error.name);
    expect(grown).toBeLessThan(1500);
    expect(stall).toBeLessThan(1000);
  }
  expect(failed.length).toBeGreaterThan(4);
  expect([...new Set(failed)]).toEqual(['SourceError']);
}, 180_000);
