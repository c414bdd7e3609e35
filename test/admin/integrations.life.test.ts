import { beforeAll, describe, expect, test } from 'vitest';
import { waitUntil } from '../setup/fixtures.ts';
import { createIntegration } from '../setup/integrations.ts';
import { createScene, type Scene } from './integrations-scene.ts';
import { expectRefusal, type PenstockOn } from './penstock.ts';

describe('an integration', () => {
  let scene: Scene;
  let on: PenstockOn;
  let id: string;
  beforeAll(async () => {
    scene = await createScene();
    on = scene.with({});
    id = await createIntegration(scene.pool, scene.shop, { name: 'life', schedule: '30 4 * * 1' });
    await createIntegration(scene.pool, scene.school, { name: 'life' });
    await createIntegration(scene.pool, scene.shop);
    return scene.stop;
  });
  const run = (verb: string) => on.run(`integrations ${verb}`);
  const json = (verb: string) => on.json(`integrations ${verb}`);
  const end = (job: string, status: string, message: string) =>
    scene.pool.query(
      `update sync_jobs set status = $2, message = $3, finished_at = now(), rows_synced = 5, rows_failed = 3
       where id = $1`,
      [job, status, message],
    );

  test('is found by its id, or by its name and workspace', async () => {
    expect(await json('show life --workspace shop')).toMatchObject({ integration_id: id });
    expectRefusal(await run('show life'), '--workspace', 'shop', 'school');
    expectRefusal(await run(`show ${id} --workspace school`), id, 'integrations list');
  });

  test('is listed page by page', async () => {
    const { integrations: all, next } = await json('list');
    expect(all).toHaveLength(3);
    expect(next).toBeNull();
    expect(all[0]).toMatchObject({ integration_id: id, schedule: '30 4 * * 1', status: 'active' });
    const first = await json('list --workspace shop --limit 1');
    const rest = await on.json(['integrations', 'list', '--workspace', 'shop', '--after', first.next]);
    expect([...first.integrations, ...rest.integrations]).toEqual([all[0], all[2]]);
  });

  test('has no next run and cannot be synced while it is paused', async () => {
    expect(await json(`pause ${id}`)).toMatchObject({ status: 'paused', next_scheduled_run: null });
    expectRefusal(await run(`sync ${id}`), 'paused', 'integrations resume');
    expect(await json(`resume ${id}`)).toMatchObject({
      status: 'active',
      next_scheduled_run: expect.any(String),
    });
  });

  test('can change its schedule and contacts but not its kind', async () => {
    expect(await json(`update ${id} --on-demand --contact-emails ada@example.com`)).toMatchObject({
      schedule: null,
      next_scheduled_run: null,
      contact_emails: 'ada@example.com',
    });
    expectRefusal(await run(`update ${id}`), '--schedule, --on-demand');
    expectRefusal(await run(`update ${id} --kind events`), "unknown option '--kind'");
  });

  test('runs one sync at a time, which can be cancelled', async () => {
    const job = await json(`sync ${id}`);
    expect(job).toMatchObject({ status: 'running', asked_by: 'operator', finished_at: null });
    expectRefusal(await run(`sync ${id}`), 'in progress');
    expectRefusal(await run(`delete ${id}`), 'in progress', 'integrations cancel');
    expect(await json(`cancel ${id}`)).toMatchObject({
      job_id: job.job_id,
      cancelled_at: expect.any(String),
    });
    await end(job.job_id, 'error', 'cancelled by the operator');
    expectRefusal(await run(`cancel ${id}`), 'no job');
  });

  test('sync --wait prints the result and exits with 1 if the sync failed', async () => {
    const waiting = on.run(`integrations sync ${id} --wait --json`);
    const job = await waitUntil(
      async () => (await scene.pool.query('select id from sync_jobs where finished_at is null')).rows[0]?.id,
      { what: 'the job', deadline: 50_000 },
    );
    await end(job, 'config_error', 'wrong password');
    const { code, stdout, stderr } = await waiting;
    expect({ code, stderr }).toEqual({ code: 1, stderr: 'error: the sync failed: wrong password\n' });
    expect(JSON.parse(stdout)).toMatchObject({ job_id: job, status: 'config_error' });
  });

  test('sync --wait names the logs command and exits with 1 if rows failed', async () => {
    const other = await createIntegration(scene.pool, scene.shop, { name: 'partial' });
    const waiting = on.run(`integrations sync ${other} --wait --json`);
    const job = await waitUntil(
      async () => (await scene.pool.query('select id from sync_jobs where finished_at is null')).rows[0]?.id,
      { what: 'the job', deadline: 50_000 },
    );
    await end(job, 'partial', '1 row failed');
    const { code, stdout, stderr } = await waiting;
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: `error: 1 row failed; see penstock integrations logs ${other} --job ${job}\n`,
    });
    expect(JSON.parse(stdout)).toMatchObject({ job_id: job, status: 'partial' });
    await scene.pool.query('delete from integrations where id = $1', [other]);
  });

  test('sync --wait warns and continues to wait if no process runs the sync', async () => {
    const other = await createIntegration(scene.pool, scene.shop, { name: 'idle' });
    const waiting = on.run(`integrations sync ${other} --wait --json`);
    const job = await waitUntil(
      async () =>
        (
          await scene.pool.query(
            "select id from sync_jobs where finished_at is null and started_at < now() - interval '6 seconds'",
          )
        ).rows[0]?.id,
      { what: 'a job that is old enough', deadline: 50_000 },
    );
    await end(job, 'success', '');
    const { code, stderr } = await waiting;
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: expect.stringMatching(/^No row .* sync process .*\n$/),
    });
    await scene.pool.query('delete from integrations where id = $1', [other]);
  });

  test('logs lists jobs, newest first, and the failed or warned rows of one job', async () => {
    const page = await json(`logs ${id} --limit 1`);
    expect(page.sync_jobs).toMatchObject([{ status: 'config_error', message: 'wrong password' }]);
    const rest = await on.json(['integrations', 'logs', id, '--after', page.next]);
    expect(rest).toMatchObject({
      sync_jobs: [{ status: 'error', rows_synced: 5, rows_failed: 3 }],
      next: null,
    });
    const [{ job_id: job }] = rest.sync_jobs;
    await scene.pool.query(
      `insert into sync_row_errors (job_id, number, updated_at, identifier, payload, reason, synced, workspace_id)
       select sync_jobs.id, number, '2026-01-31', 'ada', '{', 'payload is no JSON', number = 8, integrations.workspace_id
       from sync_jobs
       join integrations on integrations.id = sync_jobs.integration_id, generate_series(7, 9) as number
       where sync_jobs.id = $1`,
      [job],
    );
    const rowOf = (row: number) => ({
      row,
      outcome: row === 8 ? 'synced' : 'failed',
      updated_at: '2026-01-31',
      identifier: 'ada',
      reason: 'payload is no JSON',
      payload: '{',
    });
    expect(await json(`logs ${id} --job ${job} --limit 2`)).toEqual({
      row_errors: [rowOf(7), rowOf(8)],
      next: '8',
    });
    expect((await json(`logs ${id} --job ${job} --after 8`)).row_errors).toEqual([rowOf(9)]);
    expectRefusal(await run(`logs ${id} --after x`), 'id of a job');
  });

  test('is deleted with its jobs', async () => {
    expect(await json(`delete ${id}`)).toEqual({ integration_id: id, deleted: true });
    for (const table of ['integrations where id', 'sync_jobs where integration_id'])
      expect((await scene.pool.query(`select from ${table} = $1`, [id])).rows).toEqual([]);
  });
});
