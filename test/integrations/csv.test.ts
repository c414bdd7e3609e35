import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { temporaryFolder } from '../setup/left-behind.ts';
import { readAll, type Stocked } from './warehouses.ts';

const header = 'EXTERNAL_ID,UPDATED_AT,PAYLOAD\n';
const at = '2026-01-01T00:00:00.000000Z';

function csv(text: string | Buffer, name = 'rows.csv'): Stocked {
  const folder = temporaryFolder('penstock-csv-');
  writeFileSync(path.join(folder, name), text);
  return { definition: { type: 'folder', path: folder, format: 'csv' } };
}

function idsOf(rows: Awaited<ReturnType<typeof readAll>>): (string | undefined)[] {
  return rows.map(({ identifiers }) => identifiers.external_id).filter((id) => id !== undefined);
}

function brokenOf(rows: Awaited<ReturnType<typeof readAll>>): string | undefined {
  return rows.find(({ unreadable }) => unreadable)?.unreadable;
}

test('a line with a wrong number of values or a broken quote is unreadable, and others are read', async () => {
  const rows = await readAll(
    csv(`${header}a,${at},{}\nb,${at}\nc,${at},{},more\nd,${at},"x"y"\ne,${at},{}\n`),
  );
  expect(idsOf(rows).sort()).toEqual(['a', 'e']);
  const broken = rows.flatMap(({ unreadable }) => unreadable ?? []);
  expect(broken).toHaveLength(3);
  expect(broken[0]).toMatch(/rows\.csv line 3: Expected Number of Columns: 3 Found: 2: b,/);
  expect(broken[1]).toMatch(/rows\.csv line 4: Expected Number of Columns: 3 Found: 4: c,/);
  expect(broken[2]).toMatch(/rows\.csv line 5: .*quote.*: d,/);
});

test('lines after a quote that is never closed are reported, and lines before it are read', async () => {
  const text = `${header}a,${at},"{""x"": ""\n""}"\nb,${at},"{}\nc,${at},{}\n`;
  const rows = await readAll(csv(text));
  expect(idsOf(rows)).toEqual(['a']);
  const opened = text.indexOf('"{}') + 1;
  expect(brokenOf(rows)).toMatch(new RegExp(`rows.csv: the quote at byte ${opened} is not closed`));
});

test('quotes that are closed, doubled, at the end of the file or padded count as closed', async () => {
  const rows = await readAll(
    csv(`${header}"a", ${at.trim()}, "{""b"":""""}" \n"b,",${at},5" wide\nc,${at},"{}"`),
  );
  expect(rows.flatMap(({ unreadable }) => unreadable ?? []).filter((text) => /quote/.test(text))).toEqual([]);
  expect(idsOf(rows).sort()).toEqual(['a', 'b,', 'c']);
});

test('a line in another encoding is unreadable; such a header is an error of configuration', async () => {
  const latin = (text: string) => Buffer.from(text, 'latin1');
  const rows = await readAll(csv(latin(`${header}café,${at},{}\nb,${at},{}\n`)));
  expect(idsOf(rows)).toEqual(['b']);
  expect(brokenOf(rows)).toMatch(/line 2: .*not utf-8/);
  await expect(readAll(csv(latin(`UPDATED_AT,café\n${at},x\n`)))).rejects.toThrow(
    /first line is not in UTF-8/,
  );
});

test('a line of more than 4 MiB is unreadable; payloads are read up to their maximum length', async () => {
  const rows = await readAll(
    csv(`${header}a,${at},"${'x'.repeat(5_000_000)}"\nb,${at},"${'y'.repeat(3_000_000)}"\n`),
  );
  expect(rows.at(-1)).toMatchObject({ identifiers: { external_id: 'b' }, payload: 'y'.repeat(1_048_577) });
  expect(brokenOf(rows)).toMatch(/line 2: Maximum line size/);
  expect(brokenOf(rows)!.length).toBeLessThanOrEqual(1000);
});

test.each([
  ['2026-01-02', '2026-01-02T00:00:00.000000Z'],
  ['2026-01-02 03:04', '2026-01-02T03:04:00.000000Z'],
  ['2026-01-02 03:04:05.678901', '2026-01-02T03:04:05.678901Z'],
  ['2026-01-02 03:04:05.123456 UTC', '2026-01-02T03:04:05.123456Z'],
  ['2026-01-02 03:04:05.123 +0530', '2026-01-01T21:34:05.123000Z'],
  ['2026-01-02T03:04:05-08', '2026-01-02T11:04:05.000000Z'],
  ['2024-02-29T00:00:00Z', '2024-02-29T00:00:00.000000Z'],
  ['9999-12-31T23:59:59.999999Z', '9999-12-31T23:59:59.999999Z'],
])('the time %s is read as %s', async (written, read) => {
  const [row] = await readAll(csv(`${header}a,${written},{}\n`));
  expect(row).toMatchObject({ updatedAt: read });
});

