import { afterEach, expect, test, vi } from 'vitest';
import { createLog } from '../../src/platform/log.ts';
import { setPollPace } from '../../src/platform/poll.ts';
import { watchDependencies } from '../../src/processes/dependencies.ts';

afterEach(() => {
  vi.useRealTimers();
  setPollPace((every) => every);
});

/** Watches a Postgres that has all tables, and records its statements. */
function watch() {
  const statements: string[] = [];
  const answers = { isAway: false, isReadOnly: false };
  const pool = {
    async query({ text }: { text: string }) {
      statements.push(text.includes('_prisma_migrations') ? 'migrations' : 'read-only');
      if (answers.isAway) throw Object.assign(new Error('refused'), { code: 'ECONNREFUSED' });
      return { rows: [{ applied: { includes: () => true }, isReadOnly: answers.isReadOnly }] };
    },
  };
  const connection = { kind: 'postgres', ping: async () => {} };
  const dependencies = watchDependencies({
    ...{ pool: pool as never, connection: connection as never, log: createLog('test', 'silent') },
  });
  return { statements, answers, dependencies };
}

test('the list of migrations is read every 10 s and after an outage of Postgres', async () => {
  vi.useFakeTimers();
  const { statements, answers, dependencies } = watch();
  await vi.advanceTimersByTimeAsync(9800);
  expect(statements).toEqual(['migrations', ...Array(40).fill('read-only')]);
  await vi.advanceTimersByTimeAsync(400);
  expect(statements.slice(-2)).toEqual(['migrations', 'read-only']);
  await vi.advanceTimersByTimeAsync(500);
  answers.isAway = true;
  await vi.advanceTimersByTimeAsync(1000);
  expect(dependencies.missing()).toEqual(['postgres']);
  answers.isAway = false;
  statements.length = 0;
  await vi.advanceTimersByTimeAsync(500);
  expect(statements[0]).toBe('migrations');
  expect(dependencies.missing()).toEqual([]);
  await dependencies.stop();
});

test('dependencies are checked less often while the pollers of the process are slowed down', async () => {
  vi.useFakeTimers();
  setPollPace((every) => every * 10);
  const { statements, dependencies } = watch();
  await vi.advanceTimersByTimeAsync(2400);
  expect(statements).toEqual(['migrations', 'read-only']);
  await vi.advanceTimersByTimeAsync(200);
  expect(statements).toEqual(['migrations', 'read-only', 'read-only']);
  await dependencies.stop();
});

test('a Postgres that became read-only is reported within 500 ms, and so is its end', async () => {
  vi.useFakeTimers();
  const { answers, dependencies } = watch();
  const changes: boolean[] = [];
  dependencies.onChange(() => changes.push(dependencies.isReadOnly()));
  await vi.advanceTimersByTimeAsync(600);
  answers.isReadOnly = true;
  await vi.advanceTimersByTimeAsync(500);
  expect([dependencies.isReadOnly(), changes]).toEqual([true, [true]]);
  answers.isReadOnly = false;
  await vi.advanceTimersByTimeAsync(500);
  expect([dependencies.isReadOnly(), changes]).toEqual([false, [true, false]]);
  await dependencies.stop();
});
