import type pg from 'pg';
import { Registry } from 'prom-client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { type Attempt, JobAttempts } from '../../workers/jobs/job-attempts.ts';
import { createStore, silent } from './batch.ts';

let pool: pg.Pool;
beforeAll(async () => {
  ({ pool } = await createStore());
});
afterAll(() => pool.end());

/** Simulates one run of a sync process. */
const life = () => new JobAttempts({ pool, processId: newId(), log: silent, registry: new Registry() });

async function begun(process: JobAttempts, id: string): Promise<Attempt> {
  const attempt = await process.begin('sync run', id);
  if (typeof attempt === 'string') throw new Error(attempt);
  return attempt;
}

test('a job that ended two processes is set aside, and can be started again afterwards', async () => {
  const id = newId();
  await begun(life(), id);
  await begun(life(), id);
  expect(await life().begin('sync run', id)).toBe('set aside');
  expect(await life().begin('sync run', id)).toBeInstanceOf(Object);
});

test('a job that was given back or that failed does not count as ending a process', async () => {
  const [id, other] = [newId(), newId()];
  for (let round = 0; round < 3; round++) {
    await (await begun(life(), id)).end('given back');
    await (await begun(life(), other)).end();
  }
});

test('a job that made progress does not count as ending a process', async () => {
  const id = newId();
  for (let round = 0; round < 4; round++) await (await begun(life(), id)).progress();
});

test('the active jobs of a process that died are retried one after the other', async () => {
  const [guilty, innocent] = [newId(), newId()];
  const first = life();
  for (const id of [guilty, innocent]) await begun(first, id);
  const second = life();
  await begun(second, guilty);
  expect(await second.begin('sync run', innocent)).toBe('waits');
  // A job that was not active then does not wait.
  expect(await second.begin('sync run', newId())).toBeInstanceOf(Object);
  const third = life();
  expect(await third.begin('sync run', guilty)).toBe('set aside');
  await (await begun(third, innocent)).end();
});

test('a suspect that makes progress lets the next suspect start', async () => {
  const [one, other] = [newId(), newId()];
  const first = life();
  for (const id of [one, other]) await begun(first, id);
  const second = life();
  const attempt = await begun(second, one);
  await attempt.progress();
  await begun(second, other);
});
