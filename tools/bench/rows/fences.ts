import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { AcceptedObject } from '../../../src/jobs/envelope.ts';
import { readConfig } from '../../../src/platform/config.ts';
import { newId } from '../../../src/platform/ids.ts';
import { createLog } from '../../../src/platform/log.ts';
import { connectProducer } from '../../../src/queue/connection.ts';
import { createLaneProducer } from '../../../src/queue/lane-producer.ts';
import { laneOf } from '../../../src/queue/lanes.ts';
import { type Packable, pack } from '../../../src/queue/pack.ts';
import type { Contender } from '../contender.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import type { Size } from '../size.ts';

const LANES = 4;
const MAX_ENVELOPE_OBJECTS = 1000;
const ADD_TIMEOUT_MS = 20_000;
const DRAIN_MS = 180_000;

/** Flushes per second of the measurement. */
const FLUSHES = 100;

/** Measures flushes in which each workspace changes the address of one user, whose names are in two lanes, so that its fence has two or three lanes. */
export function fenceRows(fleets: Fleets, { seconds }: Size): BenchRow[] {
  const of = async (workspaces: number): Promise<Figure> => {
    const contender = await fleets.fourLanes(1);
    const owners = await workspacesOf(contender.pool, workspaces);
    const { add, stop } = await openLanes(contender);
    const before = await applied(contender.pool);
    const started = performance.now();
    const flushes = FLUSHES * seconds;
    for (let flush = 0; flush < flushes; flush++) await add(owners.map(changeOfAddress));
    await stop();
    const rows = flushes * workspaces;
    while ((await applied(contender.pool)) < before + rows) {
      if (performance.now() - started > DRAIN_MS) throw new Error('fences were not passed in time');
      await sleep(5);
    }
    const took = (performance.now() - started) / 1000;
    return { value: flushes / took, unit: '/s', detail: { rows, seconds: took } };
  };
  return [
    {
      name: 'fences-1',
      what: 'flushes/s whose changes of addresses are in two or three of four lanes, one workspace per flush',
      measure: () => of(1),
    },
    { name: 'fences-20', what: 'the same, with 20 workspaces per flush', measure: () => of(20) },
  ];
}

async function openLanes({ databaseUrl, redisUrl }: Contender) {
  const config = readConfig({ DATABASE_URL: databaseUrl, REDIS_URL: redisUrl, LANES: String(LANES) });
  const connection = connectProducer(config, databaseUrl);
  while (!connection.ready()) await sleep(5);
  const producer = createLaneProducer(connection, {
    timeout: ADD_TIMEOUT_MS,
    log: createLog('test', 'silent'),
  });
  return {
    add: (flush: Packable[]) => producer.add(pack(flush, LANES, MAX_ENVELOPE_OBJECTS)),
    async stop() {
      await producer.stop();
      await connection.stop();
    },
  };
}

function changeOfAddress(workspaceId: string): Packable {
  const id = newId();
  const external_id = `user-${id}`;
  const lane = laneOf(workspaceId, `x:${external_id}`, LANES);
  let number = 0;
  while (laneOf(workspaceId, `e:${number}.${id}@example.com`, LANES) === lane) number++;
  const object: AcceptedObject = {
    ...{ kind: 'attributes', id, index: 0, identifier: { external_id } },
    standard: { email: `${number}.${id}@example.com` },
  };
  const request = {
    ...{ request_id: newId(), workspace_id: workspaceId, accepted_at: new Date().toISOString() },
  };
  return { request, objects: [object], bytes: 200 };
}

async function workspacesOf(pool: pg.Pool, count: number): Promise<string[]> {
  await pool.query(
    `insert into workspaces (id, name, created_at)
     select gen_random_uuid(), 'fences-' || number, now() from generate_series(1, $1::integer) as number
     on conflict do nothing`,
    [count],
  );
  const { rows } = await pool.query<{ id: string }>('select id from workspaces order by id limit $1', [
    count,
  ]);
  return rows.map(({ id }) => id);
}

async function applied(pool: pg.Pool): Promise<number> {
  const { rows } = await pool.query('select coalesce(sum(objects), 0)::float8 as applied from lane_totals');
  return rows[0].applied;
}
