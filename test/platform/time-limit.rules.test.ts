import { getEventListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { linkSignals, withTimeLimit } from '../../src/platform/time-limit.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const never = () => new Promise<never>(() => {});

test('a time limit holds when garbage is collected while its work runs', async () => {
  const { signal } = new AbortController();
  let seen: unknown;
  const begin = () => {
    const linked = linkSignals({ signals: [signal], milliseconds: 50 });
    linked.signal.addEventListener('abort', () => {
      seen = linked.signal.reason;
    });
  };
  begin();
  collectGarbage();
  await expect.poll(() => seen, { timeout: 10_000 }).toMatchObject({ name: 'TimeoutError' });
});

test('a linked signal aborts with the reason of the first of its signals', () => {
  const [one, other] = [new AbortController(), new AbortController()];
  const { signal, isLate } = linkSignals({ signals: [one.signal, undefined, other.signal] });
  collectGarbage();
  other.abort('other');
  one.abort('one');
  expect([signal.aborted, signal.reason, isLate()]).toEqual([true, 'other', false]);
  expect(linkSignals({ signals: [one.signal] }).signal.reason).toBe('one');
});

test('a released limit has neither a timer nor a listener', async () => {
  const { signal } = new AbortController();
  const linked = linkSignals({ signals: [signal], milliseconds: 1 });
  linked.release();
  expect(getEventListeners(signal, 'abort')).toEqual([]);
  await sleep(20);
  expect(linked.signal.aborted).toBe(false);
});

test('work that ignores its signal is given up when its time is over', async () => {
  await expect(withTimeLimit({ milliseconds: 1 }, never)).rejects.toMatchObject({ name: 'TimeoutError' });
  const leaving = new AbortController();
  const waiting = withTimeLimit({ signals: [leaving.signal], milliseconds: 60_000 }, never);
  leaving.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  expect(await withTimeLimit({ milliseconds: 60_000 }, async () => 'done')).toBe('done');
});
