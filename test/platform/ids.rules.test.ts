import { afterEach, expect, test, vi } from 'vitest';
import { newId } from '../../src/platform/ids.ts';

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/;
const timeOf = (id: string) => Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);

afterEach(() => vi.useRealTimers());

test('ids are UUIDv7 of the time of their creation', () => {
  const from = Date.now();
  const id = newId();
  expect(id).toMatch(UUID_V7);
  expect(timeOf(id)).toBeGreaterThanOrEqual(from);
  expect(timeOf(id)).toBeLessThanOrEqual(Date.now());
});

test('ids of a process are ordered, also within a millisecond and after a clock reset', () => {
  vi.useFakeTimers({ now: Date.now() + 1000 });
  const ids = Array.from({ length: 70_000 }, () => newId());
  vi.setSystemTime(Date.now() - 60_000);
  ids.push(newId(), newId());
  expect(ids.every((id) => UUID_V7.test(id))).toBe(true);
  expect(ids.every((id, index) => index === 0 || ids[index - 1]! < id)).toBe(true);
});

test('ids of processes that start alike differ in their random bits', async () => {
  vi.useFakeTimers({ now: Date.now() + 120_000 });
  const one = newId();
  vi.resetModules();
  const other = (await import('../../src/platform/ids.ts')).newId();
  expect(timeOf(one)).toBe(timeOf(other));
  expect(one.slice(-14)).not.toBe(other.slice(-14));
});
