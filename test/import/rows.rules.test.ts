import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { DuckDBInstance } from '@duckdb/node-api';
import { describe, expect, test } from 'vitest';
import { parseMap } from '../../src/import/mapping.ts';
import { splitRecord } from '../../src/import/reader.ts';
import { fileOf, readRows } from './scene.ts';

describe('a CSV file', () => {
  test('of users needs no UPDATED_AT: a column is the field of its name, or a custom attribute', async () => {
    const file = fileOf(
      'users.csv',
      'external_id,email,first_name,plan\r\nada,ada@example.com,Ada,pro\r\nalan,,Alan,\r\n',
    );
    const { sent, refused } = await readRows(file);
    expect(sent).toEqual([
      { external_id: 'ada', email: 'ada@example.com', first_name: 'Ada', plan: 'pro' },
      { external_id: 'alan', first_name: 'Alan' },
    ]);
    expect(refused).toEqual([]);
  });

  test('columns become the fields that --map names, and --ignore omits some', async () => {
    const file = fileOf('users.csv', 'Customer No,mail,zip,notes,plan\n7,a@example.com,01067,secret,pro\n');
    const { sent } = await readRows(file, {
      map: 'external_id=Customer No,email=mail,postcode=zip:text',
      ignore: ['notes'],
    });
    expect(sent).toEqual([{ external_id: '7', email: 'a@example.com', postcode: '01067', plan: 'pro' }]);
  });

  test('values of custom attributes are typed by their form, unless a type is named', async () => {
    const header = 'external_id,n,z,b,l,o,t,v,first_name\n';
    const file = fileOf('users.csv', `${header}1,12.5,007,TRUE,"[""a"",1]","{""x"":2}",[no,1.10,12\n`);
    const { sent } = await readRows(file, { map: 'v=v:text' });
    expect(sent).toEqual([
      {
        ...{ external_id: '1', n: 12.5, z: '007', b: true, l: ['a', 1], o: { x: 2 }, t: '[no', v: '1.10' },
        first_name: '12',
      },
    ]);
  });

  test("a value that does not match its column's type rejects the row, with field and column", async () => {
    const file = fileOf('users.csv', 'external_id,Age\n1,old\n2,33\n');
    const { sent, refused } = await readRows(file, { map: 'age=Age:number' });
    expect(sent).toEqual([{ external_id: '2', age: 33 }]);
    expect(refused).toEqual([
      {
        row: 1,
        field: 'age',
        reason: expect.stringMatching(
          /^'age' is not valid: 'old' in the column Age is not of the type number: write it as 12.5/,
        ),
      },
    ]);
  });

  test('of events: other columns become properties', async () => {
    const file = fileOf(
      'events.csv',
      'user;name;time;plan;properties.seats\nada;bought;2026-01-31T12:00:00Z;pro;3\n',
    );
    const { sent, accepted } = await readRows(file, { type: 'events', map: 'external_id=user' });
    expect(sent).toEqual([
      {
        external_id: 'ada',
        name: 'bought',
        time: '2026-01-31T12:00:00Z',
        properties: { plan: 'pro', seats: 3 },
      },
    ]);
    expect(accepted).toMatchObject([{ kind: 'events', name: 'bought', index: 0 }]);
  });

  test('of purchases and of subscription states', async () => {
    const purchases = fileOf(
      'p.csv',
      'external_id,product_id,currency,price,quantity,time\nada,007,eur,12.50,2,2026-01-31T12:00:00Z\n',
    );
    expect((await readRows(purchases, { type: 'purchases' })).accepted).toMatchObject([
      { kind: 'purchases', product_id: '007', currency: 'EUR', price: 12.5, quantity: 2 },
    ]);
    const group = '019c13ec-a2e2-7b61-8f0c-55a3d7000001';
    const states = fileOf(
      's.csv',
      `email,subscription_group_id,subscription_state\na@example.com,${group},subscribed\nb@example.com,${group},maybe\n`,
    );
    const { accepted, refused } = await readRows(states, { type: 'subscriptions' });
    expect(accepted).toMatchObject([
      { kind: 'group_state', identifier: { email: 'a@example.com' }, index: 0 },
    ]);
    expect(refused).toEqual([
      {
        row: 2,
        field: 'subscription_state',
        reason: "'subscription_state' must be 'subscribed' or 'unsubscribed'",
      },
    ]);
  });

  test('a user alias has two columns', async () => {
    const file = fileOf('users.csv', 'alias_name,alias_label,plan\nada,crm,pro\n');
    expect((await readRows(file)).sent).toEqual([
      { user_alias: { alias_name: 'ada', alias_label: 'crm' }, plan: 'pro' },
    ]);
  });

  test('quotes, line breaks within them, and a byte order mark follow RFC 4180', async () => {
    const file = fileOf(
      'users.csv',
      '\ufeff"external_id","note, long"\r\n"a","x, ""y""\r\nz"\r\nb, "s" \r\n',
    );
    expect((await readRows(file)).sent).toEqual([
      { external_id: 'a', 'note, long': 'x, "y"\r\nz' },
      { external_id: 'b', 'note, long': 's' },
    ]);
  });

  test('a row with too many or too few values is rejected alone', async () => {
    const file = fileOf('users.csv', 'external_id,plan\na,1\nb\nc,1,2\n"d"x,1\ne,2\n');
    const { sent, refused } = await readRows(file);
    expect(sent).toEqual([
      { external_id: 'a', plan: 1 },
      { external_id: 'e', plan: 2 },
    ]);
    expect(refused.map(({ row, reason }) => [row, reason])).toEqual([
      [
        2,
        "the row has 1 values, but the header has 2 columns; quote values that contain ',' or a line break",
      ],
      [
        3,
        "the row has 3 values, but the header has 2 columns; quote values that contain ',' or a line break",
      ],
      [4, 'there is text after a closing quote; double each quote inside a quoted value'],
    ]);
  });

  test.each([
    ['twice the same name', 'external_id,plan,plan\n', 'the header has the column plan twice'],
    ['a column without a name', 'external_id,,x\n', 'column 2 of the header has no name'],
    ['nobody', 'plan,seats\n1,2\n', 'has no column with an identifier'],
    ['nothing', '\n\n', 'the header cannot be read: the file has no rows'],
  ])('a header with %s rejects the file', async (_, content, rule) => {
    const file = fileOf('users.csv', content);
    await expect(readRows(file)).rejects.toThrow(rule);
    await expect(readRows(file)).rejects.toThrow('users.csv');
  });

  test('--map and --ignore must name existing columns, and a field has one column', async () => {
    const file = fileOf('users.csv', 'id,mail,email\n1,a,b\n');
    await expect(readRows(file, { map: 'external_id=ID' })).rejects.toThrow(
      'has no column ID; the columns are id, mail, email',
    );
    await expect(readRows(file, { ignore: ['x'] })).rejects.toThrow('has no column x');
    const map = 'external_id=id,email=mail,email=email';
    await expect(readRows(file, { map })).rejects.toThrow(
      'the columns mail and email map to the same field email',
    );
    const events = { type: 'events', map: 'external_id=id' } as const;
    await expect(readRows(file, events)).rejects.toThrow(
      "has no column for 'name', which is required for events",
    );
  });
});

