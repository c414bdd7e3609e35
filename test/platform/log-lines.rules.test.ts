import { describe, expect, test } from 'vitest';
import { readableLine } from '../../src/platform/log.ts';

const line = (members: object) =>
  `${JSON.stringify({ level: 30, time: '2026-01-31T12:00:05.123Z', process: 'web', msg: 'ready', ...members })}\n`;

describe('a readable line of the log', () => {
  test('shows time, process and message, and then its members', () => {
    expect(
      readableLine(line({ host: '127.0.0.1', port: 3000, lanes: [0, 1], why: 'two words' }), false),
    ).toBe('12:00:05  web      ready  host=127.0.0.1 port=3000 lanes=[0,1] why="two words"\n');
  });

  test.each([
    [20, 'debug ready'],
    [30, 'ready'],
    [40, 'WARN ready'],
    [50, 'ERROR ready'],
    [60, 'FATAL ready'],
  ])('shows the level %i unless it is info', (level, words) => {
    expect(readableLine(line({ level }), false)).toBe(`12:00:05  web      ${words}\n`);
  });

  test('is coloured by its level if the terminal supports colours', () => {
    expect(readableLine(line({ level: 50 }), true)).toContain('\u001b[31mERROR ready\u001b[0m');
    expect(readableLine(line({}), true)).not.toContain('\u001b[');
  });

  test('has the message of an error, and its stack if a user must act', () => {
    const err = { type: 'Error', message: 'it broke', stack: 'Error: it broke\n    at a.ts:1' };
    expect(readableLine(line({ level: 40, err }), false)).toMatch(/ready\n {10}it broke\n$/);
    expect(readableLine(line({ level: 50, err }), false)).toMatch(
      /\n {10}Error: it broke\n {14}at a.ts:1\n$/,
    );
  });

  test('escapes terminal codes from clients, and stays one line', () => {
    const shown = readableLine(line({ msg: 'a\u001b[2Jb\nc', id: '\u0007\u009b1m' }), false);
    expect(shown).toBe('12:00:05  web      a\\u001b[2Jb\\u000ac  id=\\u0007\\u009b1m\n');
  });

  test('is unchanged if it is not a JSON object', () => {
    for (const text of ['Dashboard: http://127.0.0.1\n', 'null\n', '7\n'])
      expect(readableLine(text, true)).toBe(text);
  });
});
