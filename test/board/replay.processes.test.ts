import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { replayDeadLetters } from '../../src/queue/dead-letters.ts';
import { identifierKey, laneOf } from '../../src/queue/lanes.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { startProcess } from '../setup/processes.ts';
import { createInstallation, failedEvent, type Installation, read } from './installation.ts';

/** The complete path with worker processes, from an object that Postgres rejects to its single effect. */
describe.each(['redis', 'postgres'] as const)('a replay from the console, queue on %s', (kind) => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await createInstallation(kind);
  });
  afterAll(() => installation.stop());

  const startWorkerProcess = () =>
    startProcess('dist/workers/worker.js', { ...installation.env, WORKER_PORT: '0' });

  const query = async (statement: string, ...values: unknown[]) =>
    (await installation.database.pool.query(statement, values)).rows;

  test('a replay takes effect once, whoever retries it and whichever worker dies', async () => {
    const { database, producer, replayContext, deadLetterQueue } = installation;
    const workers = [startWorkerProcess(), startWorkerProcess()];
    await query("alter table events add constraint refused check (name <> 'refused')");

    const workspaceId = uuidv7();
    const identifier = { external_id: 'ada' };
    const [before, refused, after] = ['before', 'refused', 'after'].map((name, index) => {
      const { object } = failedEvent();
      return { ...object, identifier, name, index };
    });
    const request = {
      request_id: 'the-request',
      workspace_id: workspaceId,
      accepted_at: new Date().toISOString(),
      count: 3,
    };
    const lane = laneOf(workspaceId, identifierKey(identifier), 4);
    const envelope = { requests: [request], objects: [before!, refused!, after!] };
    await producer.add([{ lane, id: uuidv7(), envelope }]);

    const { id } = refused!;
    const jobId = `${id}_0`;
    await waitUntil(async () => (await deadLetterQueue.getJobState(jobId)) === 'failed', {
      what: 'the dead letter',
    });
    const job = await deadLetterQueue.getJob(jobId);
    expect(job!.failedReason).toContain('violates check constraint "refused"');
    expect(job!.data).toMatchObject({ request_id: 'the-request', workspace_id: workspaceId });
    const names = () =>
      query('select name, count from event_summaries where workspace_id = $1 order by 1', workspaceId);
    expect(await names()).toEqual([
      { name: 'after', count: 1 },
      { name: 'before', count: 1 },
    ]);

    const retryJob = async (id: string) =>
      (await deadLetterQueue.getJob(id))?.retry('failed').catch(() => {});
    const retry = () => retryJob(jobId);
    await retry();
    await waitUntil(async () => (await deadLetterQueue.getJobState(`${id}_1`)) === 'failed', {
      what: 'the second failure',
    });
    expect(await read(database, id)).toMatchObject({ state: 'waiting', replays: 1 });

    await query('alter table events drop constraint refused');
    const again = () => retryJob(`${id}_1`);
    await Promise.all([again(), again(), replayDeadLetters(replayContext, [id]), retry()]);
    workers[0]!.kill('SIGKILL');
    startWorkerProcess();
    await waitUntil(async () => (await read(database, id)).state === 'replayed', { what: 'the replay' });
    await Promise.all([replayDeadLetters(replayContext, [id]), again(), retry()]);
    const isFinished = async () => {
      const { waiting, active, failed } = await deadLetterQueue.getJobCounts('waiting', 'active', 'failed');
      return waiting === 0 && active === 0 && failed === 0;
    };
    await waitUntil(isFinished, { what: 'the dashboard to have nothing left' });

    expect(
      await query('select id, name from events where workspace_id = $1 and id = $2', workspaceId, id),
    ).toEqual([{ id, name: 'refused' }]);
    expect(await names()).toEqual([
      { name: 'after', count: 1 },
      { name: 'before', count: 1 },
      { name: 'refused', count: 1 },
    ]);
  });
});