describe('an NDJSON file', () => {
  test('has an API object on each line, and may have empty lines', async () => {
    const file = fileOf(
      'users.ndjson',
      '{"external_id":"a","n":1}\r\n\n{"external_id":"b","logins":{"inc":1}}',
    );
    const { sent, accepted } = await readRows(file, { layout: 'ndjson' });
    expect(sent).toEqual([
      { external_id: 'a', n: 1 },
      { external_id: 'b', logins: { inc: 1 } },
    ]);
    expect(accepted).toMatchObject([{ index: 0 }, { index: 2 }]);
  });

  test('members become the fields that --map names', async () => {
    const file = fileOf('users.ndjson', '{"id":7,"mail":"a@example.com","x":[1]}\n');
    const { sent } = await readRows(file, { layout: 'ndjson', map: 'external_id=id:text,email=mail' });
    expect(sent).toEqual([{ external_id: '7', email: 'a@example.com', x: [1] }]);
  });

  test('a line that is not an object is rejected by number, like an object of the API', async () => {
    const file = fileOf('users.ndjson', '{"external_id":"a"}\n[1]\nnot json\n{"email":"none"}\n{"n":1}\n');
    const { refused } = await readRows(file, { layout: 'ndjson' });
    expect(refused.map(({ row, field }) => [row, field])).toEqual([
      [2, null],
      [3, null],
      [4, 'email'],
      [5, 'external_id'],
    ]);
    expect(refused[0]!.reason).toBe('the line is not a JSON object; write one JSON object per line');
    expect(refused[1]!.reason).toMatch(/^the line is not valid JSON: /);
  });

  test('an unknown group is an error of the field that names it', async () => {
    const group = '7b1f6a5e-4a3d-4c9e-8f6b-0d2f4c1a9e11';
    const file = fileOf(
      'states.ndjson',
      `{"external_id":"a","subscription_group_id":"${group}","subscription_state":"subscribed"}\n`,
    );
    const { refused } = await readRows(file, {
      ...{ layout: 'ndjson', type: 'subscriptions' },
      caller: { hasGroup: () => false, channelOf: () => undefined },
    });
    expect(refused).toMatchObject([
      { field: 'subscription_group_id', reason: 'Invalid subscription group ID' },
    ]);
  });
});

