import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import {
  cleanUpLastWords,
  readLastWords,
  removeLastWords,
  writeLastWords,
} from '../../src/processes/last-words.ts';

const { TMPDIR: before } = process.env;
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'last-words-'));
  process.env.TMPDIR = folder;
});
afterEach(() => {
  if (before === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = before;
  rmSync(folder, { recursive: true });
});

const fileOf = (id: string) => path.join(folder, `penstock-${id}.end`);

test('the first line of the last error is stored and read until it is removed', () => {
  const id = newId();
  writeLastWords(id, new Error('out of memory\nin user 7'));
  expect(readLastWords(id)).toBe('out of memory');
  removeLastWords(id);
  expect([readLastWords(id), existsSync(fileOf(id))]).toEqual([undefined, false]);
});

test('an existing file or link is not overwritten by a last error', () => {
  const [id, linked] = [newId(), newId()];
  writeFileSync(fileOf(id), 'of another program');
  const target = path.join(folder, 'target');
  symlinkSync(target, fileOf(linked));
  for (const one of [id, linked]) writeLastWords(one, new Error('out of memory'));
  expect([readFileSync(fileOf(id), 'utf8'), existsSync(target)]).toEqual(['of another program', false]);
});

test('a last error is read from a regular file only, and at most 4 KB', () => {
  const [linked, nested, large] = [newId(), newId(), newId()];
  const target = path.join(folder, 'target');
  writeFileSync(target, 'secret');
  symlinkSync(target, fileOf(linked));
  mkdirSync(fileOf(nested));
  for (const id of [linked, nested]) expect(readLastWords(id)).toBeUndefined();
  writeFileSync(fileOf(large), 'x'.repeat(100_000));
  expect(readLastWords(large)).toHaveLength(4096);
  expect(() => removeLastWords(nested)).not.toThrow();
});

test('files with last errors are removed after an hour, and other files are kept', () => {
  const [old, recent] = [fileOf(newId()), fileOf(newId())];
  const other = path.join(folder, 'penstock-report.end');
  for (const file of [old, recent, other]) writeFileSync(file, 'out of memory');
  const past = new Date(Date.now() - 3_700_000);
  for (const file of [old, other]) utimesSync(file, past, past);
  cleanUpLastWords();
  expect([old, recent, other].map((file) => existsSync(file))).toEqual([false, true, true]);
});
