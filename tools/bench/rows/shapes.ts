import type { BodyOptions } from '../../load/bodies.ts';
import type { Contender } from '../contender.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline, type Shape } from '../pipeline.ts';
import { CONNECTIONS_OF_75, type Size } from '../size.ts';
import { uuidAt } from '../uuid-at.ts';

/** Inserts profiles with the ids of the traffic's users. */
const addProfiles = `
  insert into profiles (workspace_id, id, external_id, custom_attributes, created_at, updated_at)
  select workspaces.id, ${uuidAt('now()')}, 'load-' || lpad(number::text, 8, '0'), '{"plan": "pro", "visits": 3}', now(), now()
  from workspaces, generate_series($1::integer, $2::integer) as number
  on conflict do nothing`;

const STEP = 500_000;

/**
 * Returns the bytes of the profiles with their indexes, and of Postgres's page cache. Data that does not fit
 * into the cache is read from the cache of the system or from disk.
 */
const sizes = `
  select pg_total_relation_size('profiles')::float8 as base,
    pg_size_bytes(current_setting('shared_buffers'))::float8 as buffers`;

/** Traffic of an SDK on phones: few objects at a time over a connection that stays open. */
const SDK = { objects: [1, 5], connections: 2000 } as const;

interface ShapeOptions {
  size: Size;
  /** Number of profiles in the row with a large base of users. */
  base: number;
}

/**
 * Measures the same pipeline with several traffic shapes: objects/s applied. The other rows differ from the
 * first one.
 */
export function shapeRows(
  fleets: Fleets,
  environment: Environment,
  { size, base }: ShapeOptions,
): BenchRow[] {
  const send = (contender: Contender, shape: Partial<Shape> & { objects?: BodyOptions['objects'] } = {}) =>
    measurePipeline(contender, environment, {
      ...{ users: size.users, seconds: size.seconds, objects: 75, connections: CONNECTIONS_OF_75 },
      ...{ maxRequests: Number.POSITIVE_INFINITY, ...shape },
    });
  const row = (name: string, what: string, shape: Partial<Shape>): BenchRow => ({
    ...{ name: `shape-${name}`, what },
    measure: async () => send(await fleets.ours(), shape),
  });

  async function byWorkspaces(): Promise<Figure> {
    const tenants = await fleets.tenants();
    return send(tenants, { keys: tenants.keys, users: size.usersOfTenant, spread: 'evenly' });
  }

  async function onLargeBase(): Promise<Figure> {
    const scratch = await fleets.scratch('base');
    for (let first = 0; first < base; first += STEP)
      await scratch.pool.query(addProfiles, [first, Math.min(first + STEP, base) - 1]);
    await scratch.pool.query('vacuum analyze profiles');
    await scratch.pool.query('checkpoint');
    const { rows } = await scratch.pool.query<{ base: number; buffers: number }>(sizes);
    const { base: bytes, buffers } = rows[0]!;
    if (bytes <= buffers) throw new Error(`a base of ${bytes} bytes fits into shared_buffers (${buffers})`);
    const warm = { users: base, spread: 'evenly' } as const;
    await send(scratch, { ...warm, seconds: Math.min(6, size.seconds) });
    const figure = await send(scratch, warm);
    return { ...figure, detail: { ...figure.detail, base_bytes: bytes, shared_buffers_bytes: buffers } };
  }

  return [
    row('mixed', '75 mixed objects per request, few of 20,000 users come often', {}),
    row('tenth', 'a tenth of the users has nine tenths of the objects', { spread: 'tenth' }),
    row('ten-names', 'events of ten names, instead of thirty', { eventNames: 10 }),
    row('attributes', 'attributes alone', { kinds: ['attributes'] }),
    row('events', 'events alone', { kinds: ['events'] }),
    row('sdk', 'one to five objects per request, 2,000 keep-alive connections', SDK),
    {
      name: 'shape-workspaces',
      what: '1,000 workspaces of 200 users, in turn',
      measure: byWorkspaces,
    },
    {
      name: 'shape-base',
      what: `objects of ${base.toLocaleString('en')} stored users, all as often`,
      once: true,
      measure: onLargeBase,
    },
  ];
}
