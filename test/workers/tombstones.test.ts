import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { startTombstoneCleanup } from '../../workers/upkeep/tombstones.ts';
import { createStore, silent } from './batch.ts';

test('a worker that is woken for tombstones repeatedly leaks no timers', async () => {
  const warnings: string[] = [];
  const note = ({ message }: Error) => void warnings.push(message);
  process.on('warning', note);
  onTestFinished(() => void process.off('warning', note));
  const { pool } = await createStore();
  const looked = countQueries(pool);
  const settling = startTombstoneCleanup(pool, silent);
  for (let round = 1; round <= 40; round++) {
    settling.wake();
    while (looked() < round) await sleep(2);
    // Time for the worker to rest again.
    await sleep(5);
  }
  await settling.stop();
  await pool.end();
  expect(warnings).toEqual([]);
});

function countQueries(pool: Awaited<ReturnType<typeof createStore>>['pool']): () => number {
  let count = 0;
  const query = pool.query.bind(pool) as (...given: unknown[]) => unknown;
  pool.query = ((...given: unknown[]) => {
    count++;
    return query(...given);
  }) as typeof pool.query;
  return () => count;
}
