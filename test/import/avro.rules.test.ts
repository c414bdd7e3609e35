import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { readSchema } from '../../src/import/avro.ts';
import { readValues } from '../../src/import/avro-values.ts';
import { createUnsnappy } from '../../src/import/codecs.ts';
import { openInput } from '../../src/import/open-input.ts';
import { ImportError } from '../../src/import/unpack.ts';
import { MAX_ROW_BYTES } from '../../src/integrations/csv-scanner.ts';
import { avroOf } from './avro-file.ts';
import { fileOf, readRows } from './scene.ts';

const nullable = (type: unknown) => ['null', type];
const record = (fields: Record<string, unknown>, name = 'row') => ({
  ...{ type: 'record', name },
  fields: Object.entries(fields).map(([field, type]) => ({ name: field, type })),
});

/** https://www.braze.com/docs/user_guide/data_and_analytics/braze_currents/event_glossary/customer_behavior_events/ */
const customEvent = record({
  ...{ id: 'string', user_id: 'string', external_user_id: nullable('string'), app_id: nullable('string') },
  ...{ time: 'int', name: 'string', properties: nullable('string'), ad_tracking: nullable('boolean') },
});

test.each(['null', 'deflate', 'snappy'])(
  'Currents in Avro, packed by %s: each row is an event',
  async (codec) => {
    const rows = Array.from({ length: 500 }, (_, n) => ({
      ...{ id: `e${n}`, user_id: '0123456789abcdef01234567', external_user_id: `u${n}`, app_id: null },
      ...{ time: 1477502783, name: 'viewed', properties: JSON.stringify({ n }), ad_tracking: true },
    }));
    const file = await avroOf(customEvent, rows, codec);
    const { accepted, refused } = await readRows(file, {
      vendor: 'braze-currents',
      type: 'events',
      layout: 'avro',
    });
    expect(refused).toEqual([]);
    expect(accepted).toHaveLength(500);
    expect(accepted[499]).toMatchObject({
      ...{ kind: 'events', identifier: { external_id: 'u499' }, name: 'viewed', properties: { n: 499 } },
      time: '2016-10-26T17:26:23.000Z',
    });
  },
);

test('Avro rows map to API objects: null is omitted, and values are exact', async () => {
  const inner = record({ a: 'string' }, 'inner');
  const schema = record({
    ...{ external_id: 'string', gone: nullable('string'), big: 'long', small: 'long', ratio: 'double' },
    ...{ ok: 'boolean', list: { type: 'array', items: 'string' }, members: { type: 'map', values: 'int' } },
    ...{ place: inner, places: { type: 'array', items: 'inner' } },
    kind: { type: 'enum', name: 'kind', symbols: ['A', 'B'] },
    day: { type: 'int', logicalType: 'date' },
    at: { type: 'long', logicalType: 'timestamp-millis' },
    price: { type: 'bytes', logicalType: 'decimal', precision: 6, scale: 2 },
  });
  const row = {
    ...{ external_id: 'ä', gone: null, big: 2 ** 52, small: -65, ratio: 1.5, ok: true, list: ['x', 'y'] },
    ...{ members: { one: 1 }, place: { a: 'b' }, places: [{ a: 'c' }], kind: 'B', day: 20_000 },
    ...{ at: 1_700_000_000_000, price: Buffer.from([0xfb, 0x2e]) },
  };
  const { sent, refused } = await readRows(await avroOf(schema, [row]), { layout: 'avro' });
  expect(refused).toEqual([]);
  expect(sent).toEqual([
    {
      ...{ external_id: 'ä', big: 2 ** 52, small: -65, ratio: 1.5, ok: true, list: ['x', 'y'], kind: 'B' },
      ...{ members: { one: 1 }, place: { a: 'b' }, places: [{ a: 'c' }], day: '2024-10-04' },
      ...{ at: '2023-11-14T22:13:20.000Z', price: '-12.34' },
    },
  ]);
  const long = readSchema(JSON.stringify(record({ n: 'long' })));
  const most = Buffer.from('feffffffffffffffff01', 'hex');
  expect(readValues(most).next(long, 100)).toEqual({ n: '9223372036854775807' });
});

