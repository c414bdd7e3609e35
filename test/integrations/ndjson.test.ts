import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { temporaryFolder } from '../setup/left-behind.ts';
import { readAll, type Stocked } from './warehouses.ts';

const at = '2026-01-01T00:00:00.000000Z';

function ndjson(lines: (string | Buffer)[]): Stocked {
  const folder = temporaryFolder('penstock-ndjson-');
  const text = Buffer.concat(lines.flatMap((line) => [Buffer.from(line), Buffer.from('\n')]));
  writeFileSync(path.join(folder, 'rows.ndjson'), text);
  return { definition: { type: 'folder', path: folder, format: 'ndjson' } };
}

test('a payload may be an object or its text, and integers keep all their digits', async () => {
  const rows = await readAll(
    ndjson([
      `{"external_id": 12345678901234567890123, "updated_at": "${at}", "payload": {"n": 12345678901234567890, "t": "a\\nb"}}`,
      `{"external_id": "b", "updated_at": "${at}", "payload": "{\\"n\\": 1.10}"}`,
    ]),
  );
  rows.sort((one, other) => (one.identifiers.external_id! < other.identifiers.external_id! ? -1 : 1));
  expect(rows).toEqual([
    {
      updatedAt: at,
      identifiers: { external_id: '12345678901234567890123' },
      payload: '{"n":12345678901234567890,"t":"a\\nb"}',
    },
    { updatedAt: at, identifiers: { external_id: 'b' }, payload: '{"n": 1.10}' },
  ]);
});

test('a line that is not a JSON object is unreadable, with file and text; others are read', async () => {
  const rows = await readAll(
    ndjson([
      '{"external_id": "a", "updated_at"',
      '[1]',
      '"text"',
      `{"external_id": "b", "updated_at": "${at}"}\r`,
      '',
      '   ',
      `{"external_id": "c\\ud800", "updated_at": "${at}"}`,
      Buffer.concat([Buffer.from('{"external_id": "d'), Buffer.from([0xe9]), Buffer.from('"}')]),
      `{"external_id": "e\u0001", "updated_at": "${at}"}`,
    ]),
  );
  expect(rows.flatMap(({ identifiers }) => identifiers.external_id ?? [])).toEqual(['b']);
  const broken = rows.flatMap(({ unreadable }) => unreadable ?? []);
  expect(broken).toHaveLength(6);
  expect(broken.every((text) => text.includes('rows.ndjson'))).toBe(true);
  expect(broken.join('\n')).toMatch(/rows\.ndjson: no JSON object: \{"external_id": "a", "updated_at"$/m);
});

test('lines may spell columns in their own case, but a line with one column twice is an error', async () => {
  const rows = await readAll(
    ndjson([
      `{"EMAIL": "a@example.com", "Updated_At": "2026-01-01"}`,
      '{"email": "b@example.com", "UPDATED_AT": "2026-01-02"}',
    ]),
  );
  expect(rows.map(({ identifiers }) => identifiers.email)).toEqual(['a@example.com', 'b@example.com']);
  await expect(
    readAll(ndjson(['{"EMAIL": "a@example.com", "email": "b", "UPDATED_AT": "2026-01-01"}'])),
  ).rejects.toMatchObject({ reason: 'config' });
});

test('a number is not a time, and a line without UPDATED_AT has no time', async () => {
  const rows = await readAll(
    ndjson([
      '{"external_id": "a", "updated_at": 1767225600}',
      '{"external_id": "b"}',
      '{"external_id": "c", "updated_at": null}',
    ]),
  );
  const shown = new Map(rows.map(({ identifiers, unreadable }) => [identifiers.external_id, unreadable]));
  expect(shown).toEqual(
    new Map([
      ['a', '1767225600'],
      ['b', ''],
      ['c', ''],
    ]),
  );
});
