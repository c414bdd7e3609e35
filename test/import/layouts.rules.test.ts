import { describe, expect, test } from 'vitest';
import { createMapping, type MappingRules, parseMap } from '../../src/import/mapping.ts';
import { openInput } from '../../src/import/open-input.ts';
import { createRowValidator, mapRows, validateRows } from '../../src/import/rows.ts';
import { callerOf } from '../operations/caller.ts';
import { fileOf, readRows, zipOf } from './scene.ts';

describe('the line breaks of a CSV file', () => {
  test.each([
    ['CR alone', 'external_id,plan\rada,pro\ralan,free\r'],
    ['CR alone without one at the end', 'external_id,plan\rada,pro\ralan,free'],
    ['CR LF with a stray CR after a row', 'external_id,plan\r\nada,pro\r\r\nalan,free\r\n'],
    ['all three kinds', 'external_id,plan\rada,pro\r\nalan,free\n'],
  ])('%s end its rows', async (_, content) => {
    const { sent, refused } = await readRows(fileOf('users.csv', content));
    expect(sent).toEqual([
      { external_id: 'ada', plan: 'pro' },
      { external_id: 'alan', plan: 'free' },
    ]);
    expect(refused).toEqual([]);
  });

  test('a stray CR within a row splits the row into two rejected ones, and values omit the CR', async () => {
    const { sent, refused } = await readRows(
      fileOf('users.csv', 'external_id,city,plan\r\nada,Lon\rdon,pro\r\nalan,"Ro\rme",free\r\n'),
    );
    expect(sent).toEqual([{ external_id: 'alan', city: 'Ro\rme', plan: 'free' }]);
    expect(refused.map(({ row }) => row)).toEqual([1, 2]);
    expect(refused[0]!.reason).toContain("quote values that contain ',' or a line break");
  });

  test('CR alone ends the lines of an NDJSON file as well', async () => {
    const file = fileOf('users.ndjson', '{"external_id":"a"}\r{"external_id":"b"}\r');
    expect((await readRows(file, { layout: 'ndjson' })).sent).toHaveLength(2);
  });
});

test.each([
  ['external_id,plan\n', 'users.csv has a header but no rows'],
  ['external_id,plan\r\n\r\n', 'users.csv has a header but no rows'],
])('a CSV file with a header and no rows (%j) is rejected with its cause', async (content, rule) => {
  await expect(readRows(fileOf('users.csv', content))).rejects.toThrow(rule);
});

test('an NDJSON file of empty lines is rejected with its cause', async () => {
  const reading = readRows(fileOf('users.ndjson', '\n\n'), { layout: 'ndjson' });
  await expect(reading).rejects.toThrow('users.ndjson has no rows');
});

test('an archive is read although one of its files has only a header', async () => {
  const zip = zipOf([
    { name: '1.csv', content: 'external_id\n' },
    { name: '2.csv', content: 'external_id\nada\n' },
  ]);
  expect((await readRows(fileOf('users.zip', zip))).sent).toEqual([{ external_id: 'ada' }]);
});

describe('the delimiter of a CSV file', () => {
  test.each([
    ['named in the line sep=;', 'sep=;\r\nexternal_id;note\r\nada;a,b,c\r\n'],
    ['named in a quoted line', '"sep=;"\nexternal_id;note\nada;a,b,c\n'],
    ['named in a line after a byte order mark', '\ufeffsep=;\nexternal_id;note\nada;a,b,c\n'],
    ['a tab that a line names', 'sep=\t\nexternal_id\tnote\nada\ta,b,c\n'],
    ['another character that a line names', 'SEP=^\nexternal_id^note\nada^a,b,c\n'],
  ])('is %s', async (_, content) => {
    expect((await readRows(fileOf('users.csv', content))).sent).toEqual([
      { external_id: 'ada', note: 'a,b,c' },
    ]);
  });

  test('rows below a separator line are counted from the header, and lines from the beginning', async () => {
    const refused = await refusedRows('sep=;\nexternal_id;plan\nada;pro\nbob\n');
    expect(refused).toMatchObject([{ row: 2, line: 4 }]);
  });

  test('is not a character that only occurs within quotes of the header', async () => {
    const content = 'external_id,"note; with; semicolons; in; it"\nada,x\n';
    expect((await readRows(fileOf('users.csv', content))).sent).toEqual([
      { external_id: 'ada', 'note; with; semicolons; in; it': 'x' },
    ]);
  });

  test('is found next to a quote that is a character of a name', async () => {
    const content = 'external_id;5" wide;note\nada;1;x\n';
    expect((await readRows(fileOf('users.csv', content))).sent).toEqual([
      { external_id: 'ada', '5" wide': 1, note: 'x' },
    ]);
  });
});

describe('a column without a name', () => {
  const content = ',external_id,plan,\n0,ada,pro,\n1,alan,free,\n';

  test.each([
    ['by an empty name', ['']],
    ['by its number', ['#1', '#4']],
  ])('is ignored with --ignore %s', async (_, ignore) => {
    expect((await readRows(fileOf('users.csv', content), { ignore })).sent).toEqual([
      { external_id: 'ada', plan: 'pro' },
      { external_id: 'alan', plan: 'free' },
    ]);
  });

  test('rejects the file without --ignore, with the remedy', async () => {
    await expect(readRows(fileOf('users.csv', content), { ignore: ['#1'] })).rejects.toThrow(
      "column 4 of the header has no name; name it, or ignore it with --ignore '#4'",
    );
  });
});