test('an overlong Avro row is rejected alone, also one that few bytes expand to', async () => {
  const symbol = `S${'x'.repeat(200_000)}`;
  const symbols = { type: 'enum', name: 'kind', symbols: [symbol] };
  const schema = record({ external_id: 'string', list: { type: 'array', items: symbols } });
  const rows = [
    ['a', 1],
    ['b', 3000],
    ['c', 0],
  ] as const;
  const file = await avroOf(
    schema,
    rows.map(([external_id, count]) => ({ external_id, list: Array(count).fill(symbol) })),
  );
  const { sent, refused } = await readRows(file, { layout: 'avro' });
  expect(sent.map((one) => (one as { external_id: string }).external_id)).toEqual(['a', 'c']);
  expect(refused).toEqual([{ row: 2, field: null, reason: `the row is longer than ${MAX_ROW_BYTES} bytes` }]);
});

const zigzag = (value: number): Buffer => {
  const bytes: number[] = [];
  let rest = value >= 0 ? value * 2 : -value * 2 - 1;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 0x80);
  return Buffer.from([...bytes, rest]);
};
const counted = (content: string | Buffer) =>
  Buffer.concat([zigzag(Buffer.from(content).length), Buffer.from(content)]);
const SYNC = Buffer.alloc(16, 7);
const headOf = (schema: unknown, codec = 'null') =>
  Buffer.concat([
    Buffer.from('Obj\x01', 'latin1'),
    ...[
      zigzag(2),
      counted('avro.schema'),
      counted(typeof schema === 'string' ? schema : JSON.stringify(schema)),
    ],
    ...[counted('avro.codec'), counted(codec), zigzag(0), SYNC],
  ]);
const blockOf = (rows: number, bytes: Buffer, announced = bytes.length) =>
  Buffer.concat([zigzag(rows), zigzag(announced), bytes, SYNC]);
const users = record({ external_id: 'string' });
const manyNulls = record(Object.fromEntries(Array.from({ length: 9000 }, (_, n) => [`f${n}`, 'null'])));
const nested = (depth: number): unknown =>
  depth === 0 ? 'int' : { type: 'array', items: nested(depth - 1) };

test.each<[string, Buffer, string]>([
  ['no schema', headOf('{'), 'its schema is not valid JSON'],
  ['no records', headOf('"int"'), 'its rows are not records'],
  ['a schema that is nested deeply', headOf(record({ a: nested(40) })), 'nested deeper than 32'],
  [
    'a schema of thousands of types',
    headOf(record(Object.fromEntries(Array.from({ length: 10_001 }, (_, n) => [`f${n}`, 'int'])))),
    'more than 10000 types',
  ],
  ['a type that is nowhere', headOf(record({ a: 'other' })), 'no type other'],
  ['another codec', headOf(users, 'bzip2'), 'its codec (bzip2) is not supported'],
  ['a head that is cut', headOf(users).subarray(0, 30), 'its header is damaged or too long'],
  [
    'a header of an invalid length',
    Buffer.from('4f626a0102feffffffffffffffff01', 'hex'),
    'its header is damaged or too long',
  ],
  [
    'a block that is cut',
    Buffer.concat([headOf(users), blockOf(1, counted('a')).subarray(0, 9)]),
    'it is truncated',
  ],
  [
    'a block of a terabyte',
    Buffer.concat([headOf(users), blockOf(1, counted('a'), 2 ** 40)]),
    'the limit is',
  ],
  [
    'a block of a negative length',
    Buffer.concat([headOf(users), blockOf(1, counted('a'), -5)]),
    'the limit is',
  ],
  [
    'more rows than bytes',
    Buffer.concat([headOf(users), blockOf(2 ** 40, counted('a'))]),
    'more rows than bytes',
  ],
  [
    'fewer rows than bytes',
    Buffer.concat([headOf(users), blockOf(1, Buffer.from('\x02a\x02b'))]),
    'more bytes than its rows',
  ],
  [
    'a text that continues after its block',
    Buffer.concat([headOf(users), blockOf(1, zigzag(2 ** 40))]),
    'ends within a row',
  ],
  [
    'a list of so many nothings',
    Buffer.concat([
      headOf(record({ a: { type: 'array', items: 'null' } })),
      blockOf(1, Buffer.concat([zigzag(2 ** 40), zigzag(0)])),
    ]),
    'more values than the block has bytes',
  ],
  [
    'lists of records of thousands of nothings',
    Buffer.concat([
      headOf(record({ rows: { type: 'array', items: manyNulls } })),
      blockOf(1, Buffer.concat([zigzag(5000), Buffer.alloc(6000)])),
    ]),
    'far more values than bytes',
  ],
  [
    'a row that holds itself without end',
    Buffer.concat([headOf(record({ inner: nullable('row') })), blockOf(1, Buffer.alloc(1000, 2))]),
    'nested deeper than 64',
  ],
  [
    'a block that is not deflate data',
    Buffer.concat([headOf(users, 'deflate'), blockOf(1, Buffer.alloc(9, 0xff))]),
    'cannot be decompressed',
  ],
  [
    'a block that is not Snappy data',
    Buffer.concat([headOf(users, 'snappy'), blockOf(1, Buffer.from('040001aabbccdd', 'hex'))]),
    'cannot be decompressed',
  ],
])('an Avro file with %s is rejected as a whole, by its name', async (_, content, rule) => {
  const file = fileOf('hostile.avro', content);
  const opened = openInput(file, { scratchBytes: 1_000_000 });
  await expect(opened).rejects.toThrow(rule);
  await expect(opened).rejects.toThrow(file);
});

