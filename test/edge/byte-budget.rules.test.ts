import { expect, onTestFinished, test, vi } from 'vitest';
import { ByteBudget } from '../../src/platform/byte-budget.ts';

const budget = () => new ByteBudget({ maxBytes: 100, maxPerOwner: 60, maxAnonymous: 20 });

test('an owner reserves up to its share, and all owners up to the limit', () => {
  const bytes = budget();
  expect(bytes.reserve(60, 'a')).toBeDefined();
  expect(bytes.reserve(1, 'a')).toBeUndefined();
  expect(bytes.reserve(21)).toBeDefined();
  expect(bytes.reserve(1)).toBeUndefined();
  expect(bytes.reserve(20, 'b')).toBeDefined();
  expect(bytes.reserve(1, 'c')).toBeUndefined();
  expect(bytes.held).toBe(100);
});

test('a reservation larger than the share of its owner counts as the share', () => {
  const bytes = budget();
  const whole = bytes.reserve(1000, 'a')!;
  expect(bytes.held).toBe(60);
  whole.grow(-1000);
  expect(bytes.held).toBe(0);
});

test('a reservation grows while there is room, and returns each byte once', () => {
  const bytes = budget();
  const one = bytes.reserve(10, 'a')!;
  expect(one.grow(50)).toBe(true);
  expect(one.grow(1)).toBe(false);
  one.release();
  one.release();
  expect(one.grow(-5)).toBe(true);
  expect([bytes.held, bytes.heldBy('a')]).toEqual([0, 0]);
});

test('bytes that are in memory already count above the limit', () => {
  const bytes = budget();
  const { release } = bytes.count(500, 'a');
  expect([bytes.held, bytes.hasRoom(0, 'b')]).toEqual([500, false]);
  release();
  expect(bytes.hasRoom(0, 'b')).toBe(true);
});

/** Records in which order the callers of `reserveInTurn` were admitted. */
function line(settings: { maxWaiting: number; patience: number }) {
  const bytes = new ByteBudget({ maxBytes: 100, ...settings });
  const admitted: string[] = [];
  const enter = (name: string, amount: number, gone = new AbortController().signal) => {
    const entered = bytes.reserveInTurn(amount, gone);
    void entered.then(
      (reservation) => reservation && admitted.push(name),
      () => {},
    );
    return entered;
  };
  return { bytes, admitted, enter };
}

test('callers that wait are admitted in their order, also if a later one would fit', async () => {
  const { bytes, admitted, enter } = line({ maxWaiting: 2, patience: 60_000 });
  const first = await enter('first', 90);
  const second = enter('second', 50);
  const third = enter('third', 10);
  expect(await enter('one too many', 10)).toBeUndefined();
  expect([admitted, bytes.held]).toEqual([['first'], 90]);
  first!.grow(-30);
  expect(bytes.held).toBe(60);
  first!.release();
  await Promise.all([second, third]);
  expect([admitted, bytes.held]).toEqual([['first', 'second', 'third'], 60]);
});

test('a caller that leaves makes way for the next one', async () => {
  const { bytes, enter } = line({ maxWaiting: 2, patience: 60_000 });
  const first = await enter('first', 60);
  const gone = new AbortController();
  const leaving = enter('leaving', 50, gone.signal);
  const next = enter('next', 40);
  gone.abort(new Error('left'));
  await expect(leaving).rejects.toThrow('left');
  await next;
  expect(bytes.held).toBe(100);
  first!.release();
  await expect(enter('gone before', 1, gone.signal)).rejects.toThrow('left');
  expect(bytes.held).toBe(40);
});

test('a caller that has waited too long is refused, and the next one admitted', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const { bytes, enter } = line({ maxWaiting: 2, patience: 500 });
  await enter('first', 60);
  const patient = enter('patient', 50);
  await vi.advanceTimersByTimeAsync(400);
  const next = enter('next', 40);
  await vi.advanceTimersByTimeAsync(100);
  expect(await patient).toBeUndefined();
  await next;
  expect(bytes.held).toBe(100);
});
