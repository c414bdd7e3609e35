import { v5 as uuidv5 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Worker } from '../../src/queue/bullmq.ts';
import { replayDeadLetters } from '../../src/queue/dead-letters.ts';
import { DEAD_LETTER_QUEUE, QueueUnavailable } from '../../src/queue/lanes.ts';
import { claimWaitingForReplay } from '../../src/store/dead-letters.ts';
import { createShownDeadLetters } from '../../workers/upkeep/dead-letters.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { openDashboard, type Visitor } from './browser-session.ts';
import { commit, commitReplayed, failedEvent, type Installation, read } from './installation.ts';
import { createPeople } from './people.ts';

describe.each(['redis', 'postgres'] as const)('dead letters on the dashboard, queue on %s', (kind) => {
  let installation: Installation;
  let visitor: Visitor;
  let board: Awaited<ReturnType<typeof openDashboard>>['board'];
  beforeAll(async () => {
    ({ installation, visitor, board } = await openDashboard(kind));
  });
  afterAll(() => installation.stop());

  /** Starts the worker's part for one test. */
  async function withWorker(work: (worker: ReturnType<Installation['startWorker']>) => Promise<void>) {
    const worker = installation.startWorker();
    await work(worker).finally(worker.stop);
  }

  async function stateOf(jobId: string): Promise<string> {
    return installation.deadLetterQueue.getJobState(jobId);
  }

  function untilState(jobId: string, state: string): Promise<boolean> {
    return waitUntil(async () => (await stateOf(jobId)) === state, { what: `${jobId} to be ${state}` });
  }

  async function envelopesOf(id: string) {
    return (await installation.envelopes()).filter(({ envelope }) => envelope.objects[0].id === id);
  }

  /** As any other dashboard of BullMQ would; whether the queue has taken it. */
  const retry = async (jobId: string): Promise<boolean> => {
    const job = await installation.deadLetterQueue.getJob(jobId);
    return job!.retry('failed').then(
      () => true,
      () => false,
    );
  };

  test('one that waits rests in failed, with its reason, request id and object', () =>
    withWorker(async ({ show }) => {
      const row = failedEvent({ reason: 'price does not fit' });
      await commit(installation.database, row);
      await show([row.id]);
      await untilState(`${row.id}_0`, 'failed');
      const { request: _, ...object } = row.object;
      const answer = await visitor.get(`/queues/api/queues/${DEAD_LETTER_QUEUE}/${row.id}_0`);
      const { job } = (await answer.json()) as { job: Record<string, unknown> };
      expect(job).toMatchObject({
        name: 'events',
        failedReason: 'price does not fit',
        stacktrace: [],
        data: {
          dead_letter_id: row.id,
          request_id: row.requestId,
          workspace_id: row.workspaceId,
          reason: 'price does not fit',
          object,
        },
      });
      expect(await read(installation.database, row.id)).toMatchObject({ state: 'waiting', replays: 0 });

      // Which may quote it: who sees no objects sees no reasons.
      const { visitor: looker } = await createPeople(installation, board).arrive();
      const list = `/queues/api/queues?activeQueue=${DEAD_LETTER_QUEUE}&status=failed&page=1&jobsPerPage=10`;
      for (const path of [list, `/queues/api/queues/${DEAD_LETTER_QUEUE}/${row.id}_0`]) {
        const text = await (await looker.get(path)).text();
        expect(text).toContain(row.id);
        expect(text).not.toContain('price does not fit');
      }
    }));

  test('one that was erased with its user is taken away by a worker that has just started', async () => {
    const row = failedEvent();
    await commit(installation.database, row);
    await withWorker(async ({ show }) => {
      await show([row.id]);
      await untilState(`${row.id}_0`, 'failed');
    });
    await installation.database.pool.query('delete from dead_letters where id = $1', [row.id]);
    await withWorker(() => untilState(`${row.id}_0`, 'unknown').then(() => {}));
  });

  test('one is shown once, however often and by however many workers', () =>
    withWorker((one) =>
      withWorker(async (other) => {
        const rows = Array.from({ length: 130 }, () => failedEvent());
        const ids = await commit(installation.database, ...rows);
        const before = await installation.deadLetterQueue.getFailedCount();
        await Promise.all([one, other, one, other].map(({ show }) => show(ids)));
        await one.show(ids);
        for (const id of ids) await untilState(`${id}_0`, 'failed');
        expect(await installation.deadLetterQueue.getFailedCount()).toBe(before + 130);
        for (const id of ids)
          expect(await read(installation.database, id)).toMatchObject({ state: 'waiting' });
      }),
    ));

  test('one that was committed by a worker that then died is shown by the next sweep', async () => {
    const [id] = (await commit(installation.database, failedEvent())) as [string];
    await withWorker(async () => {
      await untilState(`${id}_0`, 'failed');
    });
  });

  test('one that the queue has lost is shown again after a while', async () => {
    const { connection, database, deadLetterQueue } = installation;
    const shown = createShownDeadLetters(connection, database);
    const [id] = (await commit(database, failedEvent())) as [string];
    await shown.sweep();
    expect(await stateOf(`${id}_0`)).toBe('waiting');
    await (await deadLetterQueue.getJob(`${id}_0`))!.remove();
    await shown.sweep();
    expect(await stateOf(`${id}_0`)).toBe('unknown');
    for (let sweep = 2; sweep <= 120; sweep++) await shown.sweep();
    expect(await stateOf(`${id}_0`)).toBe('waiting');
    await (await deadLetterQueue.getJob(`${id}_0`))!.remove();
    await commitReplayed(database, [id]);
    await shown.stop();
  });

  test('a worker that dies with one in hand replays nothing', async () => {
    const { database, connection, deadLetterQueue } = installation;
    const [id] = (await commit(database, failedEvent())) as [string];
    await deadLetterQueue.add('events', { dead_letter_id: id, reason: 'first' }, { jobId: `${id}_0` });
    const options = { ...connection.options, autorun: false, lockDuration: 200 };
    const dying = new Worker(DEAD_LETTER_QUEUE, null, options, connection.factory);
    const held = await dying.getNextJob('token');
    expect(held!.id).toBe(`${id}_0`);
    await dying.close(true);
    await withWorker(async () => {
      await untilState(`${id}_0`, 'failed');
      const job = await deadLetterQueue.getJob(`${id}_0`);
      expect(job).toMatchObject({
        failedReason: 'first',
        stalledCounter: 1,
        attemptsStarted: 2,
        attemptsMade: 1,
      });
      expect(await read(database, id)).toMatchObject({ state: 'waiting', replays: 0 });
    });
  });

  test('a retry replays it, once', () =>
    withWorker(async ({ show }) => {
      const [id] = (await commit(installation.database, failedEvent())) as [string];
      await show([id]);
      await untilState(`${id}_0`, 'failed');
      expect(await retry(`${id}_0`)).toBe(true);
      await untilState(`${id}_0`, 'unknown');
      expect(await envelopesOf(id)).toMatchObject([{ id: uuidv5('1', id), envelope: { replay: true } }]);
      expect(await read(installation.database, id)).toMatchObject({ state: 'replaying', replays: 1 });
    }));

  test('two retries at the same time replay it once', () =>
    withWorker(async ({ show }) => {
      const [id] = (await commit(installation.database, failedEvent())) as [string];
      await show([id]);
      await untilState(`${id}_0`, 'failed');
      const answers = await Promise.all([
        retry(`${id}_0`),
        retry(`${id}_0`),
        replayDeadLetters(installation.replayContext, [id]),
      ]);
      expect(answers.slice(0, 2)).toContain(true);
      await untilState(`${id}_0`, 'unknown');
      expect(await envelopesOf(id)).toHaveLength(1);
      expect(await read(installation.database, id)).toMatchObject({ state: 'replaying', replays: 1 });
    }));

  test('a retry goes on where a replay died before its lane was reached', () =>
    withWorker(async ({ show }) => {
      const [id] = (await commit(installation.database, failedEvent())) as [string];
      await show([id]);
      await untilState(`${id}_0`, 'failed');
      await claimWaitingForReplay(installation.database.pool, [id]);
      await retry(`${id}_0`);
      await untilState(`${id}_0`, 'unknown');
      expect(await envelopesOf(id)).toMatchObject([{ id: uuidv5('1', id) }]);
    }));

  test('a retry that does not reach its lane rests in failed with both reasons, and can be retried', async () => {
    const row = failedEvent({ reason: 'no such plan' });
    await commit(installation.database, row);
    const unreachable = installation.startWorker({
      add: () => Promise.reject(new QueueUnavailable('lanes gone')),
    });
    await unreachable.show([row.id]);
    await untilState(`${row.id}_0`, 'failed');
    await retry(`${row.id}_0`);
    const reason = await waitUntil(
      async () => {
        const job = await installation.deadLetterQueue.getJob(`${row.id}_0`);
        return job!.failedReason?.startsWith('Not replayed') && job!.failedReason;
      },
      { what: 'the failed retry' },
    );
    expect(reason).toBe('Not replayed, retry it again: lanes gone. Failed first: no such plan');
    await unreachable.stop();
    await withWorker(async () => {
      await retry(`${row.id}_0`);
      await untilState(`${row.id}_0`, 'unknown');
      expect(await envelopesOf(row.id)).toMatchObject([{ id: uuidv5('1', row.id) }]);
    });
  });

  test('all are retried at once', () =>
    withWorker(async ({ show }) => {
      const ids = await commit(installation.database, ...Array.from({ length: 25 }, () => failedEvent()));
      await show(ids);
      for (const id of ids) await untilState(`${id}_0`, 'failed');
      for (const id of ids) expect(await retry(`${id}_0`)).toBe(true);
      for (const id of ids) {
        await untilState(`${id}_0`, 'unknown');
        expect(await envelopesOf(id)).toHaveLength(1);
      }
    }));

  test('one that fails again is shown again, with its new reason', () =>
    withWorker(async ({ show }) => {
      const row = failedEvent();
      await commit(installation.database, row);
      await show([row.id]);
      await untilState(`${row.id}_0`, 'failed');
      await retry(`${row.id}_0`);
      await untilState(`${row.id}_0`, 'unknown');
      await commit(installation.database, { ...row, reason: 'still not' });
      await show([row.id]);
      await untilState(`${row.id}_1`, 'failed');
      const job = await installation.deadLetterQueue.getJob(`${row.id}_1`);
      expect(job!.failedReason).toBe('still not');
      await retry(`${row.id}_1`);
      await untilState(`${row.id}_1`, 'unknown');
      expect(await envelopesOf(row.id)).toHaveLength(2);
      expect(await read(installation.database, row.id)).toMatchObject({ state: 'replaying', replays: 2 });
    }));

  test('one that was replayed by other means leaves the dashboard', () =>
    withWorker(async ({ show }) => {
      const { database, replayContext } = installation;
      const [id] = (await commit(database, failedEvent())) as [string];
      await show([id]);
      await untilState(`${id}_0`, 'failed');
      await replayDeadLetters(replayContext, [id]);
      await commitReplayed(database, [id]);
      await untilState(`${id}_0`, 'unknown');
    }));

  test.each([[null], ['text'], [[1, 2]]])('an object that is %j is shown as it is', (object) =>
    withWorker(async ({ show }) => {
      const { id } = failedEvent();
      await commit(installation.database, { ...failedEvent(), id, kind: 'envelope', object });
      await show([id]);
      await untilState(`${id}_0`, 'failed');
      expect((await installation.deadLetterQueue.getJob(`${id}_0`))!.data.object).toEqual(object);
    }),
  );

  test('G8: a large object stays where it is, and what is shown says so', () =>
    withWorker(async ({ show }) => {
      const [small, large] = [8000, 8200].map((length) => ({ ...failedEvent(), object: 'x'.repeat(length) }));
      await commit(installation.database, small!, large!);
      await show([small!.id, large!.id]);
      for (const { id } of [small!, large!]) await untilState(`${id}_0`, 'failed');
      const shown = async (id: string) => (await installation.deadLetterQueue.getJob(`${id}_0`))!.data.object;
      expect(await shown(small!.id)).toBe(small!.object);
      expect(await shown(large!.id)).toBe('more than 8192 bytes');
    }));

  test('what the queue cannot hold is shown as far as it can be', () =>
    withWorker(async ({ show }) => {
      const row = failedEvent();
      const object = { ...row.object, properties: { 'a\u0000': '\ud800', escaped: '\\u0000' } };
      await commit(installation.database, { ...row, object });
      await show([row.id]);
      await untilState(`${row.id}_0`, 'failed');
      const job = await installation.deadLetterQueue.getJob(`${row.id}_0`);
      expect(job!.data.object.properties).toEqual({ 'a\ufffd': '\ufffd', escaped: '\\u0000' });
    }));
});
