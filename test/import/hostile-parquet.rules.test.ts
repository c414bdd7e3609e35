import { expect, test } from 'vitest';
import { openInput } from '../../src/import/open-input.ts';
import { MAX_ROW_BYTES } from '../../src/integrations/csv-scanner.ts';
import { parquetOf } from './parquet-file.ts';
import { readRows } from './scene.ts';

test('a Parquet file that a dictionary expands to a gigabyte is rejected before it is read', async () => {
  const file = await parquetOf(
    `select 'u' || n as external_id, repeat('x', 1000000) as x from range(1000) as numbers (n)`,
  );
  const before = process.memoryUsage().rss;
  await expect(openInput(file, { scratchBytes: 1_000_000 })).rejects.toThrow(
    'its rows have more than 67108864 bytes',
  );
  expect(process.memoryUsage().rss - before).toBeLessThan(300_000_000);
});

test('an overlong row of a Parquet file is rejected alone, without building it', async () => {
  const file = await parquetOf(
    `select 'u' || n as external_id, case when n = 1 then [{'a': repeat('x', 10000000)}] end as x from range(3) as numbers (n)`,
  );
  const { sent, refused } = await readRows(file, { layout: 'parquet' });
  expect(sent).toEqual([{ external_id: 'u0' }, { external_id: 'u2' }]);
  expect(refused).toEqual([{ row: 2, field: null, reason: `the row is longer than ${MAX_ROW_BYTES} bytes` }]);
});

test('large rows of a Parquet file are read a window at a time, in their order', async () => {
  const file = await parquetOf(
    `select n as file_no, 'u' || n as external_id, repeat(chr(97 + (n % 20)::integer), 1000000) || n as x from range(60) as numbers (n)`,
  );
  const { sent, refused } = await readRows(file, { layout: 'parquet' });
  expect(refused).toEqual([]);
  expect(sent.map((one) => (one as { external_id: string }).external_id)).toEqual(
    Array.from({ length: 60 }, (_, n) => `u${n}`),
  );
});

test('a row of unexpected values is rejected alone', async () => {
  const file = await parquetOf(
    `select 'u' || n as external_id, case when n = 1 then {'toString': 1} end as name, '2026-01-31T12:00:00Z' as time, 'x' as "a.properties.b" from range(3) as numbers (n)`,
  );
  const { refused } = await readRows(file, {
    vendor: 'braze-user-import',
    type: 'events',
    layout: 'parquet',
  });
  expect(refused[1]).toMatchObject({ row: 2, reason: expect.stringContaining('the row cannot be read') });
  expect(refused).toHaveLength(3);
});
