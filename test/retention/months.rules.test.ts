import { expect, test } from 'vitest';
import { firstKept, firstUntouched } from '../../src/retention/plan.ts';

const at = (database: string, process = database) => ({
  database: new Date(`${database}T12:00:00Z`),
  process: new Date(`${process}T12:00:00Z`),
});

test.each([
  ['2026-11-23', 1, '2026-10'],
  ['2026-03-31', 1, '2026-02'],
  ['2026-12-31', 12, '2025-12'],
  ['2026-01-01', 25, '2023-12'],
])('on %s with %i months the first kept month is %s', (day, months, kept) => {
  expect(firstKept(at(day), months)).toBe(kept);
});

test.each([
  ["this process's clock is ten years ahead", '2026-11-23', '2036-11-23', '2026-10'],
  ["Postgres's clock is ten years ahead", '2036-11-23', '2026-11-23', '2026-10'],
  ["this process's clock is behind", '2026-11-23', '2026-01-05', '2025-12'],
])('%s: the current and the previous month are kept', (_which, ...given) => {
  const [database, process, untouched] = given;
  expect(firstUntouched(at(database, process))).toBe(untouched);
  expect(firstKept(at(database, process), 1)).toBe(untouched);
});

test.each([0, -5, 0.2])('with %d months the current and the previous month are kept', (months) => {
  expect(firstKept(at('2026-11-23'), months)).toBe('2026-10');
});