test('a file compressed by gzip is read by its content, whatever its name', async () => {
  const packed = gzipSync('external_id\na\nb\n');
  const file = fileOf('users.csv', Buffer.concat([packed.subarray(), gzipSync('c\n')]));
  expect((await readRows(file)).sent).toEqual(['a', 'b', 'c'].map((external_id) => ({ external_id })));
});

test('an unreadable mapping is rejected', () => {
  expect(parseMap('a=b, c = d:e:number')).toEqual([
    { field: 'a', column: 'b', reading: undefined },
    { field: 'c', column: 'd:e', reading: 'number' },
  ]);
  for (const text of ['a', '=b', 'a=', 'a=b,,c=d']) expect(() => parseMap(text)).toThrow('is not a mapping');
});

test('a record is split only at its delimiter', () => {
  expect(splitRecord('a,"b,""c""",,"",d', ',')).toEqual(['a', 'b,"c"', '', '', 'd']);
  expect(splitRecord('"a",', ',')).toEqual(['a', '']);
  expect(splitRecord('in "the" middle,x', ',')).toEqual(['in "the" middle', 'x']);
});

test('a Parquet file: its columns are fields, and null is omitted', async () => {
  const file = await parquetOf(`
    select 'user' || n as external_id, 'a@example.com' as email, n * 1.5 as score, case when n = 2 then null else true end as active,
      timestamp '2026-01-31 12:00:00' as seen, [1, n] as list, {'a': 'b'} as place
    from range(3) as numbers (n)`);
  const { sent, accepted } = await readRows(file, { layout: 'parquet', map: 'rating=score' });
  expect(sent[0]).toEqual({
    ...{ external_id: 'user0', email: 'a@example.com', rating: 0, active: true },
    ...{ seen: '2026-01-31 12:00:00', list: [1, 0], place: { a: 'b' } },
  });
  expect(sent[2]).not.toHaveProperty('active');
  expect(accepted).toMatchObject([{ index: 0 }, { index: 1 }, { index: 2 }]);
});

test('a Parquet file of events: timestamps are times, other columns properties', async () => {
  const file = await parquetOf(`
    select 7 as external_id, 'bought' as name, timestamptz '2026-01-31 12:00:00+00' as time, 'pro' as plan,
      '{"seats":3}' as properties`);
  const { accepted, refused } = await readRows(file, { type: 'events', layout: 'parquet' });
  expect(refused).toEqual([]);
  expect(accepted).toMatchObject([
    {
      identifier: { external_id: '7' },
      time: '2026-01-31T12:00:00.000Z',
      properties: { plan: 'pro', seats: 3 },
    },
  ]);
});

test('the rows of a Parquet file are read in order, also from many groups', async () => {
  const file = await parquetOf(
    "select 'u' || n as external_id from range(20000) as numbers (n)",
    'row_group_size 5000',
  );
  const { sent } = await readRows(file, { layout: 'parquet' });
  expect(sent).toEqual(Array.from({ length: 20_000 }, (_, n) => ({ external_id: `u${n}` })));
});

test('a file compressed by Zstandard is read by its content; a truncated one is rejected', async () => {
  const select = "select 'u' || n as external_id, repeat('x', 50) || n as x from range(20000) as numbers (n)";
  const file = await written('users.csv.zst', select, 'format csv, header true, compression zstd');
  const { sent, refused } = await readRows(file);
  expect(refused).toEqual([]);
  expect(sent).toHaveLength(20_000);
  expect(sent[19_999]).toEqual({ external_id: 'u19999', x: `${'x'.repeat(50)}19999` });
  const packed = readFileSync(file);
  const cut = fileOf('cut.csv.zst', packed.subarray(0, packed.length - 1000));
  await expect(readRows(cut)).rejects.toThrow('it cannot be decompressed');
  const wide = Buffer.from(packed);
  wide[4] = wide[4]! & ~0x20;
  wide[5] = 31 << 3;
  await expect(readRows(fileOf('wide.csv.zst', wide))).rejects.toThrow('decompression takes more than');
});

const parquetOf = (select: string, options = '') =>
  written('rows.parquet', select, `format parquet${options && `, ${options}`}`);

/** Writes the result of a select to a file with DuckDB. */
async function written(name: string, select: string, options: string): Promise<string> {
  const file = fileOf(name, '');
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  await connection.run(`copy (${select}) to '${file}' (${options})`);
  connection.closeSync();
  instance.closeSync();
  return file;
}