test.each([
  '1767225600',
  '1767225600000',
  '2026-02-29',
  '2026-1-2',
  '01/02/2026',
  '24:00',
  'epoch',
  'infinity',
  '0000-01-01',
  '2026-01-02T24:00:00Z',
  '9999-12-31T23:59:59-01:00',
  '0001-01-01T00:00:00+01:00',
])('%s is not a time', async (written) => {
  const rows = await readAll(csv(`${header}a,${written},{}\n`));
  expect(rows).toEqual([{ unreadable: written, identifiers: { external_id: 'a' }, payload: '{}' }]);
});

test.each([
  ['semicolons and a byte order mark', `\ufeff${header}a,${at},x\n`.replaceAll(',', ';')],
  ['tabs', `${header}a,${at},x\n`.replaceAll(',', '\t')],
  ['carriage returns', `${header}a,${at},x\n`.replaceAll('\n', '\r\n')],
  ['quoted names', `"EXTERNAL_ID","UPDATED_AT","PAYLOAD"\na,${at},x\n`],
  ['no line break at the end', `${header}a,${at},x`],
  ['blank lines', `${header}\na,${at},x\n\n`],
])('a file with %s is read', async (_, text) => {
  expect(await readAll(csv(text))).toEqual([
    { updatedAt: at, identifiers: { external_id: 'a' }, payload: 'x' },
  ]);
});

test.each([
  ['a file that begins with sep=;', `sep=;\nexternal_id;updated_at;payload\na;${at};{}\n`],
  ['a file whose lines end in CR alone', `external_id,updated_at,payload\ra,${at},{}\r`],
])('%s is read despite its form', async (_, text) => {
  expect(idsOf(await readAll(csv(text)))).toEqual(['a']);
});

test.each([
  ['an Excel workbook', Buffer.from('PK\x03\x04\x14\0', 'latin1'), 'a zip archive or an Excel workbook'],
  ['an HTML page', Buffer.from('<!DOCTYPE html><html></html>'), 'an HTML page'],
])('%s that is named .csv is reported as such in an error of the configuration', async (_, bytes, rule) => {
  await expect(readAll(csv(bytes))).rejects.toMatchObject({
    reason: 'config',
    message: expect.stringContaining(`rows.csv is ${rule}`),
  });
});

test('lines with different line ends are an error of the configuration', async () => {
  const reading = readAll(csv(`${header}a,${at},{}\r\nb,${at},{}\n`));
  await expect(reading).rejects.toMatchObject({
    reason: 'config',
    message: expect.stringMatching(/lines .* must have the same line ending/),
  });
});

test('a compressed file is read; a file that is only named .gz is an error', async () => {
  const rows = await readAll(csv(gzipSync(`${header}a,${at},{}\n`), 'rows.csv.gz'));
  expect(idsOf(rows)).toEqual(['a']);
  await expect(readAll(csv(header, 'rows.csv.gz'))).rejects.toMatchObject({ reason: 'config' });
});

test('files with columns in different order and case, and other columns, are one table', async () => {
  const folder = temporaryFolder('penstock-csv-');
  writeFileSync(path.join(folder, '1.csv'), `${header}a,2026-01-02,{}\n`);
  writeFileSync(path.join(folder, '2.csv'), 'updated_at,other,email\n2026-01-01,x,b@example.com\n');
  const rows = await readAll({ definition: { type: 'folder', path: folder, format: 'csv' } });
  expect(rows.map(({ identifiers }) => identifiers)).toEqual([
    { email: 'b@example.com' },
    { external_id: 'a' },
  ]);
});

test('a file of many pieces is read completely, and broken lines keep their numbers', async () => {
  const rows = 60_000;
  const broken = 50_000;
  const lines = Array.from({ length: rows }, (_, index) =>
    index === broken ? `broken,${at}\n` : `u${index},${at},"{""note"":\n\n""${'n,'.repeat(150)}""}"\n`,
  );
  const text = `${header + lines.join('')}last,${at},"never closed\n${'x\n'.repeat(1000)}`;
  for (const name of ['rows.csv', 'rows.csv.gz']) {
    const read = await readAll(csv(name.endsWith('.gz') ? gzipSync(text, { level: 1 }) : text, name));
    const ids = new Set(idsOf(read));
    expect(ids.size).toBe(rows - 1);
    expect(read).toHaveLength(rows + 1);
    const payloads = new Set(read.flatMap(({ payload }) => payload ?? []));
    expect([...payloads]).toEqual([`{"note":\n\n"${'n,'.repeat(150)}"}`]);
    const unreadable = read.flatMap((row) => row.unreadable ?? []);
    expect(unreadable[0]).toContain(`${name} line ${broken + 2}: Expected Number of Columns: 3 Found: 2`);
    expect(unreadable[1]).toContain(`${name}: the quote at byte ${text.lastIndexOf('"') + 1} is not closed`);
  }
}, 60_000);
