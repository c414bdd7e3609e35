import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { HttpConnection } from '../../load/http-connection.ts';
import type { Contender } from '../contender.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { giveEvents, makeUsers } from '../identity-users.ts';
import { post } from '../post.ts';
import type { Size } from '../size.ts';

/** Elements of one request: the maximum of the specification. */
const PER_REQUEST = 50;
const CONNECTIONS = 8;

const DRAIN_MS = 120_000;

/** Measures identity operations on tables that are filled directly. */
export function identityRows(fleets: Fleets, { identityRequests: requests, mergedEvents }: Size): BenchRow[] {
  let turn = 0;

  const fleet = () => fleets.scratch('identity');

  async function merges(): Promise<Figure> {
    const ours = await fleet();
    const { pool } = ours;
    const [from, into] = [`from${++turn}`, `into${turn}`];
    await makeUsers(pool, from, requests * PER_REQUEST);
    await makeUsers(pool, into, requests * PER_REQUEST);
    return inRequestsOf50(ours, requests, '/users/merge', (number) => ({
      merge_updates: many(number, (user) => ({
        identifier_to_merge: { external_id: `${from}-${user}` },
        identifier_to_keep: { external_id: `${into}-${user}` },
      })),
    }));
  }

  async function identifies(): Promise<Figure> {
    const ours = await fleet();
    const { pool } = ours;
    const [from, into] = [`anon${++turn}`, `known${turn}`];
    await makeUsers(pool, from, requests * PER_REQUEST, false);
    await makeUsers(pool, into, requests * PER_REQUEST);
    return inRequestsOf50(ours, requests, '/users/identify', (number) => ({
      aliases_to_identify: many(number, (user) => ({
        external_id: `${into}-${user}`,
        user_alias: { alias_label: 'bench', alias_name: `${from}-${user}` },
      })),
    }));
  }

  /** Measures the time from the request until the external id of the merged user no longer exists. */
  async function mergeOf(events: number): Promise<Figure> {
    const ours = await fleet();
    const { pool } = ours;
    const [from, into] = [`heavy${++turn}`, `host${turn}`];
    await makeUsers(pool, from, 1);
    await makeUsers(pool, into, 1);
    await giveEvents(pool, `${from}-1`, events);
    await pool.query('checkpoint');
    const connection = new HttpConnection(ours.target);
    const started = performance.now();
    await post(connection, ours, '/users/merge', {
      merge_updates: [
        {
          identifier_to_merge: { external_id: `${from}-1` },
          identifier_to_keep: { external_id: `${into}-1` },
        },
      ],
    });
    const gone = async () =>
      (await pool.query('select from profiles where external_id = $1', [`${from}-1`])).rowCount === 0;
    while (!(await gone())) await sleep(0.5);
    const milliseconds = performance.now() - started;
    connection.close();
    return { value: milliseconds, unit: 'ms', detail: { rows: 1 } };
  }

  return [
    { name: 'merges', what: 'merges/s accepted and applied, 50 per request', measure: merges },
    { name: 'identifies', what: 'identifies/s accepted and applied, 50 per request', measure: identifies },
    ...mergedEvents.map((events) => ({
      name: `merge-${events}`,
      what: `one merge after the other, of a user with ${events.toLocaleString('en')} events`,
      measure: () => mergeOf(events),
    })),
  ];
}

async function inRequestsOf50(
  ours: Contender,
  requests: number,
  path: string,
  body: (number: number) => object,
): Promise<Figure> {
  const { pool } = ours;
  const before = await applied(pool);
  const started = performance.now();
  let next = 0;
  await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      const connection = new HttpConnection(ours.target);
      while (next < requests) await post(connection, ours, path, body(next++));
      connection.close();
    }),
  );
  const rows = requests * PER_REQUEST;
  while ((await applied(pool)) < before + rows) {
    if (performance.now() - started > DRAIN_MS) throw new Error(`${path}: not applied in time`);
    await sleep(5);
  }
  const seconds = (performance.now() - started) / 1000;
  const { rowCount } = await pool.query('select from dead_letters limit 1');
  if (rowCount) throw new Error(`${path}: there are dead letters`);
  return { value: rows / seconds, unit: '/s', detail: { rows, seconds } };
}

async function applied(pool: pg.Pool): Promise<number> {
  const { rows } = await pool.query('select coalesce(sum(objects), 0)::float8 as applied from lane_totals');
  return rows[0].applied;
}

function many<T>(number: number, make: (user: number) => T): T[] {
  return Array.from({ length: PER_REQUEST }, (_, index) => make(number * PER_REQUEST + index + 1));
}
