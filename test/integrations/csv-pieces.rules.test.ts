import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createRecordScanner } from '../../src/integrations/csv-scanner.ts';
import { cutCsv } from '../../src/integrations/files/csv.ts';
import { temporaryFolder } from '../setup/left-behind.ts';

const header = 'external_id,updated_at,payload\r\n';
const records = [
  'a,1,"x\r\n""y"\r\n',
  'b,2,"broken"z "\r\n',
  'c,3,in "the" middle\r\n',
  'd,4, "s" \r\n',
  '"e",5,""\r\n',
];

/** As much as is wanted. */
const room = { take: async () => {}, drop: async (file: string) => rmSync(file) };

function fileOf(text: string) {
  const file = path.join(temporaryFolder('penstock-pieces-'), '0.csv');
  writeFileSync(file, text);
  return { name: 'rows.csv', path: file };
}

test('records end where they end, wherever the bytes are parted', () => {
  const bytes = Buffer.from(header + records.join(''));
  const expected = [header, ...records].map((_, index, all) => all.slice(0, index + 1).join('').length);
  for (let size = 1; size <= bytes.length; size += 1) {
    const scanner = createRecordScanner(',');
    const ends: number[] = [];
    for (let at = 0; at < bytes.length; at += size) {
      scanner.scan(bytes.subarray(at, at + size), (end) => ends.push(at + end));
    }
    expect(ends).toEqual(expected);
    expect(scanner.open()).toBeUndefined();
  }
});

test('pieces make the file again, each with its header and the records before it', async () => {
  const many = Array.from({ length: 200_000 }, (_, index) => records[index % records.length]!);
  const file = fileOf(header + many.join(''));
  const pieces = await cutCsv(file, room, { pieceBytes: 1_000_000 });
  expect(pieces.length).toBeGreaterThan(1);
  const texts = pieces.map((piece) => readFileSync(piece.path, 'utf8'));
  for (const text of texts) expect(text.startsWith(header)).toBe(true);
  expect(texts.map((text) => text.slice(header.length)).join('')).toBe(many.join(''));
  pieces.forEach(({ recordsBefore }, index) => {
    const before = texts.slice(0, index).map((text) => text.slice(header.length));
    expect(many.slice(0, recordsBefore).join('')).toBe(before.join(''));
  });
});

test('lines that end in CR alone stay in one piece', async () => {
  const file = fileOf(`updated_at,payload\r${'1,x\r'.repeat(500_000)}`);
  expect(await cutCsv(file, room, { pieceBytes: 1000 })).toEqual([{ ...file, recordsBefore: 0 }]);
});
