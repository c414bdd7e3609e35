import { PassThrough } from 'node:stream';
import { expect, test, vi } from 'vitest';
import { showRows, showSteps } from '../../src/admin/progress.ts';

/** Fake terminal or pipe; `shown` returns its text without escape sequences. */
function terminal(isTerminal: boolean) {
  const stream = Object.assign(new PassThrough(), { isTTY: isTerminal, columns: 160 });
  let text = '';
  stream.on('data', (chunk) => {
    text += chunk;
  });
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the expression removes escape sequences
  return { stream, shown: () => text.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, '') };
}

test('a bar shows the file, percentage, rows, rate and remaining time', () => {
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

test('each step before the first row has a bar with percentage, rate and remaining time', () => {
  vi.useFakeTimers({ now: 0 });
  const { stream, shown } = terminal(true);
  const steps = showSteps(stream);
  const each = (moves: number) => {
    for (let second = 1; second <= 5; second++) {
      vi.advanceTimersByTime(1000);
      steps.move(moves);
    }
    vi.advanceTimersByTime(1000);
    steps.end();
  };
  steps.begin({ name: 's3://rows/users.parquet', doing: 'fetching', of: 'bytes', total: 1_000_000_000 });
  each(100_000_000);
  steps.begin({ name: 's3://rows/users.parquet', doing: 'checking', of: 'rows', total: 1000 });
  each(20);
  vi.useRealTimers();
  expect(shown()).toMatch(/users\.parquet: fetching .* 50%, 500\.0 MB, 100\.0 MB\/s, \d+s left/);
  expect(shown()).toMatch(/users\.parquet: checking .* 10%, 100 rows, 20 rows\/s, \d+s left/);
});

test('draws no bar on a pipe', () => {
  const { stream, shown } = terminal(false);
  const bar = showRows({ name: 'users.csv', length: 10, read: () => 5 }, stream);
  bar.begin(0);
  bar.move(5);
  bar.stop();
  const steps = showSteps(stream);
  steps.begin({ name: 'users.csv', doing: 'checking', of: 'bytes', total: 10 });
  steps.move(5);
  steps.end();
  expect(shown()).toBe('');
});
