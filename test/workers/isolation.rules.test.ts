import { expect, test } from 'vitest';
import { createRandom } from '../../tools/load/random.ts';
import type { WorkItem } from '../../workers/batch/work-item.ts';
import { Isolation } from '../../workers/lane/isolation.ts';

const timeout = { code: '57014', severity: 'ERROR', message: 'statement timeout' };
const refusal = { code: '23514', severity: 'ERROR', message: 'refused' };
const conflict = { code: '40P01', severity: 'ERROR', message: 'deadlock' };
const unplannable = { code: '0A000', severity: 'ERROR', message: 'no plan' };
const lost = new Error('Connection terminated unexpectedly');

interface Run {
  deadLetters: number[];
  /** Number of failed and of successful batches. */
  failed: number;
  applied: number;
}

/**
 * Applies `count` objects of one workspace as a scheduler does, without Postgres.
 *
 * @param errorOf returns the error of an object, by its index
 * @param others whether the first batch also has objects of another workspace
 */
function run(count: number, errorOf: (index: number) => unknown, { others = false, most = 4000 } = {}): Run {
  let now = 0;
  const isolation = new Isolation(() => now);
  const result: Run = { deadLetters: [], failed: 0, applied: 0 };
  if (others) isolation.separate(['a', 'b']);
  for (let next = 0; next < count; ) {
    expect(result.failed + result.applied, 'number of batches').toBeLessThan(20_000);
    now += 1000;
    const objects = Math.min(count - next, most, isolation.maxObjects('a'));
    const poison = isolation.poisonOf('a');
    const indexes = Array.from({ length: objects }, (_, index) => next + index);
    const match = indexes.find((index) => errorOf(index) !== undefined && !poison.has(String(index)));
    const isRefused = (index: number) => errorOf(index) === refusal;
    if (
      match === undefined ||
      (isolation.hasSavepoints('a') && indexes.every((index) => !errorOf(index) || isRefused(index)))
    ) {
      result.deadLetters.push(...indexes.filter((index) => errorOf(index) !== undefined));
      result.applied++;
      next += objects;
      isolation.noteSuccess('a', objects);
      continue;
    }
    result.failed++;
    const item = { object: { id: String(next) } } as WorkItem;
    isolation.noteFailure('a', {
      error: errorOf(match),
      objects,
      ...(isolation.isTroubled('a') && { item }),
    });
  }
  expect(isolation.isApart('a')).toBe(false);
  return result;
}

test.each([
  ['times out', timeout],
  ['is refused', refusal],
  ['ends the connection', lost],
])('one object of 4,000 that %s becomes the only dead letter', (_, error) => {
  for (const bad of [0, 1, 1234, 3999]) {
    const { deadLetters, failed, applied } = run(4000, (index) => (index === bad ? error : undefined));
    expect(deadLetters).toEqual([bad]);
    // Three levels, each of at most 16 batches, and the attempts at the object alone.
    expect(applied).toBeLessThanOrEqual(3 * 16 + 1);
    expect(failed).toBeLessThanOrEqual(3 * 3 + 10);
  }
});

test('failing objects become dead letters in their order, and all others take effect', () => {
  for (let seed = 1; seed <= 60; seed++) {
    const random = createRandom(seed);
    const share = random() ** 2;
    const errors = Array.from({ length: 1 + Math.floor(random() * 900) }, () =>
      random() < share ? [timeout, refusal, lost][Math.floor(random() * 3)] : undefined,
    );
    const bad = errors.flatMap((error, index) => (error ? [index] : []));
    const { deadLetters } = run(errors.length, (index) => errors[index], {
      others: random() < 0.5,
      most: 500,
    });
    expect(deadLetters, `seed ${seed}`).toEqual(bad);
  }
});

test('1,500 refused objects need at most one failed batch for each 94 of them', () => {
  const { deadLetters, failed, applied } = run(1500, () => refusal);
  expect(deadLetters).toHaveLength(1500);
  expect({ failed, applied }).toEqual({ failed: 1 + 16, applied: 16 });
});

test.each([
  ['a conflict', conflict],
  ['a statement that cannot be planned', unplannable],
])('an object never becomes a dead letter by %s, and the objects before it take effect', (_, error) => {
  let now = 0;
  const isolation = new Isolation(() => now);
  let next = 0;
  for (let attempt = 0; attempt < 200; attempt++) {
    now += 1000;
    const objects = Math.min(100 - next, isolation.maxObjects('a'));
    expect(isolation.poisonOf('a').size).toBe(0);
    if (next + objects <= 50) {
      next += objects;
      isolation.noteSuccess('a', objects);
    } else isolation.noteFailure('a', { error, objects, item: { object: { id: String(next) } } as WorkItem });
  }
  expect(next).toBe(50);
  expect(isolation.maxObjects('a')).toBe(1);
});

test('a workspace that fails for a passing reason pauses for longer each time, up to one second', () => {
  let now = 0;
  const isolation = new Isolation(() => now);
  const pauses = Array.from({ length: 9 }, () => {
    isolation.letRest('a');
    const began = now;
    while (isolation.isResting('a')) now++;
    return now - began;
  });
  expect(pauses).toEqual([20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
  isolation.noteSuccess('a', 1);
  expect(isolation.isApart('a')).toBe(false);
});

test('a timeout of shared lanes makes batches smaller, and gives a single object more time', () => {
  const isolation = new Isolation();
  isolation.noteTimeout('a', 75);
  expect([isolation.maxObjects('a'), isolation.isTroubled('a')]).toEqual([18, false]);
  isolation.noteTimeout('a', 4);
  expect([isolation.maxObjects('a'), isolation.needsTime('a')]).toEqual([1, false]);
  isolation.noteTimeout('a', 1);
  expect(isolation.needsTime('a')).toBe(true);
  isolation.noteSuccess('a', 1);
  expect([isolation.maxObjects('a'), isolation.needsTime('a')]).toEqual([2, false]);
  for (let size = 2; size < 4000; size *= 2) isolation.noteSuccess('a', size);
  expect(isolation.isApart('a')).toBe(false);
});

test('the failures of a workspace do not concern another one', () => {
  const isolation = new Isolation();
  isolation.noteFailure('a', { error: timeout, objects: 100 });
  expect([isolation.isApart('b'), isolation.maxObjects('b'), isolation.isResting('b')]).toEqual([
    false,
    Number.POSITIVE_INFINITY,
    false,
  ]);
});

test('an object whose dead letter cannot be written is retried after a pause', () => {
  const isolation = new Isolation(() => 0);
  const item = { object: { id: 'x' } } as WorkItem;
  const fail = () => isolation.noteFailure('a', { error: timeout, objects: 1, item });
  expect([fail(), fail(), fail()]).toEqual(['retried', 'retried', 'poison']);
  expect(fail()).toBe('retried');
  isolation.noteSuccess('a', 1);
  expect(isolation.poisonOf('a').size).toBe(0);
});
