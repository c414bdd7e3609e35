import { beforeAll, describe, expect, test } from 'vitest';
import type { IntegrationKind, SourceDefinition } from '../../src/integrations/source.ts';
import { eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import {
  type Asker,
  createAsker,
  createWarehouse,
  INTEGRATION_KEY,
  integrate,
  type Warehouse,
  type WarehouseRow,
  whenEnded,
  writeRows,
} from './warehouse.ts';

const sources = ['postgres', 'csv', 'ndjson', 'parquet'] as const;
const time = (second: number) => `2026-01-01T00:00:${String(second).padStart(2, '0')}.000001Z`;

describe.each(eitherBackend)('the sync process, with the queue in %s', (backend) => {
  let fleet: Fleet;
  let warehouse: Warehouse;
  let asker: Asker;
  let made = 0;

  beforeAll(async () => {
    warehouse = await createWarehouse();
    fleet = await startFleet(backend, {
      edges: 0,
      workers: 1,
      syncs: 1,
      env: { INTEGRATION_KEY, LOG_LEVEL: 'info' },
    });
    asker = await createAsker(fleet);
    return async () => {
      await asker.stop();
      await fleet.stop();
      await warehouse.stop();
    };
  });

  /** Creates an integration on these rows. @returns its id */
  async function given(source: (typeof sources)[number], kind: IntegrationKind, rows: WarehouseRow[]) {
    if (source === 'postgres') {
      const table = `rows_${++made}`;
      await warehouse.table(table, rows);
      if (kind === 'deletes') await warehouse.pool.query(`alter table ${table} drop column payload`);
      return integrate(fleet, { kind, source: warehouse.definition(table) }, warehouse.credentials);
    }
    const path = await writeRows(source, rows);
    return integrate(fleet, { kind, source: { type: 'folder', path, format: source } });
  }

  const sync = async (integration: string) => whenEnded(fleet, await asker.begin(integration));
  const of = async (definition: SourceDefinition, credentials?: { user: string; password: string }) =>
    sync(await integrate(fleet, { source: definition }, credentials));

  async function readBack(user: string) {
    const { rows } = await fleet.pool.query(
      `select first_name, custom_attributes as attributes,
        (select count(*)::integer from events
          where events.workspace_id = $1 and events.profile_id = profiles.id) as events,
        (select sum(price)::float8 from purchases
          where purchases.workspace_id = $1 and purchases.profile_id = profiles.id) as spent
       from profiles where workspace_id = $1 and external_id = $2`,
      [fleet.workspace.id, user],
    );
    return rows[0];
  }

  test.each(sources)(
    'attributes, events, purchases and deletes are read from %s, each row once',
    async (source) => {
      const users = ['ada', 'grace', 'alan'].map((name) => `${name}-${source}`);
      const rows = (payload: object) =>
        users.map((external_id, index) => ({ updated_at: time(index), external_id, payload }));
      const attributes = await given(source, 'attributes', rows({ first_name: 'Ada', logins: { inc: 1 } }));
      const events = await given(source, 'events', rows({ name: 'seen', properties: { page: 1 } }));
      const purchases = await given(
        source,
        'purchases',
        rows({ product_id: 'book', currency: 'EUR', price: 2.5 }),
      );
      for (const integration of [attributes, events, purchases]) {
        expect(await sync(integration)).toMatchObject({ status: 'success', rows_synced: 3, message: null });
        expect(await sync(integration)).toMatchObject({ status: 'success', rows_read: 0 });
      }
      for (const user of users) {
        expect(await readBack(user)).toEqual({
          first_name: 'Ada',
          attributes: { logins: 1 },
          events: 1,
          spent: 2.5,
        });
      }
      const deletes = await given(source, 'deletes', [{ updated_at: time(0), external_id: users[0]! }]);
      expect(await sync(deletes)).toMatchObject({ status: 'success', rows_synced: 1 });
      expect(await readBack(users[0]!)).toBeUndefined();
      expect(await readBack(users[1]!)).toBeDefined();
    },
  );

  test.each(sources)('an invalid payload among valid ones of %s fails alone', async (source) => {
    const user = (name: string) => `${name}-bad-${source}`;
    const bad = source === 'postgres' ? [1] : '{"plan": ';
    const integration = await given(source, 'attributes', [
      { updated_at: time(1), external_id: user('a'), payload: { plan: 'pro' } },
      { updated_at: time(2), external_id: user('b'), payload: bad },
      { updated_at: time(3), external_id: user('c'), payload: { external_id: 'other' } },
      { updated_at: time(4), external_id: user('d'), payload: { plan: 'pro' } },
    ]);
    const run = await sync(integration);
    expect(run).toMatchObject({ status: 'partial', rows_read: 4, rows_synced: 2, rows_failed: 2 });
    const { rows } = await fleet.pool.query(
      'select number::integer, identifier, reason from sync_row_errors where job_id = $1 order by number',
      [run.id],
    );
    expect(rows).toEqual([
      { number: 2, identifier: `EXTERNAL_ID=${user('b')}`, reason: expect.stringMatching(/JSON object/) },
      {
        number: 3,
        identifier: `EXTERNAL_ID=${user('c')}`,
        reason: "PAYLOAD must not name an identifier: it has 'external_id'",
      },
    ]);
    expect((await readBack(user('d'))).attributes).toEqual({ plan: 'pro' });
  });

  test('a wrong password, a missing table, folder or column are config errors', async () => {
    await warehouse.pool.query('create table narrow (updated_at timestamptz, external_id text)');
    const { credentials, definition } = warehouse;
    const runs = [
      await of(definition('narrow'), { ...credentials, password: 'wrong' }),
      await of(definition('nowhere'), credentials),
      await of(definition('narrow'), credentials),
      await of({ type: 'folder', path: '/nowhere/at/all', format: 'csv' }),
    ];
    expect(runs.map(({ status }) => status)).toEqual(Array(4).fill('config_error'));
    expect(runs.map(({ message }) => message)).toEqual([
      expect.stringMatching(/password/),
      expect.stringMatching(/nowhere/),
      expect.stringMatching(/column PAYLOAD is missing/),
      expect.stringMatching(/nowhere/),
    ]);
    expect(JSON.stringify(runs)).not.toContain(credentials.password);
  });

  test('PAYLOAD in a deletes sync, and credentials of another key, are config errors', async () => {
    await warehouse.table('wide', []);
    const source = warehouse.definition('wide');
    const deletes = await integrate(fleet, { kind: 'deletes', source }, warehouse.credentials);
    expect(await sync(deletes)).toMatchObject({
      status: 'config_error',
      message: expect.stringMatching(/PAYLOAD/),
    });
    const foreign = await integrate(fleet, { source }, warehouse.credentials);
    await fleet.pool.query("update integrations set credentials = '\\x0102' where id = $1", [foreign]);
    expect(await sync(foreign)).toMatchObject({
      status: 'config_error',
      message: expect.stringMatching(/decrypted/),
    });
  });

  test('an unreachable warehouse is an error or config error, in the log and the metrics', async () => {
    const run = await of({ ...warehouse.definition('t'), port: 1 }, warehouse.credentials);
    expect(['error', 'config_error']).toContain(run.status);
    const [sync] = fleet.syncs;
    const line = await waitUntil(
      () => sync!.log.find(({ job_id, outcome }) => job_id === run.id && outcome),
      {
        what: 'the log line',
      },
    );
    expect(line).toMatchObject({ level: 50, reason: run.message, rows_read: 0 });
    const page = await (await fetch(`http://127.0.0.1:${sync!.port}/metrics`)).text();
    expect(page).toMatch(
      /^penstock_sync_runs_ended_total\{integration=".+",status="(config_)?error"\} [1-9]/m,
    );
  });

  test('rows with a future timestamp are reported in the message and in the log', async () => {
    const integration = await given('postgres', 'attributes', [
      { updated_at: '2999-01-01T00:00:00Z', external_id: 'f', payload: { plan: 'pro' } },
    ]);
    expect(await sync(integration)).toMatchObject({
      status: 'success',
      message: expect.stringMatching(/future/),
    });
  });
});
