import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { migrate } from '../../src/processes/migrate.ts';
import { QUEUE_SCHEMA } from '../../src/queue/bullmq-queues.ts';
import { createDatabase } from '../setup/fixtures.ts';

let url: string;
let client: pg.Client;
beforeAll(async () => {
  ({ url } = await createDatabase());
  client = new pg.Client({ connectionString: url });
  await client.connect();
});
afterAll(() => client.end());

async function options(): Promise<string[]> {
  const { rows } = await client.query('select reloptions from pg_class where oid = $1::regclass', [
    `${QUEUE_SCHEMA}.job`,
  ]);
  return rows[0].reloptions;
}

test('vacuum of the queue in Postgres depends on dead rows, however often migrations run', async () => {
  await migrate(url, 'postgres');
  const first = await options();
  expect(first).toEqual(
    expect.arrayContaining(['autovacuum_vacuum_scale_factor=0', 'autovacuum_vacuum_threshold=1000']),
  );
  await migrate(url, 'postgres');
  expect(await options()).toEqual(first);
});

test('a migration does not wait for a running vacuum of the queue', async () => {
  await migrate(url, 'postgres');
  // The lock that a vacuum holds.
  await client.query('begin');
  await client.query(`lock table ${QUEUE_SCHEMA}.job in share update exclusive mode`);
  await migrate(url, 'postgres');
  await client.query('commit');
});
