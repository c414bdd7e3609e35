import { readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { expect, test } from 'vitest';
import {
  type ParquetColumn,
  ParquetError,
  type ParquetRow,
  readBack,
  readParquet,
} from '../../src/object-store/parquet.ts';
import { writeParquet } from '../../src/object-store/write-parquet.ts';
import { keyChecksum } from '../../src/store/retention.ts';
import { createBareDatabase } from '../setup/fixtures.ts';
import { temporaryFolder } from '../setup/left-behind.ts';

const columns: ParquetColumn[] = [
  { name: 'id', type: 'uuid' },
  { name: 'name', type: 'text' },
  { name: 'time', type: 'timestamp' },
  { name: 'score', type: 'double' },
  { name: 'price', type: { decimal: { digits: 38, scale: 9 } } },
  { name: 'count', type: 'bigint' },
  { name: 'mine', type: 'boolean' },
  { name: 'properties', type: 'json' },
];

const idOf = (n: number) => `0198f000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`;

const whole = {
  id: 'ffffffff-0000-7000-8000-00000000000a',
  name: 'ünï "quoted"',
  time: '2026-01-02T03:04:05.123456+02:00',
  score: 0.1,
  price: '-12345678901234567890.000000001',
  count: -9223372036854775808n,
  mine: false,
  properties: '{"a": [1, null]}',
};

async function readAll(file: string): Promise<ParquetRow[]> {
  const rows = [];
  for await (const piece of readParquet(file, columns)) rows.push(...piece);
  return rows;
}

test.each(['zstd', 'snappy'] as const)(
  'rows are read back from %s unchanged and in order',
  async (compression) => {
    const file = path.join(temporaryFolder(), 'rows.parquet');
    const nothing = { id: idOf(1) };
    const dated = { id: idOf(0), time: new Date(5), price: '7.50', count: 3 };
    const written = await writeParquet([whole, nothing, dated], { file, columns, compression });
    expect(written).toMatchObject({ rows: 3, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) });
    const empty = Object.fromEntries(columns.map(({ name }) => [name, null]));
    expect(await readAll(file)).toEqual([
      { ...whole, time: '2026-01-02T01:04:05.123456Z', count: '-9223372036854775808' },
      { ...empty, ...nothing },
      { ...empty, ...dated, time: '1970-01-01T00:00:00.005000Z', price: '7.500000000', count: '3' },
    ]);
    expect(readdirSync(path.dirname(file))).toEqual(['rows.parquet']);
  },
);

test('rows, bounds and checksum read back equal those that Postgres has of the same keys', async () => {
  const file = path.join(temporaryFolder(), 'rows.parquet');
  const count = 20_000;
  async function* rows() {
    for (let n = 0; n < count; n += 1) yield { id: idOf(n * 7), name: 'x'.repeat(300) };
  }
  const written = await writeParquet(rows(), { file, columns });
  const client = new pg.Client((await createBareDatabase()).url);
  await client.connect();
  const { rows: counted } = await client.query(
    `select count(*)::integer as rows, min(id::text) as least, max(id::text) as greatest, ${keyChecksum('id')} as checksum
     from (select lpad(to_hex(n * 7), 12, '0') as tail from generate_series(0, ${count - 1}) as n) as numbers
     cross join lateral (select ('0198f000-0000-7000-8000-' || tail)::uuid as id) as ids`,
  );
  await client.end();
  expect(await readBack(file, 'id')).toEqual({ ...counted[0], sha256: written.sha256 });
});

test('a column is written from and read into its member, whose name the file does not contain', async () => {
  const [named, plain] = ['named.parquet', 'plain.parquet'].map((name) => path.join(temporaryFolder(), name));
  const column = { name: 'profile_id', type: 'text' } as const;
  const written = await writeParquet([{ profileId: 'ada' }], {
    ...{ file: named!, columns: [{ ...column, member: 'profileId' }] },
  });
  expect(await writeParquet([{ profile_id: 'ada' }], { file: plain!, columns: [column] })).toEqual(written);
  for await (const rows of readParquet(named!, [{ ...column, member: 'profileId' }]))
    expect(rows).toEqual([{ profileId: 'ada' }]);
  for await (const rows of readParquet(named!, [column])) expect(rows).toEqual([{ profile_id: 'ada' }]);
});

test('a file without rows is valid', async () => {
  const file = path.join(temporaryFolder(), 'rows.parquet');
  await writeParquet([], { file, columns });
  expect(await readBack(file, 'id')).toMatchObject({ rows: 0, least: null, checksum: '0' });
  expect(await readAll(file)).toEqual([]);
});

test.each([
  ['id', 'x', 'id must be a UUID, and is "x"'],
  ['time', '2026-01-02T03:04:05', 'time must be a time with its offset, and is "2026-01-02T03:04:05"'],
  ['time', '2026-13-02T03:04:05Z', 'time must be a time'],
  [
    'price',
    '1.0000000001',
    'price must be a decimal of at most 38 digits, 9 of them after the decimal point',
  ],
  ['price', '1'.repeat(30), 'price must be a decimal'],
  ['price', 1.5, 'price must be a decimal'],
  ['count', 2n ** 63n, 'count must be a whole number of 64 bits'],
  ['mine', 'true', 'mine must be true or false'],
  ['score', '1', 'score must be a number'],
  ['properties', { a: 1 }, 'properties must be a text, and is {"a":1}'],
])('a value of another type is reported with file, row and field: %s %s', async (name, value, expected) => {
  const folder = temporaryFolder();
  const file = path.join(folder, 'rows.parquet');
  await expect(writeParquet([whole, { ...whole, [name]: value }], { file, columns })).rejects.toThrow(
    `${file}: row 2: ${expected}`,
  );
  expect(readdirSync(folder)).toEqual([]);
});

test('a truncated, changed or invalid Parquet file is reported by name', async () => {
  const file = path.join(temporaryFolder(), 'rows.parquet');
  const rows = Array.from({ length: 5000 }, (_, n) => ({ id: idOf(n), name: `name ${n * 7919}` }));
  await writeParquet(rows, { file, columns });
  const bytes = readFileSync(file);
  const read = () => readBack(file, 'id');
  const refused = { name: 'ParquetError', message: expect.stringContaining(file) };
  truncateSync(file, bytes.length - 100);
  await expect(read()).rejects.toMatchObject(refused);
  writeFileSync(file, 'id,name');
  await expect(read()).rejects.toMatchObject(refused);
  writeFileSync(file, bytes.fill(0x55, 8, bytes.length - 2000));
  await expect(read()).rejects.toMatchObject(refused);
  await expect(readBack(path.join(path.dirname(file), 'none.parquet'), 'id')).rejects.toBeInstanceOf(
    ParquetError,
  );
});

test('failing rows, an abort and an existing file leave the folder unchanged', async () => {
  const folder = temporaryFolder();
  const file = path.join(folder, 'rows.parquet');
  async function* failing() {
    yield whole;
    throw new TypeError('the rows ended');
  }
  await expect(writeParquet(failing(), { file, columns })).rejects.toThrow(TypeError);
  const signal = AbortSignal.abort(new Error('stopped'));
  await expect(writeParquet([whole], { file, columns, signal })).rejects.toThrow('stopped');
  expect(readdirSync(folder)).toEqual([]);
  writeFileSync(file, 'mine');
  await expect(writeParquet([whole], { file, columns })).rejects.toThrow(/exist/);
  expect(readFileSync(file, 'utf8')).toBe('mine');
});