test('Avro with changed bytes is either read or rejected', async () => {
  const row = {
    id: 'e',
    user_id: 'u',
    external_user_id: 'x',
    app_id: null,
    time: 1,
    name: 'n',
    properties: null,
    ad_tracking: null,
  };
  const whole = readFileSync(await avroOf(customEvent, Array(50).fill(row), 'null'));
  let refused = 0;
  let seed = 20_261_123;
  const random = (most: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((seed / 2_147_483_648) * most);
  };
  for (let time = 0; time < 60; time++) {
    const bytes = Buffer.from(whole);
    for (let change = 0; change < 3; change++) bytes[4 + random(bytes.length - 4)] = random(256);
    await readRows(fileOf('changed.avro', bytes), {
      vendor: 'braze-currents',
      type: 'events',
      layout: 'avro',
    }).catch((error) => {
      expect(error).toBeInstanceOf(ImportError);
      refused += 1;
    });
  }
  expect(refused).toBeGreaterThan(5);
});

test('Snappy copies may overlap their output, but not start before it', () => {
  const unsnappy = createUnsnappy(100);
  // A literal "ab", then eight bytes from two bytes back.
  expect(unsnappy(Buffer.from([10, 1 << 2, 0x61, 0x62, (4 << 2) | 1, 2])).toString()).toBe('ababababab');
  expect(unsnappy(Buffer.from([5, 1 << 2, 0x61, 0x62, (2 << 2) | 2, 2, 0])).toString()).toBe('ababa');
  for (const hostile of [
    [10, 1 << 2, 0x61, 0x62, (4 << 2) | 1, 3],
    [2, (5 << 2) | 1, 1],
    [255, 255, 255, 255, 15],
    [5, 0, 0x61],
    [3, 62 << 2, 0xff],
  ])
    expect(() => unsnappy(Buffer.from(hostile))).toThrow();
});

test('a Snappy literal with a negative 32-bit length is rejected in less than a second', () => {
  const start = performance.now();
  const hostile = Buffer.from([10, 63 << 2, 0, 0, 0, 0x90, 1, 2, 3, 4]);
  expect(() => createUnsnappy(100)(hostile)).toThrow('missing eof marker');
  expect(performance.now() - start).toBeLessThan(1000);
});

test('a Snappy block that declares more bytes than the limit is rejected', () => {
  expect(() => createUnsnappy(4)(Buffer.from([5, 4 << 2, 1, 2, 3, 4, 5]))).toThrow('more than 4 bytes');
});
