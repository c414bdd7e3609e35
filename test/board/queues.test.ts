import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Board } from '../../src/board/server.ts';
import { SYNC_QUEUE } from '../../src/jobs/catalog.ts';
import { DEAD_LETTER_QUEUE, laneName } from '../../src/queue/lanes.ts';
import { createSyncQueue } from '../../src/queue/syncs.ts';
import { openDashboard, type Visitor } from './browser-session.ts';
import { failedEvent, type Installation } from './installation.ts';
import { createPeople } from './people.ts';

describe.each(['redis', 'postgres'] as const)('Bull Board with queues on %s', (kind) => {
  let installation: Installation;
  let visitor: Visitor;
  let board: Board;
  beforeAll(async () => {
    ({ installation, visitor, board } = await openDashboard(kind));
  });
  afterAll(() => installation.stop());

  interface Shown {
    queues: {
      name: string;
      readOnlyMode: boolean;
      counts: Record<string, number>;
      jobs: { data: unknown }[];
    }[];
  }

  test('Bull Board shows every lane, the dead letters and the syncs', async () => {
    const { queues } = (await (await visitor.get('/queues/api/queues')).json()) as Shown;
    expect(queues.map(({ name, readOnlyMode }) => [name, readOnlyMode])).toEqual([
      [DEAD_LETTER_QUEUE, true],
      ...[0, 1, 2, 3].map((lane) => [laneName(lane), true]),
      [SYNC_QUEUE, true],
    ]);
  });

  test('a page has at most twenty jobs, however many are requested', async () => {
    const lane = laneName(3);
    const queue = installation.laneQueues[3]!;
    await queue.addBulk(Array.from({ length: 30 }, (_, job) => ({ name: 'envelope', data: { job } })));
    for (const requested of ['jobsPerPage=1000000', 'jobsPerPage=1&jobsPerPage=1000000', 'jobsPerPage=1e9']) {
      const answer = await visitor.get(
        `/queues/api/queues?activeQueue=${lane}&status=waiting&page=1&${requested}`,
      );
      const { queues } = (await answer.json()) as Shown;
      expect(queues.find(({ name }) => name === lane)!.jobs).toHaveLength(20);
    }
    const last = await visitor.get(
      `/queues/api/queues?activeQueue=${lane}&status=waiting&page=2&jobsPerPage=1000`,
    );
    const { queues } = (await last.json()) as Shown;
    expect(queues.find(({ name }) => name === lane)!.jobs).toHaveLength(10);
    await queue.drain();
  });

  test('sync runs and schedules are shown and cannot be changed', async () => {
    const syncs = createSyncQueue(installation.connection, 10_000);
    const [run, integration] = [uuidv7(), uuidv7()];
    await syncs.add(run);
    await syncs.schedule({ id: integration, pattern: '0 3 * * *' });
    for (const [status, data] of [
      ['waiting', { job_id: run }],
      ['delayed', { integration_id: integration }],
    ] as const) {
      const answer = await visitor.get(
        `/queues/api/queues?activeQueue=${SYNC_QUEUE}&status=${status}&page=1&jobsPerPage=10`,
      );
      const { queues } = (await answer.json()) as Shown;
      const shown = queues.find(({ name }) => name === SYNC_QUEUE)!;
      expect(shown.jobs).toMatchObject([{ data }]);
      expect(shown.counts).toMatchObject({ [status]: 1 });
    }
    for (const action of [
      'pause',
      'empty',
      'obliterate',
      'promote',
      'clean/waiting',
      `${run}/clean`,
      `${run}/promote`,
    ])
      expect([action, (await visitor.put(`/queues/api/queues/${SYNC_QUEUE}/${action}`)).status]).toEqual([
        action,
        403,
      ]);
    expect((await visitor.put(`/queues/api/queues/${SYNC_QUEUE}/${run}/retry`)).status).toBe(403);
    const scheduler = `/queues/api/queues/${SYNC_QUEUE}/job-schedulers/${integration}`;
    for (const action of ['remove', 'run'])
      expect((await visitor.put(`${scheduler}/${action}`)).status).toBe(403);
    expect((await visitor.send('PATCH', scheduler)).status).toBe(403);
    expect(await syncs.scheduled()).toEqual([{ id: integration, pattern: '0 3 * * *' }]);
    await syncs.stop();
  });

  test('an envelope is shown by request, with at most a hundred objects', async () => {
    const requests = [60, 60, 10].map((count, index) => ({
      request_id: `request-${index}`,
      count,
      workspace_id: uuidv7(),
      accepted_at: '2026-01-02T03:04:05.000Z',
    }));
    const objects = Array.from({ length: 130 }, (_, index) => ({
      ...failedEvent().object,
      // Rows contain only `create: false`.
      create: undefined,
      index: index % 60,
    }));
    await installation.producer.add([{ lane: 2, id: uuidv7(), envelope: { requests, objects } }]);
    const answer = await visitor.get(
      `/queues/api/queues?activeQueue=${laneName(2)}&status=waiting&page=1&jobsPerPage=10`,
    );
    const { queues } = (await answer.json()) as Shown;
    const lane = queues.find(({ name }) => name === laneName(2))!;
    expect(lane.counts).toMatchObject({ waiting: 1 });
    const [first, second] = [objects.slice(0, 60), objects.slice(60, 100)];
    expect(lane.jobs[0]!.data).toEqual({
      count: 130,
      shown: 100,
      requests: [
        { ...requests[0], objects: first },
        { ...requests[1], objects: second },
      ],
    });
  });

  test('a lane can be viewed but not changed', async () => {
    const [lane] = installation.laneQueues;
    await lane!.setGlobalConcurrency(1);
    await lane!.add('envelope', {}, { jobId: 'held' });
    for (const action of [
      'pause',
      'resume',
      'empty',
      'obliterate',
      'promote',
      'clean/waiting',
      'concurrency',
    ]) {
      expect([action, (await visitor.put(`/queues/api/queues/${laneName(0)}/${action}`)).status]).toEqual([
        action,
        403,
      ]);
    }
    for (const action of ['clean', 'promote']) {
      expect((await visitor.put(`/queues/api/queues/${laneName(0)}/held/${action}`)).status).toBe(403);
    }
    expect((await visitor.put(`/queues/api/queues/${laneName(0)}/held/retry`)).status).toBe(403);
    expect((await visitor.put(`/queues/api/queues/${laneName(0)}/retry/failed`)).status).toBe(403);
    expect((await visitor.put('/queues/api/queues/pause')).status).toBe(403);
    expect((await visitor.send('POST', `/queues/api/queues/${laneName(0)}/add`)).status).toBe(403);
    expect((await visitor.send('PATCH', `/queues/api/queues/${laneName(0)}/held/update-data`)).status).toBe(
      403,
    );
    expect(await (await visitor.get(`/queues/api/queues/${laneName(0)}/held`)).json()).toMatchObject({
      job: { data: {} },
    });
    expect(await lane!.getJobState('held')).toBe('waiting');
    expect(await lane!.isPaused()).toBe(false);
    expect(await lane!.getGlobalConcurrency()).toBe(1);
  });

  test('a dead letter can be viewed but not changed', async () => {
    await installation.deadLetterQueue.add('events', {}, { jobId: 'dead' });
    for (const action of [
      'pause',
      'empty',
      'obliterate',
      'clean/waiting',
      'retry/failed',
      'dead/retry',
      'dead/clean',
    ])
      expect((await visitor.put(`/queues/api/queues/${DEAD_LETTER_QUEUE}/${action}`)).status).toBe(403);
    expect(await installation.deadLetterQueue.getJobState('dead')).toBe('waiting');
  });

  test('a viewer without full rights sees jobs without personal data', async () => {
    const { visitor: looker } = await createPeople(installation, board).arrive();
    const row = failedEvent();
    await installation.deadLetterQueue.add(
      'events',
      {
        dead_letter_id: row.id,
        request_id: row.requestId,
        workspace_id: row.workspaceId,
        object: row.object,
      },
      { jobId: 'masked' },
    );
    const request = {
      ...{ request_id: uuidv7(), workspace_id: uuidv7(), accepted_at: '2026-01-02T03:04:05.000Z', count: 1 },
    };
    await installation.producer.add([
      { lane: 1, id: uuidv7(), envelope: { requests: [request], objects: [row.object] } },
    ]);
    for (const name of [DEAD_LETTER_QUEUE, laneName(1)]) {
      const path = `/queues/api/queues?activeQueue=${name}&status=waiting&page=1&jobsPerPage=10`;
      const [whole, masked] = await Promise.all(
        [visitor, looker].map(async (one) => (await one.get(path)).text()),
      );
      expect([whole!.includes('teal'), masked!.includes('teal')]).toEqual([true, false]);
      expect(masked).not.toContain('external_id');
      expect(masked).toContain('request_id');
    }
  });
});
