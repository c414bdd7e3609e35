import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createReader } from '../../src/checks/read.ts';
import { findProblems } from '../../src/checks/registry.ts';
import type { Pool } from '../../src/store/database.ts';

/** Milliseconds for one statement; five times as long for all statements after the first. */
const PATIENCE_MS = 400;

/** Creates a reader of a Postgres that answers each statement with `answer`, and records debug lines. */
function readerOf(answer: (text: string) => Promise<object[]>) {
  const query = async (statement: string | { text: string }) => ({
    rows: await answer(typeof statement === 'string' ? statement : statement.text),
  });
  const lines: object[] = [];
  const queue = { kind: 'postgres', connection: undefined, lanes: 1 } as const;
  const log = { debug: (line: object) => lines.push(line) } as never;
  const options = { patience: PATIENCE_MS, readsOnce: false, log };
  const reader = createReader({ pool: { query } as unknown as Pool, queue }, options);
  return { reader, lines };
}

test('a slow Postgres is reported with its latency, and with the values that arrived in time', async () => {
  const { reader } = readerOf(async (text) => {
    await sleep(300);
    if (text.includes('server_version_num'))
      return [{ settings: { max_connections: '100' }, connections: 7 }];
    return text.includes('from processes') ? [] : [{}];
  });
  const readings = await reader.read();
  expect(readings.lacking).toEqual([]);
  expect(readings.postgres!.latency).toBeGreaterThan(290);
  expect(readings.postgres!.used).toBe(7);
  expect(readings.unread).toContain('imports');
  const ids = findProblems(readings, 'fleet').map(({ id }) => id);
  expect(ids).toEqual(expect.arrayContaining(['store-slow', 'readings-incomplete']));
});

test('a statement that fails is logged and reported, and the others are used', async () => {
  const { reader, lines } = readerOf(async (text) => {
    if (text.includes('from imports')) throw new Error('permission denied');
    if (text.includes('server_version_num'))
      return [{ settings: { max_connections: '100' }, connections: 7 }];
    return text.includes('as unfinished') ? [{ unfinished: 2, troubled: [] }] : [];
  });
  const readings = await reader.read();
  expect([readings.unread, readings.syncs]).toEqual([['imports'], { unfinished: 2, troubled: [] }]);
  expect(lines).toEqual([expect.objectContaining({ statement: 'imports' })]);
});

test('a Postgres that goes away during the reading is reported as away', async () => {
  let isAway = false;
  const { reader } = readerOf(async () => {
    if (isAway) throw new Error('connection terminated');
    isAway = true;
    return [];
  });
  expect((await reader.read()).lacking.map(({ name }) => name)).toEqual(['postgres']);
});

test('a reading that began before Postgres froze does not count as its latency', async () => {
  let frozen: Promise<void> | undefined;
  const { reader } = readerOf(async (text) => {
    if (text.includes('from processes')) await frozen;
    return [];
  });
  let thaw = () => {};
  frozen = new Promise((resolve) => (thaw = resolve));
  for (let reading = 0; reading < 2; reading++)
    expect((await reader.read()).lacking.map(({ name }) => name)).toEqual(['postgres']);
  const during = reader.read();
  thaw();
  const { lacking, postgres } = await during;
  expect(lacking).toEqual([]);
  expect(postgres!.latency).toBeLessThan(PATIENCE_MS / 2);
});
