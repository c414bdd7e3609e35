import type pg from 'pg';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline } from '../pipeline.ts';
import { seedUsers } from '../seed.ts';
import { CONNECTIONS_OF_75, type Size } from '../size.ts';
import { uuidAt } from '../uuid-at.ts';
import { warmUp } from '../warm-up.ts';

/** Inserts users without traffic, which only increase the size of the tables. */
const addProfiles = `
  insert into profiles (workspace_id, id, external_id, custom_attributes, created_at, updated_at)
  select workspaces.id, ${uuidAt('now()')}, 'grown-' || number, '{"plan": "pro", "visits": 3}', now(), now()
  from workspaces, generate_series($1::integer, $2::integer) as number
  on conflict do nothing`;

/** Inserts events over the last two months for those users, with a prime step between two of them. */
const addEvents = `
  insert into events (workspace_id, id, profile_id, name, "time", app_id, properties)
  select profiles.workspace_id, ${uuidAt("now() - random() * interval '60 days'")}, profiles.id, 'event_' || number % 30,
         now() - random() * interval '60 days', 'web', '{"plan": "pro", "page": "/pricing", "duration_ms": 1200}'
  from generate_series(1, $1::bigint) as number
  join profiles on profiles.external_id = 'grown-' || (1 + number * 7919 % $2::bigint)`;

const countEvents = 'select count(*)::float8 as events from events';

/** Updates the counters, so that they match the rows. */
const countAdded = [
  'update usage set events = events + $1 where ctid = (select min(ctid) from usage)',
  'update lane_totals set objects = objects + $1 where lane = (select min(lane) from lane_totals)',
];

const STEP = 500_000;
const MAX_PROFILES = 1_000_000;

/**
 * Measures the first row again after the tables have grown. Each size is measured once, in the given order.
 *
 * @param sizes numbers of events in the table, ascending. The table of profiles has the same number, at most
 * a million
 */
export function growthRows(
  fleets: Fleets,
  environment: Environment,
  size: Size,
  sizes: number[],
): BenchRow[] {
  let ready: Promise<void> | undefined;

  async function begin(): Promise<void> {
    const contender = await fleets.scratch('growth');
    await seedUsers(contender, size.users);
    await warmUp(contender, environment, size, Number.POSITIVE_INFINITY);
  }

  async function measure(events: number): Promise<Figure> {
    ready ??= begin();
    await ready;
    const scratch = await fleets.scratch('growth');
    if (events > 0) await grow(scratch.pool, events);
    return measurePipeline(scratch, environment, {
      ...size,
      objects: 75,
      connections: CONNECTIONS_OF_75,
      maxRequests: Number.POSITIVE_INFINITY,
    });
  }

  return [0, ...sizes].map((events) => ({
    name: `growth-${events}`,
    what: `75 objects per request on tables of ${events.toLocaleString('en')} events`,
    once: true,
    measure: () => measure(events),
  }));
}

async function grow(pool: pg.Pool, events: number): Promise<void> {
  const profiles = Math.min(MAX_PROFILES, events);
  for (let first = 1; first <= profiles; first += STEP) {
    await pool.query(addProfiles, [first, Math.min(first + STEP - 1, profiles)]);
  }
  const { rows } = await pool.query<{ events: number }>(countEvents);
  for (let stored = rows[0]!.events; stored < events; stored += STEP) {
    const { rowCount } = await pool.query(addEvents, [Math.min(STEP, events - stored), profiles]);
    for (const statement of countAdded) await pool.query(statement, [rowCount]);
  }
  await pool.query('vacuum analyze');
  await pool.query('checkpoint');
}
