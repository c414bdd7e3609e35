import { randomUUID } from 'node:crypto';
import type { Json } from '../../src/profile/json.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import type { Fleet } from '../guarantees/fleet.ts';
import { type ApiAnswer, type ApiRequest, send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';

const time = '2026-01-02T03:04:05Z';

/**
 * Returns one object of each kind of /users/track, to be counted later; with an address, so that lanes wait
 * for each other.
 */
export function tracked(user: string): Record<string, Json> {
  return {
    attributes: [{ external_id: user, email: `${user}@example.com`, points: { inc: 1 } }],
    events: [{ external_id: user, name: 'seen', time }],
    purchases: [{ external_id: user, product_id: 'book', currency: 'EUR', price: 2, time }],
  };
}

/** Rows in the store after `tracked` has taken effect once. */
export const ONCE = { points: 1, events: 1, purchases: 1 };

export const newKey = (): string => randomUUID();

/** Sends a request with a key to one of the web processes. */
export function call(
  { edges, workspace }: Fleet,
  key: string,
  { path = '/users/track', headers, ...request }: ApiRequest,
  edge = 0,
): Promise<ApiAnswer> {
  return send(edges[edge % edges.length]!.port, {
    path,
    key: workspace.key,
    headers: { 'Idempotency-Key': key, ...headers },
    ...request,
  });
}

/** Repeats `ask` while the answer asks for a retry, as a client does. */
export async function askUntilAnswered(
  fleet: Fleet,
  key: string,
  request: ApiRequest,
  edge = 0,
): Promise<ApiAnswer> {
  let answer: ApiAnswer | undefined;
  const isAnswered = async () => {
    answer = await call(fleet, key, request, edge);
    if (answer.status === 503 && answer.headers.get('retry-after') !== '1') throw new Error('no Retry-After');
    return answer.status !== 503;
  };
  await waitUntil(isAnswered, { what: 'an answer', deadline: 30_000 });
  return answer!;
}

/** Sends the same request so many times at once, to all web processes in turn. */
export function askAtOnce(fleet: Fleet, times: number, key: string, request: ApiRequest) {
  return Promise.all(
    Array.from({ length: times }, (_, index) => askUntilAnswered(fleet, key, request, index)),
  );
}

/** Returns the parts of an answer that are equal in every repetition. */
export function saidBy({ status, body, headers }: ApiAnswer) {
  return { status, body, requestId: headers.get('x-request-id') };
}

/** Counts the effects of each part of `tracked` for each user, once all accepted requests are applied. */
export async function effectsOn(fleet: Fleet, users: string[]) {
  const { pool, edges, workspace } = fleet;
  const last = `last-${randomUUID()}`;
  for (let start = 0; start < users.length; start += 75) {
    const events = users.slice(start, start + 75).map((external_id) => ({ external_id, name: last, time }));
    const { status } = await send(edges[0]!.port, {
      path: '/users/track',
      key: workspace.key,
      json: { events },
    });
    if (status !== 201) throw new Error(`answered with ${status}`);
  }
  const marked = async () => {
    const { rows } = await pool.query('select count(*)::integer from event_summaries where name = $1', [
      last,
    ]);
    return rows[0].count === users.length;
  };
  await waitUntil(marked, { what: 'what was accepted to be applied', deadline: 30_000 });
  const { rows } = await pool.query(
    `select external_id as user, (custom_attributes -> 'points')::integer as points,
            (select coalesce(sum(count), 0)::integer from event_summaries
              where profile_id = profiles.id and name = 'seen') as events,
            (select coalesce(sum(count), 0)::integer from purchase_summaries
              where profile_id = profiles.id) as purchases
       from profiles where external_id = any($1)`,
    [users],
  );
  return new Map(rows.map(({ user, ...effects }) => [user, effects]));
}

/** Makes the lanes reject jobs until the returned function is called; rate limits work as usual. */
export async function closeLanes({ redis, pool }: Fleet): Promise<() => Promise<void>> {
  if (redis) {
    const operator = new Redis(redis.url);
    await operator.call('ACL', 'SETUSER', 'default', 'resetkeys', '~{penstock}:limit:*');
    return async () => {
      await operator.call('ACL', 'SETUSER', 'default', 'allkeys');
      operator.disconnect();
    };
  }
  const client = await pool.connect();
  await client.query('begin; lock table bullmq.job in exclusive mode');
  return async () => {
    await client.query('rollback');
    client.release();
  };
}

/** A lock number that no other lock of the database has. */
const ANSWERS = 4_711;

/**
 * Blocks the storing of answers until the returned function is called, which ends the waiting process's
 * connection, as if its
 * machine had died.
 */
export async function holdAnswers({ pool }: Fleet): Promise<() => Promise<void>> {
  await pool.query(`
    create or replace function hold_answers() returns trigger language plpgsql as $$
    begin perform pg_advisory_xact_lock_shared(${ANSWERS}); return new; end $$;
    create or replace trigger hold_answers before update on idempotency_keys for each row
    when (old.staged is not null and new.staged is null) execute function hold_answers()`);
  const client = await pool.connect();
  await client.query(`select pg_advisory_lock(${ANSWERS})`);
  return async () => {
    await client.query(
      `select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objid = ${ANSWERS} and not granted`,
    );
    await client.query(`select pg_advisory_unlock(${ANSWERS})`);
    client.release();
  };
}

/** Returns the request id of the key whose request is still open. */
export function openRequest({ pool }: Fleet, operation: string): Promise<string> {
  const find = async () => {
    const { rows } = await pool.query(
      `select request_id from idempotency_keys
        where operation = $1 and (status is null or staged is not null)`,
      [operation],
    );
    return rows[0]?.request_id as string | undefined;
  };
  return waitUntil(find, { what: 'a key to be written down' });
}
