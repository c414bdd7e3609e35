import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readServer } from '../../src/admin/doctor/stores.ts';
import { findProblems } from '../../src/checks/registry.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { createLog } from '../../src/platform/log.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { Scheduler } from '../../workers/lane/scheduler.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { temporaryFolder, useMadeCluster, waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { applyThrough } from '../workers/apply-through.ts';
import { attributes, deliver, openPool, readDeadLetters, readSums, silent } from '../workers/batch.ts';

test('a bit flipped in a page of users is reported by worker and doctor, and not served', async () => {
  const home = temporaryFolder();
  useMadeCluster(home);
  const first = await startEmbeddedPostgres(home, silent);
  await migrate(first.url);
  const before = openPool(first.url);
  const workspace = await createWorkspace(before);
  const ann = () => deliver(workspace, [attributes('ann', { set: { plan: 'gold' } })]);
  const worker = new Scheduler(before, { metrics: createWorkerMetrics(), log: silent });
  await applyThrough(worker, ann());
  const { rows } = await before.query("select pg_relation_filepath('profiles') as file");
  await before.end();
  await first.stop();

  const page = path.join(home, 'postgres', rows[0].file);
  const bytes = readFileSync(page);
  const at = bytes.indexOf('gold');
  expect(at).toBeGreaterThan(0);
  bytes[at]! ^= 1;
  writeFileSync(page, bytes);

  const second = await startEmbeddedPostgres(home, silent);
  onTestFinished(() => second.stop());
  const pool = openPool(second.url);
  onTestFinished(() => pool.end());
  const problems = async () => {
    const { postgres } = await readServer(pool);
    const readings = { at: new Date(), queue: 'postgres' as const, lacking: [], postgres };
    return findProblems(readings, 'machine').map(({ id }) => id);
  };
  expect(await problems()).not.toContain('checksums-off');

  const lines: unknown[] = [];
  const log = createLog('test', 'silent');
  log.error = (_: unknown, message?: unknown) => void lines.push(message);
  const scheduler = new Scheduler(pool, { metrics: createWorkerMetrics(), log });
  void applyThrough(scheduler, ann());
  await waitUntil(() => lines.includes('not applied yet: Postgres read a damaged page'), {
    what: 'the damage in the log of the worker',
  });
  const isReported = async () => (await problems()).includes('pages-damaged');
  await waitUntil(isReported, { what: 'the damage in the doctor' });
  // The object waits in its lane until the page is restored.
  expect(await readDeadLetters(pool)).toEqual([]);
  await expect(readSums(pool, workspace)).rejects.toThrow('invalid page');
  scheduler.abandon();
});
