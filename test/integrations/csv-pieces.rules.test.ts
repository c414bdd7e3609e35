import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createRecordScanner } from '../../src/integrations/csv-scanner.ts';
import { cutCsv } from '../../src/integrations/files/csv.ts';
import { temporaryFolder } from '../setup/left-behind.ts';

test('each kind of line break outside quotes ends a record, wherever the bytes are split', () => {
  const lines = ['a,b\r', 'c,"x\ry"\r\n', 'd\n', '\r', '\r\n', '"broken"z\r', 'e'];
  const bytes = Buffer.from(lines.join(''));
  const expected = lines.slice(0, -1).map((_, index, all) => all.slice(0, index + 1).join('').length);
  // An LF that follows a CR belongs to its line break, so the lone CR before CR LF ends a record of its own.
  for (let size = 1; size <= bytes.length; size += 1) {
    const scanner = createRecordScanner(',');
    const ends: number[] = [];
    for (let at = 0; at < bytes.length; at += size)
      scanner.scan(bytes.subarray(at, at + size), (end) => ends.push(at + end));
    expect(ends).toEqual(expected);
  }
});

const header = 'external_id,updated_at,payload\r\n';
const records = [
  'a,1,"x\r\n""y"\r\n',
  'b,2,"broken"z "\r\n',
  'c,3,in "the" middle\r\n',
  'd,4, "s" \r\n',
  '"e",5,""\r\n',
];

/** Grants any amount of disk. */
const scratch = { take: async () => {}, drop: async (file: string) => rmSync(file) };

function fileOf(text: string) {
  const file = path.join(temporaryFolder('penstock-pieces-'), '0.csv');
  writeFileSync(file, text);
  return { name: 'rows.csv', path: file };
}

test('records end at the same bytes, wherever the input is split', () => {
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

test('pieces add up to the file, each with its header and the records before it', async () => {
  const many = Array.from({ length: 200_000 }, (_, index) => records[index % records.length]!);
  const file = fileOf(header + many.join(''));
  const pieces = await cutCsv(file, scratch, { pieceBytes: 1_000_000 });
  expect(pieces.length).toBeGreaterThan(1);
  const texts = pieces.map((piece) => readFileSync(piece.path, 'utf8'));
  for (const text of texts) expect(text.startsWith(header)).toBe(true);
  expect(texts.map((text) => text.slice(header.length)).join('')).toBe(many.join(''));
  pieces.forEach(({ recordsBefore }, index) => {
    const before = texts.slice(0, index).map((text) => text.slice(header.length));
    expect(many.slice(0, recordsBefore).join('')).toBe(before.join(''));
  });
});

test('a file whose lines end in CR alone is cut into pieces that add up to the file', async () => {
  const [head, row] = ['updated_at,payload\r', '1,x\r'];
  const pieces = await cutCsv(fileOf(head + row.repeat(500_000)), scratch, { pieceBytes: 1000 });
  const texts = pieces.map((piece) => readFileSync(piece.path, 'utf8'));
  expect(texts.length).toBeGreaterThan(1);
  expect(texts.map((text) => text.slice(head.length)).join('')).toBe(row.repeat(500_000));
  expect(pieces.at(-1)!.recordsBefore! * row.length).toBe(
    texts.slice(0, -1).reduce((sum, text) => sum + text.length - head.length, 0),
  );
});

test('pieces of a file that begins with a separator line begin with that line and the header', async () => {
  const head = 'sep=;\nupdated_at;payload\n';
  const pieces = await cutCsv(fileOf(head + '1;x,y\n'.repeat(500_000)), scratch, { pieceBytes: 1000 });
  expect(pieces.length).toBeGreaterThan(1);
  for (const { path } of pieces) expect(readFileSync(path, 'utf8').startsWith(head)).toBe(true);
});
