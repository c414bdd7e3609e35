import { Registry } from 'prom-client';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { JobAttempts } from '../../workers/jobs/job-attempts.ts';
import { checkRetention, createRetentionMetrics } from '../../workers/sync/retention.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import * as at from './scene.ts';
import { begin, end, fill, nextMonth } from './scene.ts';

beforeAll(begin);
afterAll(end);
beforeEach(nextMonth);

test('the schedule reports its last complete run and failures, and waits for an archive', async () => {
  await fill(2);
  const registry = new Registry();
  const metrics = createRetentionMetrics(registry);
  await at.pool.query('delete from retention_runs');
  const [log, errors] = [{ info() {}, error: (...given: unknown[]) => errors.push(given) }, [] as unknown[]];
  const attempts = new JobAttempts({ pool: at.pool, processId: newId(), log: log as never, registry });
  const runSchedule = (ARCHIVE_URL: string) =>
    checkRetention({
      ...{ pool: at.pool, signal: undefined, metrics, log: log as never, attempts },
      config: { ...readConfig({}), RETENTION_MONTHS: 0, ARCHIVE_URL },
    });
  const shown = async () => (await registry.metrics()).match(/^penstock_.* \d+$/gm);
  await runSchedule('');
  expect(errors).toEqual([[expect.anything(), expect.stringContaining('ARCHIVE_URL')]]);
  expect(await shown()).toContain('penstock_retention_overdue 2');
  expect(await at.scene.rows('select from retention_runs')).toEqual([]);
  await runSchedule('/dev/null/archive');
  expect(await shown()).toContain('penstock_retention_failing{task="archive"} 2');
  expect(await shown()).toContain('penstock_retention_failures_total{task="archive"} 2');
  await at.pool.query('update retention_failures set next_at = now()');
  await runSchedule(temporaryFolder());
  expect(await shown()).toContain('penstock_retention_failing{task="archive"} 0');
  expect(await shown()).toContain('penstock_retention_overdue 0');
  expect(await at.scene.rows('select from retention_runs')).toHaveLength(1);
});