test.each([
  ['a pretty-printed JSON array', '[\n  {\n    "external_id": "ada"\n  }\n]\n', 'is a JSON array'],
  [
    'a JSON array of an object per line',
    '[{"external_id":"ada"},\n{"external_id":"b"}]\n',
    'is a JSON array',
  ],
  ['an array after a byte order mark and white space', '\ufeff [1]\n', 'is a JSON array'],
  ['a pretty-printed object', '{\n  "external_id": "ada"\n}\n', 'a JSON object spans several lines'],
])('%s is rejected as a whole, with line and remedy', async (_, content, rule) => {
  const reading = readRows(fileOf('users.json', content), { layout: 'ndjson' });
  await expect(reading).rejects.toThrow(rule);
  await expect(reading).rejects.toThrow(/users\.json, line 1: .* jq -c /);
});

describe('columns whose names differ from a field only in their case', () => {
  const rules = (type: MappingRules['type'], map: string): MappingRules => ({
    ...{ type, map: parseMap(map), ignore: [], layout: 'csv', serviceIdField: 'service_id' },
  });

  test('are reported with --map, each with the option that makes it the field', () => {
    const columns = ['EXTERNAL_ID', 'EMAIL', 'First_Name', 'PLAN', 'phone', 'PHONE'];
    const { warnings } = createMapping(rules('users', 'external_id=EXTERNAL_ID'), columns, 'users.csv');
    expect(warnings).toEqual([
      'the column EMAIL becomes the custom attribute EMAIL, since names of fields are in lower case; if it is the field email, use --map email=EMAIL',
      expect.stringContaining('use --map first_name=First_Name'),
    ]);
  });

  test('are reported for events, of which they become properties', () => {
    const columns = ['external_id', 'name', 'time', 'APP_ID'];
    const { warnings } = createMapping(rules('events', 'x=y'), columns.concat('y'), 'events.csv');
    expect(warnings).toEqual([expect.stringContaining('becomes the property APP_ID')]);
  });
});

test.each([
  [
    'an Excel workbook',
    zipOf([
      { name: '[Content_Types].xml', content: '<x/>' },
      { name: 'xl/workbook.xml', content: '<x/>' },
    ]),
  ],
  ['an Excel workbook (.xls)', Buffer.from('d0cf11e0a1b11ae1', 'hex')],
  [
    'an OpenDocument file',
    zipOf([
      { name: 'mimetype', content: 'x' },
      { name: 'content.xml', content: '<x/>' },
    ]),
  ],
  ['an Office document', zipOf([{ name: 'word/document.xml', content: '<x/>' }])],
  ['a PDF document', Buffer.from('%PDF-1.7\n')],
  ['compressed with bzip2', Buffer.from('BZh91AY&SY')],
  ['compressed with xz', Buffer.from('fd377a585a00', 'hex')],
  ['a tar archive', Buffer.concat([Buffer.alloc(257), Buffer.from('ustar')])],
  ['an HTML page', Buffer.from('\n<!DOCTYPE html>\n<html>')],
])('a file named .csv that is %s is reported as such', async (what, bytes) => {
  await expect(readRows(fileOf('users.csv', bytes))).rejects.toThrow(`users.csv is ${what}`);
});

test('a rejected row has file, row, line, column, field, value, reason and text', async () => {
  const content = 'id,"Mail",note\nada,ada@example.com,"two\nlines"\nbob,nobody,x\ncy,cy@example.com\n';
  const refused = await refusedRows(content, 'external_id=id,email=Mail');
  expect(refused).toEqual([
    {
      ...{ file: expect.stringContaining('users.csv'), row: 2, line: 4, column: 'Mail', field: 'email' },
      ...{ value: 'nobody', text: 'bob,nobody,x' },
      reason: "The value provided for the 'email' field is not a valid email.",
    },
    {
      ...{ file: expect.stringContaining('users.csv'), row: 3, line: 5, column: null, field: null },
      ...{ value: null, text: 'cy,cy@example.com' },
      reason:
        "the row has 2 values, but the header has 3 columns; quote values that contain ',' or a line break",
    },
  ]);
});

test('a number of a CSV file keeps its digits: it stays a text if a double would lose some', async () => {
  const content = 'external_id,a,b,c,d\nada,123456789012345.5,0.1234567890123456,19.90,١٢\n';
  expect((await readRows(fileOf('users.csv', content))).sent).toEqual([
    { external_id: 'ada', a: '123456789012345.5', b: '0.1234567890123456', c: 19.9, d: '١٢' },
  ]);
});

test.each([
  ['an integer beyond 2^53 - 1', '12345678901234567890'],
  ['two decimal points', '1.2.3e5'],
  ['full-width digits', '\uff11\uff12'],
  ['a comma', '1,5'],
])('a column read as a number rejects %s with the remedy', async (_, value) => {
  const { refused } = await readRows(fileOf('users.csv', `external_id;n\nada;${value}\n`), {
    map: 'n=n:number',
  });
  expect(refused).toMatchObject([
    { field: 'n', reason: expect.stringContaining('or read the column as text') },
  ]);
});

/** Returns the rejected rows of a CSV file of users. */
async function refusedRows(content: string, map = '') {
  const validateRow = createRowValidator({
    serviceIdField: 'service_id',
    longStrings: 'cut',
    updateExistingOnly: false,
  });
  const input = await openInput(fileOf('users.csv', content), { scratchBytes: 1_000_000 });
  const options = {
    ...({ type: 'users', layout: 'csv', ignore: [], delimiter: undefined, vendor: undefined } as const),
    ...{ map: map === '' ? [] : parseMap(map), serviceIdField: 'service_id' },
  };
  const refused = [];
  for await (const rows of mapRows({ input, options }))
    refused.push(
      ...validateRows(rows, validateRow, callerOf('019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f')).refused,
    );
  await input.close();
  return refused;
}
