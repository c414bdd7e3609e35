import { expect, test, vi } from 'vitest';
import { isoTime } from '../../src/platform/format.ts';
import { createLogInto, type LineFields, type Log, writeLine } from '../../src/platform/log.ts';

function logInto(lines: string[], options: object = {}): Log {
  return createLogInto(
    { write: (line: string) => lines.push(line) },
    { level: 'info', base: { process: 'web' }, ...options },
  );
}

test.each<LineFields>([
  { request_id: '0', status: 201, ms: 0.1, operation: 'users.track', workspace_id: undefined, accepted: 75 },
  { error: 'a "quoted" word\n\\ and \u0001, \ud800 and é', rejected: 0 },
  {},
])('a line of a request has exactly the bytes that pino writes: %j', (fields) => {
  vi.useFakeTimers({ now: Date.UTC(2026, 0, 31, 12, 0, 5, 7), toFake: ['Date'] });
  try {
    const lines: string[] = [];
    const log = logInto(lines);
    log.info(fields, 'request');
    log.warn(fields, 'request');
    writeLine(log, fields, { level: 'info', message: 'request' });
    writeLine(log, fields, { level: 'warn', message: 'request' });
    expect(lines.slice(2)).toEqual(lines.slice(0, 2));
  } finally {
    vi.useRealTimers();
  }
});

test('it respects the level, and a mixin that adds the trace', () => {
  const lines: string[] = [];
  writeLine(logInto(lines, { level: 'warn' }), { status: 201 }, { level: 'info', message: 'request' });
  expect(lines).toEqual([]);
  const log = logInto(lines, { mixin: () => ({ trace_id: 'that' }) });
  writeLine(log, { status: 201 }, { level: 'info', message: 'request' });
  expect(JSON.parse(lines[0]!)).toMatchObject({ trace_id: 'that', status: 201, msg: 'request' });
});

test('a time is written as Date writes it, whatever was written before', () => {
  const times = [
    0, 999, 1000, 1001, 1_769_860_805_007, 1_769_860_805_123, 1_769_860_804_999, 253_402_300_799_999,
  ];
  for (const time of [...times, ...times.toReversed()])
    expect(isoTime(time)).toBe(new Date(time).toISOString());
});
