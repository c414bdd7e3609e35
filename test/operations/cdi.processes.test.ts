import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { errorBodyOf } from '../../src/errors.ts';
import { SYNC_QUEUE } from '../../src/jobs/catalog.ts';
import { readConfig } from '../../src/platform/config.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer } from '../../src/queue/connection.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import type { ApiAnswer } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createScene, jobsOf, linksOf, type Scene } from './cdi-scene.ts';

const placesOf = ({ body }: ApiAnswer): number[] =>
  body.results.map((row: { rows_synced: number }) => row.rows_synced);
const down = (from: number, to: number) => Array.from({ length: from - to + 1 }, (_, index) => from - index);

describe.each(eitherBackend)('warehouse integrations over REST, with the queue in %s', (backend) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await createScene(backend);
  });
  afterAll(() => scene.stop());

  test('an integration is listed with the specified fields, without source and credentials', async () => {
    const workspace = await scene.shop();
    const id = await scene.create(workspace, {
      name: 'gone users',
      kind: 'deletes',
      schedule: 'every 15 minutes',
      contactEmails: 'ada@example.com,bob@example.com',
      source: {
        type: 'postgres',
        host: 'secret-host',
        port: 5432,
        database: 'dwh',
        table: 'gone',
        tls: 'on',
      },
    });
    await scene.fleet.pool.query(
      `update integrations set last_timestamp = '2026-01-31T11:58:03.123456Z', credentials = 'secret' where id = $1`,
      [id],
    );
    await scene.addRuns(id, 1, 2);
    await scene.fleet.pool.query(
      `insert into sync_jobs (id, integration_id, asked_by, started_at) values ($1, $2, 'api', '2026-01-31T12:00:00.031Z')`,
      [uuidv7(), id],
    );
    const { status, body, headers } = await scene.send(workspace, '/cdi/integrations');
    expect(status).toBe(200);
    expect(headers.get('link')).toBeNull();
    expect(body).toEqual({
      results: [
        {
          integration_id: id,
          app_group_id: workspace.id,
          integration_name: 'gone users',
          integration_type: 'user_deletes',
          integration_status: 'active',
          contact_emails: 'ada@example.com,bob@example.com',
          last_updated_at: '2026-01-31T11:58:03.123456Z',
          warehouse_type: 'postgres',
          last_job_start_time: '2026-01-31T12:00:00.031Z',
          last_job_status: 'running',
          next_scheduled_run: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:(00|15|30|45):00\.000Z$/),
        },
      ],
      message: 'success',
    });
    expect(Date.parse(body.results[0].next_scheduled_run)).toBeGreaterThan(Date.now());
    expect(JSON.stringify(body)).not.toContain('secret');
  });

  test.each([
    ['that was never synced and runs on demand', {}],
    ['that is paused', { status: 'paused', schedule: 'daily' }],
    ['that is a draft', { status: 'draft', schedule: 'daily' }],
  ] as const)('an integration %s has no next run', async (_what, change) => {
    const workspace = await scene.shop();
    await scene.create(workspace, change);
    expect((await scene.send(workspace, '/cdi/integrations')).body.results).toMatchObject([
      { last_updated_at: null, last_job_start_time: null, last_job_status: null, next_scheduled_run: null },
    ]);
  });

  test('a job is listed with its status, times, timestamp and counts', async () => {
    const workspace = await scene.shop();
    const integration = await scene.create(workspace);
    await scene.fleet.pool.query(
      `insert into sync_jobs
         (id, integration_id, asked_by, status, started_at, finished_at, last_timestamp, rows_synced, rows_failed)
       values ($1, $2, 'api', 'partial', '2026-01-31T12:00:00Z', '2026-01-31T12:00:04.518Z', '2026-01-31T11:58:03.123456Z', 1830, 2)`,
      [uuidv7(), integration],
    );
    const { status, body } = await scene.send(workspace, jobsOf(integration));
    expect({ status, body }).toEqual({
      status: 200,
      body: {
        results: [
          {
            job_status: 'partial',
            sync_start_time: '2026-01-31T12:00:00.000Z',
            sync_finish_time: '2026-01-31T12:00:04.518Z',
            last_timestamp_synced: '2026-01-31T11:58:03.123456Z',
            rows_synced: 1830,
            rows_failed_with_errors: 2,
          },
        ],
        message: 'success',
      },
    });
  });

  test('an integration without jobs has an empty list', async () => {
    const workspace = await scene.shop();
    const { body } = await scene.send(workspace, jobsOf((await scene.create(workspace)).toUpperCase()));
    expect(body).toEqual({ results: [], message: 'success' });
  });

  describe.each([
    ['GET', 'job_sync_status'],
    ['POST', 'sync'],
  ])('%s …/%s', (method, verb) => {
    test('an id that is not a UUID is 400 Invalid integration ID', async () => {
      const workspace = await scene.shop();
      for (const id of ['x', '17', 'null', '019c13ec-a2e2-71d4-8c53', '%20']) {
        const { status, body } = await scene.send(workspace, `/cdi/integrations/${id}/${verb}`, method);
        expect({ id, status, body }).toEqual({
          id,
          status: 400,
          body: errorBodyOf('invalidIntegrationId'),
        });
      }
    });

    test("an unknown integration, or another workspace's, is 404 Integration not found", async () => {
      const workspace = await scene.shop();
      const theirs = await scene.create(await scene.shop());
      for (const id of [uuidv7(), theirs]) {
        const { status, body } = await scene.send(workspace, `/cdi/integrations/${id}/${verb}`, method);
        expect({ status, body }).toEqual({ status: 404, body: errorBodyOf('unknownIntegration') });
      }
      const { rows } = await scene.fleet.pool.query('select from sync_jobs where integration_id = $1', [
        theirs,
      ]);
      expect(rows).toEqual([]);
    });
  });

  test('a sync starts once and is queued: 202, then 429 until it has ended', async () => {
    const workspace = await scene.shop();
    const integration = await scene.create(workspace);
    const start = () => scene.send(workspace, `/cdi/integrations/${integration}/sync`, 'POST');
    const answers = await Promise.all([start(), start(), start()]);
    expect(answers.map(({ status, body }) => `${status} ${body.message}`).sort()).toEqual([
      '202 success',
      '429 Another job is in progress',
      '429 Another job is in progress',
    ]);
    const { rows } = await scene.fleet.pool.query(
      'select id, asked_by, status from sync_jobs where integration_id = $1',
      [integration],
    );
    expect(rows).toEqual([{ id: expect.any(String), asked_by: 'api', status: 'running' }]);
    expect(await toldOf(rows[0].id)).toEqual({ job_id: rows[0].id });

    await scene.fleet.pool.query("update sync_jobs set status = 'error', finished_at = now() where id = $1", [
      rows[0].id,
    ]);
    expect((await start()).status).toBe(202);
  });

  test.each(['draft', 'paused'] as const)('a sync of a %s integration is rejected: 400', async (status) => {
    const workspace = await scene.shop();
    const integration = await scene.create(workspace, { status });
    const answer = await scene.send(workspace, `/cdi/integrations/${integration}/sync`, 'POST');
    expect(answer).toMatchObject({ status: 400, body: { message: 'The integration is not active' } });
  });

  test('the limits are 50, 100 and 20 requests a minute', async () => {
    const workspace = await scene.shop({ limited: true });
    const integration = await scene.create(workspace);
    for (const [limit, path, method] of [
      ['50', '/cdi/integrations', 'GET'],
      ['100', jobsOf(integration), 'GET'],
      ['20', `/cdi/integrations/${integration}/sync`, 'POST'],
    ] as const) {
      expect((await scene.send(workspace, path, method)).headers.get('x-ratelimit-limit')).toBe(limit);
    }
  });

  /** Returns the job of the run in the queue of syncs. */
  async function toldOf(run: string): Promise<unknown> {
    const config = readConfig(scene.fleet.env);
    const connection = connectProducer(config, config.DATABASE_URL);
    await waitUntil(() => connection.ready(), { what: 'the queue' });
    const queue = openQueue(connection, SYNC_QUEUE);
    const job = await queue.getJob(run);
    await queue.close();
    await connection.stop();
    return job?.data;
  }

  describe('pages of integrations and their jobs', () => {
    test('integrations are listed ten at a time, newest first, with links to the pages around', async () => {
      const workspace = await scene.shop();
      const ids: string[] = [];
      for (let count = 1; count <= 23; count++) ids.unshift(await scene.create(workspace));
      await scene.create(await scene.shop());
      const idsOf = ({ body }: ApiAnswer) =>
        body.results.map((row: { integration_id: string }) => row.integration_id);
      const first = await scene.send(workspace, '/cdi/integrations');
      const second = await scene.send(workspace, linksOf(first).next!);
      const third = await scene.send(workspace, linksOf(second).next!);
      expect([first, second, third].map(idsOf)).toEqual([ids.slice(0, 10), ids.slice(10, 20), ids.slice(20)]);
      expect([first, second, third].map((page) => Object.keys(linksOf(page)))).toEqual([
        ['next'],
        ['prev', 'next'],
        ['prev'],
      ]);
      expect(idsOf(await scene.send(workspace, linksOf(third).prev!))).toEqual(ids.slice(10, 20));
      const back = await scene.send(workspace, linksOf(second).prev!);
      expect(idsOf(back)).toEqual(ids.slice(0, 10));
      expect(idsOf(await scene.send(workspace, linksOf(back).next!))).toEqual(ids.slice(10, 20));
    });

    test.each([
      [10, {}],
      [11, { next: expect.any(String) }],
    ])('links for %i entries are %j', async (count, expected) => {
      const workspace = await scene.shop();
      const integration = await scene.create(workspace);
      await scene.addRuns(integration, 1, count);
      expect(linksOf(await scene.send(workspace, jobsOf(integration)))).toEqual(expected);
    });

    test('jobs added between two pages cause neither gaps nor duplicates', async () => {
      const workspace = await scene.shop();
      const integration = await scene.create(workspace);
      await scene.addRuns(integration, 1, 25);
      const first = await scene.send(workspace, jobsOf(integration));
      expect(placesOf(first)).toEqual(down(25, 16));
      await scene.addRuns(integration, 26, 38);
      const second = await scene.send(workspace, linksOf(first).next!);
      expect(placesOf(second)).toEqual(down(15, 6));
      const third = await scene.send(workspace, linksOf(second).next!);
      expect([placesOf(third), linksOf(third).next]).toEqual([down(5, 1), undefined]);
      // On the way back, the new jobs appear in their order, and the first page has no previous page.
      const back = [await scene.send(workspace, linksOf(second).prev!)];
      while (linksOf(back[0]!).prev) back.unshift(await scene.send(workspace, linksOf(back[0]!).prev!));
      expect(back.flatMap(placesOf)).toEqual(down(38, 16));
      expect(placesOf(await scene.send(workspace, linksOf(back[0]!).next!))).toEqual(placesOf(back[1]!));
    });

    test('a malformed or changed cursor, or one from another list, is 400 Invalid cursor', async () => {
      const workspace = await scene.shop();
      const [integration, other] = [await scene.create(workspace), await scene.create(workspace)];
      for (const id of [integration, other]) await scene.addRuns(id, 1, 11);
      for (let count = 0; count < 10; count++) await scene.create(workspace);
      const cursorOf = async (path: string, whose = workspace) =>
        new URL(linksOf(await scene.send(whose, path)).next!, 'http://x').searchParams.get('cursor')!;
      const good = await cursorOf(jobsOf(integration));
      const text = Buffer.from(good, 'base64').toString();
      const changed = Buffer.from(
        text.replace(/[0-9a-f](?=:[^:]*$)/, (digit) => (digit === '0' ? '1' : '0')),
      );
      const neighbour = await scene.shop();
      for (let count = 0; count < 11; count++) await scene.create(neighbour);
      const lists: [string, string[]][] = [
        [jobsOf(integration), [await cursorOf(jobsOf(other)), await cursorOf('/cdi/integrations')]],
        ['/cdi/integrations', [good, await cursorOf('/cdi/integrations', neighbour)]],
      ];
      for (const [path, others] of lists) {
        const bad = [
          ...others,
          '',
          'x',
          'c2tpcDow',
          `${good}A`,
          good.slice(0, -4),
          changed.toString('base64'),
        ];
        for (const cursor of bad) {
          const { status, body } = await scene.send(
            workspace,
            `${path}?cursor=${encodeURIComponent(cursor)}`,
          );
          expect({ cursor, status, body }).toEqual({
            cursor,
            status: 400,
            body: errorBodyOf('invalidCursor'),
          });
        }
        const twice = await scene.send(workspace, `${path}?cursor=${good}&cursor=${good}`);
        expect(twice).toMatchObject({ status: 400, body: { message: 'Invalid cursor' } });
      }
      expect(
        (await scene.send(workspace, `${jobsOf(integration)}?cursor=${encodeURIComponent(good)}`)).status,
      ).toBe(200);
    });
  });
});
