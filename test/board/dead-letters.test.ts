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

describe.each(['redis', 'postgres'] as const)('dead letters in Bull Board, queue on %s', (kind) => {
  let installation: Installation;
  let visitor: Visitor;
  let board: Awaited<ReturnType<typeof openDashboard>>['board'];
  beforeAll(async () => {
    ({ installation, visitor, board } = await openDashboard(kind));
  });
  afterAll(() => installation.stop());

  /** Runs the dead-letter part of a worker during `work`. */
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

  /** Retries a job like any BullMQ dashboard. Returns whether the queue accepted the retry. */
  const retry = async (jobId: string): Promise<boolean> => {
    const job = await installation.deadLetterQueue.getJob(jobId);
    return job!.retry('failed').then(
      () => true,
      () => false,
    );
  };

  test('a waiting dead letter is a failed job with its reason, request id and object', () =>
    withWorker(async ({ show }) => {
      const row = failedEvent({ reason: 'price does not fit' });
      await commit(installation.database, row);
      await show([row.id]);
      await untilState(`${row.id}_0`, 'failed');
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
          object: row.object,
        },
      });
      expect(await read(installation.database, row.id)).toMatchObject({ state: 'waiting', replays: 0 });

      // A reason may quote the object, so viewers who may not see objects see no reasons.
      const { visitor: looker } = await createPeople(installation, board).arrive();
      const list = `/queues/api/queues?activeQueue=${DEAD_LETTER_QUEUE}&status=failed&page=1&jobsPerPage=10`;
      for (const path of [list, `/queues/api/queues/${DEAD_LETTER_QUEUE}/${row.id}_0`]) {
        const text = await (await looker.get(path)).text();
        expect(text).toContain(row.id);
        expect(text).not.toContain('price does not fit');
      }
    }));

  test('a starting worker removes the job of a dead letter that was erased with its user', async () => {
    const row = failedEvent();
    await commit(installation.database, row);
    await withWorker(async ({ show }) => {
      await show([row.id]);
      await untilState(`${row.id}_0`, 'failed');
    });
    await installation.database.pool.query('delete from dead_letters where id = $1', [row.id]);
    await withWorker(() => untilState(`${row.id}_0`, 'unknown').then(() => {}));
  });

  test('a dead letter is shown once, however often and by however many workers', () =>
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

  test('the next sweep shows a dead letter whose worker died after the commit', async () => {
    const [id] = (await commit(installation.database, failedEvent())) as [string];
    await withWorker(async () => {
      await untilState(`${id}_0`, 'failed');
    });
  });

  test('a dead letter whose job was lost is shown again after 120 sweeps', async () => {
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

  test("a worker that dies with a dead letter's job does not cause a replay", async () => {
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

  test('a retry replays a dead letter once', () =>
    withWorker(async ({ show }) => {
      const [id] = (await commit(installation.database, failedEvent())) as [string];
      await show([id]);
      await untilState(`${id}_0`, 'failed');
      expect(await retry(`${id}_0`)).toBe(true);
      await untilState(`${id}_0`, 'unknown');
      expect(await envelopesOf(id)).toMatchObject([{ id: uuidv5('1', id), envelope: { replay: true } }]);
      expect(await read(installation.database, id)).toMatchObject({ state: 'replaying', replays: 1 });
    }));

  test('concurrent retries replay a dead letter once', () =>
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

  test('a retry resumes a replay that died before it reached its lane', () =>
    withWorker(async ({ show }) => {
      const [id] = (await commit(installation.database, failedEvent())) as [string];
      await show([id]);
      await untilState(`${id}_0`, 'failed');
      await claimWaitingForReplay(installation.database.pool, [id]);
      await retry(`${id}_0`);
      await untilState(`${id}_0`, 'unknown');
      expect(await envelopesOf(id)).toMatchObject([{ id: uuidv5('1', id) }]);
    }));

  test('a retry that cannot reach its lane fails with both reasons and can be retried', async () => {
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

  test('25 dead letters can be retried at once', () =>
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

  test('a dead letter that fails again is shown again with its new reason', () =>
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

  test('a dead letter that was replayed elsewhere disappears from Bull Board', () =>
    withWorker(async ({ show }) => {
      const { database, replayContext } = installation;
      const [id] = (await commit(database, failedEvent())) as [string];
      await show([id]);
      await untilState(`${id}_0`, 'failed');
      await replayDeadLetters(replayContext, [id]);
      await commitReplayed(database, [id]);
      await untilState(`${id}_0`, 'unknown');
    }));

  test.each([[null], ['text'], [[1, 2]]])('the object %j is shown unchanged', (object) =>
    withWorker(async ({ show }) => {
      const { id } = failedEvent();
      await commit(installation.database, { ...failedEvent(), id, kind: 'envelope', object });
      await show([id]);
      await untilState(`${id}_0`, 'failed');
      expect((await installation.deadLetterQueue.getJob(`${id}_0`))!.data.object).toEqual(object);
    }),
  );

  test('G8: an object above 8,192 bytes is replaced by a note in the queue', () =>
    withWorker(async ({ show }) => {
      const [small, large] = [8000, 8200].map((length) => ({ ...failedEvent(), object: 'x'.repeat(length) }));
      await commit(installation.database, small!, large!);
      await show([small!.id, large!.id]);
      for (const { id } of [small!, large!]) await untilState(`${id}_0`, 'failed');
      const shown = async (id: string) => (await installation.deadLetterQueue.getJob(`${id}_0`))!.data.object;
      expect(await shown(small!.id)).toBe(small!.object);
      expect(await shown(large!.id)).toBe('more than 8192 bytes');
    }));

  test('characters that the queue cannot store are replaced', () =>
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
