import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { encryptCredentials, keysOf } from '../../../src/integrations/source.ts';
import { newId } from '../../../src/platform/ids.ts';
import { QUEUE_SCHEMA } from '../../../src/queue/bullmq-queues.ts';
import { createDestination } from '../../../src/store/stream-destinations.ts';
import { newWebhookSecret } from '../../../src/streams/webhook.ts';
import { countProcessed, type Fleet } from '../../../test/setup/fleet.ts';
import { leaveBehind } from '../../../test/setup/left-behind.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import type { Scenario } from '../scenario.ts';
import type { Scene } from '../scene.ts';
import { beginTraffic } from '../traffic.ts';

/**
 * Bytes by which the queue's tables may grow for each job that is added while the snapshot is held: the
 * versions of a job that no vacuum may remove, with its data and its index entries.
 */
const BYTES_PER_JOB = 16_384;

/** Milliseconds until autovacuum has removed dead rows after the snapshot is released. */
const VACUUM_MS = 60_000;

/**
 * Share of the rate that remains. Each statement of BullMQ on its table reads the dead rows of all jobs since
 * the snapshot, so the rate of the queue falls with time; a rate of 0.95 would need another table.
 */
const MIN_SHARE = 0.6;

/** Dead rows of the queue's table that autovacuum may leave at full load. */
const MAX_USUAL_DEAD = 2000;

/** A forgotten transaction holds a snapshot, so that no vacuum can remove dead rows. */
export const heldSnapshot: Scenario = {
  number: 33,
  fault: 'another transaction holds a snapshot',
  backends: ['postgres'],
  async run(scene) {
    const INTEGRATION_KEY = randomBytes(32).toString('base64');
    // At full load, streams yield to workers by default.
    const env = { INTEGRATION_KEY, STREAM_YIELD_SECONDS: '0', SYNC_NICE: '0' };
    const { url } = await scene.createDatabase();
    const { fleet, load, circles } = await beginTraffic(scene, { url, syncs: 1, env });
    const receiver = await startCountingReceiver();
    await createStream(fleet, receiver.url, keysOf(INTEGRATION_KEY));
    await waitUntil(() => receiver.count() > 0, { what: 'the first message of the stream' });

    scene.say('without a snapshot');
    await sleep(scene.choose(10_000, 1000));
    const before = await measure(scene.choose(30_000, 4000));

    scene.say('a transaction holds a snapshot');
    const release = await holdSnapshot(url);
    const [sizeBefore, jobsBefore] = [await sizesOf(fleet), await jobsAdded(fleet)];
    const held = scene.choose(180_000, 15_000);
    await sleep((held * 2) / 3);
    const during = await measure(held / 3);
    const [growth, jobs] = [await growthSince(sizeBefore), (await jobsAdded(fleet)) - jobsBefore];
    const dead = await deadRows(fleet);
    await release();

    scene.say('after the snapshot');
    const from = Date.now();
    // Autovacuum ignores tables with few dead rows.
    if (scene.short) await fleet.pool.query(`vacuum ${JOBS}`);
    await waitUntil(async () => (await deadRows(fleet)) < Math.max(MAX_USUAL_DEAD, dead / 10), {
      ...{ what: 'dead rows of the queue to be vacuumed', deadline: 2 * VACUUM_MS },
    }).catch(() => {});
    const vacuumed = Date.now() - from;
    const after = await measure(scene.choose(30_000, 1000));

    // The short form runs beside other tests, which share its processors and hold transactions on the same server.
    const share = scene.short ? {} : { atLeast: MIN_SHARE };
    scene.figure('objects/s applied before', before.applied, '');
    scene.figure('share of it in the last third', during.applied / before.applied, '', share);
    scene.figure('stream messages/s before', before.delivered, '');
    scene.figure('share of them in the last third', during.delivered / before.delivered, '', share);
    scene.notes.push(
      `after the snapshot: ${Math.round(after.applied)} objects/s, ${Math.round(after.delivered)} messages/s`,
    );
    scene.figure('dead rows of the queue when it is released', dead, '', { atLeast: scene.choose(1000, 1) });
    scene.figure('growth of the queue per added job', growth[JOBS]! / jobs, 'B', { atMost: BYTES_PER_JOB });
    scene.figure('vacuumed after the release', vacuumed / 1000, 's', { atMost: VACUUM_MS / 1000 });
    scene.notes.push(`${jobs} jobs added; growth in bytes: ${JSON.stringify(growth)}`);
    await scene.waitUntilApplied(fleet, {
      ...{ load, circles },
      whenDrained: () => waitForStream(scene, fleet),
    });

    /** Returns objects applied and messages delivered per second. */
    async function measure(milliseconds: number): Promise<{ applied: number; delivered: number }> {
      const [applied, delivered, begin] = [
        ...[await countProcessed(fleet), receiver.count(), performance.now()],
      ] as const;
      await sleep(milliseconds);
      const [nextApplied, seconds] = [await countProcessed(fleet), (performance.now() - begin) / 1000];
      return {
        applied: (nextApplied - applied) / seconds,
        delivered: (receiver.count() - delivered) / seconds,
      };
    }

    async function growthSince(sizes: Record<string, number>): Promise<Record<string, number>> {
      const now = await sizesOf(fleet);
      return Object.fromEntries(tables.map((name) => [name, now[name]! - sizes[name]!]));
    }
  },
};

