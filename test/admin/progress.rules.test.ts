import { PassThrough } from 'node:stream';
import { expect, test, vi } from 'vitest';
import { showRows } from '../../src/admin/output.ts';

/** What stands on a terminal, without what moves its cursor. */
function terminal(isTerminal: boolean) {
  const stream = Object.assign(new PassThrough(), { isTTY: isTerminal, columns: 160 });
  let text = '';
  stream.on('data', (chunk) => {
    text += chunk;
  });
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escapes are what is taken away
  return { stream, shown: () => text.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, '') };
}

test('a bar has the file, its part, rows, their rate and the time that is left', () => {
  vi.useFakeTimers({ now: 0 });
  const { stream, shown } = terminal(true);
  let read = 0;
  const bar = showRows({ name: '/exports/users.csv', length: 1000, read: () => read }, stream);
  bar.begin(50);
  for (let second = 1; second <= 5; second++) {
    vi.advanceTimersByTime(1000);
    read = second * 100;
    bar.move(50 + second * 20);
  }
  vi.advanceTimersByTime(1000);
  bar.stop();
  vi.useRealTimers();
  expect(shown()).toMatch(/users\.csv .* 50%, 150 rows, 20\/s, \d+s left/);
});

test('a pipe gets no bar', () => {
  const { stream, shown } = terminal(false);
  const bar = showRows({ name: 'users.csv', length: 10, read: () => 5 }, stream);
  bar.begin(0);
  bar.move(5);
  bar.stop();
  expect(shown()).toBe('');
});
