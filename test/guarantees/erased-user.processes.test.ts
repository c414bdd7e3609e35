import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { beforeAll, describe, expect, test } from 'vitest';
import { Redis } from '../../src/queue/ioredis.ts';
import { eraseDeletedFromLog } from '../../src/retention/erase-log.ts';
import { openPool } from '../../src/store/database.ts';
import { eraseStaleRows } from '../../src/store/imports.ts';
import { createDestination } from '../../src/store/stream-destinations.ts';
import { endStaleRuns } from '../../src/store/sync-chunks.ts';
import { startRun } from '../../src/store/sync-runs.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createIntegration } from '../setup/integrations.ts';
import { makeTriggers } from '../workers/batch.ts';
import { backends, type Fleet, startFleet } from './fleet.ts';

/** A text that is planted in all data of the user. */
const MARKER = `planted${randomBytes(6).toString('hex')}`;
const PHONE = `+1415${String(Math.floor(1e6 + Math.random() * 8e6))}`;

describe.each(backends)('a user with personal data in every place; queue on %s', (backend) => {
  let fleet: Fleet;
  let redis: Redis | undefined;
  /** Connections as processes open them, which can send the statements of the store to a Citus. */
  let store: pg.Pool;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 1, workers: 1 });
    redis = fleet.redis && new Redis(fleet.redis.url);
    store = openPool(fleet.env.DATABASE_URL!, 2);
    await makeTriggers(fleet.pool, [
      `create function refuse() returns trigger language plpgsql as $$
      begin
        if new.name = 'refused' then perform new.properties::text::integer; end if;
        return new;
      end $$`,
      'create trigger refuse before insert on events for each row execute function refuse()',
    ]);
    return async () => {
      redis?.disconnect();
      await store.end();
      await fleet.stop();
    };
  });

  /** Returns the tables and keys that contain personal data of the user. */
  async function locations(): Promise<string[]> {
    return [...(await tables()), ...(await keys())].sort();
  }

  async function tables(): Promise<string[]> {
    const { rows } = await fleet.pool.query<{ name: string }>(`
      select format('%I.%I', table_schema, table_name) as name from information_schema.tables
      where table_type = 'BASE TABLE' and table_schema not in ('pg_catalog', 'information_schema')`);
    const results: string[] = [];
    for (const { name } of rows) {
      const text = 'row_to_json(whole_row)::text';
      const hex = Buffer.from(MARKER).toString('hex');
      const { rowCount } = await fleet.pool.query(
        `select from ${name} as whole_row where ${text} ~ $1 limit 1`,
        [[MARKER, hex, PHONE.slice(1)].join('|')],
      );
      if (rowCount) results.push(name);
    }
    return results;
  }

  async function keys(): Promise<string[]> {
    const collected: string[] = [];
    for (const key of redis ? await redis.keys('*') : []) {
      const value = await contentOf(key);
      if ([MARKER, PHONE].some((text) => (key + value).includes(text))) collected.push(key);
    }
    return collected;
  }

  async function contentOf(key: string): Promise<string> {
    const readers: Record<string, (() => Promise<unknown>) | undefined> = {
      string: () => redis!.get(key),
      hash: () => redis!.hgetall(key),
      list: () => redis!.lrange(key, '0', '-1'),
      set: () => redis!.smembers(key),
      zset: () => redis!.zrange(key, '0', '-1'),
      stream: () => redis!.xrange(key, '-', '+'),
    };
    const type = await redis!.type(key);
    return JSON.stringify((await readers[type]?.()) ?? null);
  }

  /** Returns the entries of the log of streams that mention the user. */
  async function mentions(): Promise<string[]> {
    const { rows } = await fleet.pool.query<{ message: string }>(
      `select entry.value::text as message from stream_log cross join lateral json_each(details) as entry
      where entry.value::text ~ $1`,
      [[MARKER, PHONE.slice(1)].join('|')],
    );
    return rows.map(({ message }) => message);
  }

  /** Inserts rows of an import and of a sync that are not enqueued yet. */
  async function interruptedRows(): Promise<void> {
    const { pool, workspace } = fleet;
    const rows = JSON.stringify([{ external_id: MARKER, phone: PHONE }]);
    await pool.query(
      `insert into imports (workspace_id, key, id, file, digest, reading, staged, envelope_ids)
      values ($1, '\\x01', $2, 'users.csv', '\\x01', '{}', $3, array[$2::uuid])`,
      [workspace.id, uuidv7(), rows],
    );
    const [id, integrationId] = [uuidv7(), await createIntegration(pool, workspace.id)];
    await startRun(pool, { id, integrationId, askedBy: 'operator' });
    await pool.query(
      `insert into sync_chunks (job_id, envelope_ids, entries, rows, progress) values ($1, $2, $3, '{}', '{}')`,
      [id, [uuidv7()], rows],
    );
  }

  test('leaves its external id in one entry of the stream log once the user is deleted', async () => {
    const post = async (path: string, body: object, headers: Record<string, string> = {}) => {
      const { status } = await fetch(`http://127.0.0.1:${fleet.edges[0]!.port}${path}`, {
        method: 'POST',
        headers: {
          ...{ 'Content-Type': 'application/json', Authorization: `Bearer ${fleet.workspace.key}` },
          ...headers,
        },
        body: JSON.stringify(body),
      });
      expect(status).toBeLessThan(300);
    };
    await interruptedRows();
    await createDestination(fleet.pool, {
      ...{ workspaceId: fleet.workspace.id, id: uuidv7(), name: 'crm', kind: 'webhook' },
      ...{ settings: { url: 'http://127.0.0.1:9/' }, secret: null },
    });
    const user = { external_id: MARKER };
    const event = { ...user, time: new Date().toISOString(), properties: { note: MARKER } };
    const attributes = {
      ...{ ...user, first_name: MARKER, email: `${MARKER}@example.com`, phone: PHONE },
      custom: MARKER,
    };
    await post('/users/track', { attributes: [{ ...attributes, email: `old${MARKER}@example.com` }] });
    const refused = ['email', 'dob', 'country', 'language', 'time_zone', 'email_subscribe', 'first_name'];
    await post(
      '/users/track',
      {
        attributes: [
          { ...attributes, email_subscribe: 'opted_in' },
          ...refused.map((field) => ({ ...user, [field]: field === 'first_name' ? { of: MARKER } : MARKER })),
          {
            ...user,
            subscription_groups: [{ subscription_group_id: MARKER, subscription_state: 'subscribed' }],
          },
        ],
        events: [{ ...user, name: 'seen', time: MARKER }],
        purchases: [{ ...user, product_id: 'hat', currency: MARKER, price: MARKER, time: MARKER }],
      },
      { 'Idempotency-Key': 'refused' },
    );
    await post(
      '/users/track',
      { attributes: [attributes], events: [{ ...event, name: 'seen' }] },
      { 'Idempotency-Key': 'first' },
    );
    await post('/users/alias/new', {
      user_aliases: [{ ...user, alias_name: MARKER, alias_label: 'crm' }],
    });
    await post('/users/track', { events: [{ ...event, name: 'refused' }] });
    const shown = async () => {
      const result = await locations();
      return (
        result.includes('public.dead_letters') && result.some((name) => /dead-letters|bullmq/.test(name))
      );
    };
    await waitUntil(shown, { what: 'the dead letter in the queue' });
    await post('/users/delete', { external_ids: [MARKER] });
    const explain = async () => (await locations()).join(', ');
    const only = (position: string) => async () => (await locations()).join() === position;
    const kept = ['imports', 'stream_erasures', 'stream_log', 'sync_chunks'].map((name) => `public.${name}`);
    await waitUntil(only(kept.join()), { what: 'the erasure', deadline: 30_000, explain });
    for (const table of ['imports', 'sync_chunks'])
      await fleet.pool.query(`update ${table} set staged_at = now() - interval '8 days'`);
    await eraseStaleRows(store);
    await endStaleRuns(store);
    const erasedFromLog = async () => {
      await eraseDeletedFromLog(store, fleet.workspace.id);
      return (await mentions()).length === 1;
    };
    await waitUntil(erasedFromLog, {
      what: 'the pass over the log',
      explain: async () => String(await mentions()),
    });
    expect(await locations()).toEqual(['public.stream_log']);
    expect(await mentions()).toEqual([`{"change":"deleted","external_id":"${MARKER}"}`]);
  });
});