const JOBS = `${QUEUE_SCHEMA}.job`;

/** Tables of which rows are changed or removed for each job or each batch. */
const tables = [JOBS, 'lane_totals', 'ledger', 'stream_log', 'stream_destinations'];

async function sizesOf({ pool }: Fleet): Promise<Record<string, number>> {
  const { rows } = await pool.query<{ name: string; bytes: string }>(
    'select name, pg_total_relation_size(name::regclass) as bytes from unnest($1::text[]) as name',
    [tables],
  );
  return Object.fromEntries(rows.map(({ name, bytes }) => [name, Number(bytes)]));
}

async function jobsAdded({ pool }: Fleet): Promise<number> {
  const { rows } = await pool.query('select sum(envelopes)::float8 as count from lane_totals');
  return rows[0].count;
}

async function deadRows({ pool }: Fleet): Promise<number> {
  const { rows } = await pool.query(
    'select n_dead_tup::integer as dead from pg_stat_user_tables where relid = $1::regclass',
    [JOBS],
  );
  return rows[0].dead;
}

/** Opens a transaction with a snapshot, as a forgotten session or pg_dump does. @returns its end */
async function holdSnapshot(url: string): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: url, application_name: 'forgotten' });
  client.on('error', () => {});
  await client.connect();
  leaveBehind(() => client.end());
  await client.query('begin isolation level repeatable read; select count(*) from workspaces');
  const { rows } = await client.query(
    'select backend_xmin is not null as held from pg_stat_activity where pid = pg_backend_pid()',
  );
  if (!rows[0].held) throw new Error('the transaction holds no snapshot');
  return async () => {
    await client.query('rollback');
    await client.end();
  };
}

/** Starts a receiver of webhooks that counts messages. */
async function startCountingReceiver() {
  let count = 0;
  const server = createServer(async (request, response) => {
    // The sender may end in the middle of a request.
    const text = await readText(request).catch(() => undefined);
    if (text === undefined) return;
    count += JSON.parse(text).messages.length;
    response.writeHead(204).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  leaveBehind(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/in`,
    count: () => count,
  };
}

async function createStream({ pool, workspace }: Fleet, url: string, keys: Buffer[]): Promise<void> {
  const id = newId();
  const secret = encryptCredentials({ webhook_secret: newWebhookSecret() }, id, keys);
  await createDestination(pool, {
    ...{ workspaceId: workspace.id, id, name: 'receiver', kind: 'webhook', settings: { url }, secret },
  });
}

/** Waits until the stream has delivered the whole log, and adds the rest as a figure. */
async function waitForStream(scene: Scene, { pool }: Fleet): Promise<void> {
  const countWaiting = async () => {
    const { rows } = await pool.query(
      `select count(*)::integer as rows from stream_log join stream_destinations using (workspace_id)
       where stream_log.id > stream_destinations.position`,
    );
    return rows[0].rows as number;
  };
  await waitUntil(async () => (await countWaiting()) === 0, { what: 'the stream', deadline: 120_000 }).catch(
    () => {},
  );
  scene.figure('rows of the log that the stream has not delivered', await countWaiting(), '', { atMost: 0 });
}
