import { randomBytes } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { Redis } from '../../src/queue/bullmq.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { makeTriggers } from '../workers/batch.ts';
import { backends, type Fleet, startFleet } from './fleet.ts';

/** In everything that the user has. */
const MARKER = `planted${randomBytes(6).toString('hex')}`;
const PHONE = `+1415${String(Math.floor(1e6 + Math.random() * 8e6))}`;

describe.each(backends)('a user with personal data in every place; queue on %s', (backend) => {
  let fleet: Fleet;
  let redis: Redis | undefined;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 1, workers: 1 });
    redis = fleet.redis && new Redis(fleet.redis.url);
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
      await fleet.stop();
    };
  });

  /** Tables and keys that hold personal data of the user. */
  async function places(): Promise<string[]> {
    return [...(await tables()), ...(await keys())].sort();
  }

  async function tables(): Promise<string[]> {
    const { rows } = await fleet.pool.query<{ name: string }>(`
      select format('%I.%I', table_schema, table_name) as name from information_schema.tables
      where table_type = 'BASE TABLE' and table_schema not in ('pg_catalog', 'information_schema')`);
    const found: string[] = [];
    for (const { name } of rows) {
      const text = 'row_to_json(whole_row)::text';
      const hex = Buffer.from(MARKER).toString('hex');
      const { rowCount } = await fleet.pool.query(
        `select from ${name} as whole_row where ${text} ~ $1 limit 1`,
        [[MARKER, hex, PHONE.slice(1)].join('|')],
      );
      if (rowCount) found.push(name);
    }
    return found;
  }

  async function keys(): Promise<string[]> {
    const found: string[] = [];
    for (const key of redis ? await redis.keys('*') : []) {
      const value = await contentOf(key);
      if ([MARKER, PHONE].some((text) => (key + value).includes(text))) found.push(key);
    }
    return found;
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

  test('leaves nothing readable in Postgres and in the queue once the user is deleted', async () => {
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
    const user = { external_id: MARKER };
    const event = { ...user, time: new Date().toISOString(), properties: { note: MARKER } };
    const attributes = {
      ...{ ...user, first_name: MARKER, email: `${MARKER}@example.com`, phone: PHONE },
      custom: MARKER,
    };
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
      const found = await places();
      return found.includes('public.dead_letters') && found.some((name) => /dead-letters|bullmq/.test(name));
    };
    await waitUntil(shown, { what: 'the dead letter in the queue' });
    await post('/users/delete', { external_ids: [MARKER] });
    const explain = async () => (await places()).join(', ');
    const nothing = async () => (await places()).length === 0;
    await waitUntil(nothing, { what: 'the erasure', deadline: 30_000, explain });
  });
});
