import { beforeAll, describe, expect, test } from 'vitest';
import { SourceError } from '../../src/integrations/source.ts';
import { newId } from '../../src/platform/ids.ts';
import { stopTracing } from '../../src/platform/tracing.ts';
import { startCollector, traceTo } from '../setup/collector.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { eitherBackend } from '../setup/fleet.ts';
import { at, countingRow, eventRow, users } from './memory-source.ts';
import { createSyncScene, never, type SyncScene } from './scene.ts';

describe.each(eitherBackend)('a run of a sync, with the queue in %s', (kind) => {
  let scene: SyncScene;
  beforeAll(async () => {
    scene = await createSyncScene(kind);
    return scene.stop;
  });

  test('every row takes effect once, and the run succeeds with its counts and last timestamp', async () => {
    const rows = users('once', 2345).map((user, index) => countingRow(user, at(index)));
    const integration = await scene.integrate({ rows });
    expect(await scene.sync(integration)).toMatchObject({
      status: 'success',
      rows_read: 2345,
      rows_synced: 2345,
      rows_failed: 0,
      message: null,
      last_timestamp: at(2344),
    });
    const points = await scene.pointsOf('once');
    expect(points).toHaveLength(2345);
    expect(points.filter(([, count]) => count !== 1)).toEqual([]);
  });

  test('its chunks are spans, and a worker without tracing applies jobs that contain span ids', async () => {
    const collector = await startCollector();
    await traceTo(collector, { name: 'sync', id: newId(), version: '1' });
    const rows = users('traced', 30).map((user, index) => countingRow(user, at(index)));
    const run = await scene.sync(await scene.integrate({ rows })).finally(() => stopTracing(scene.config));
    await collector.stop();
    expect(run).toMatchObject({ status: 'success', rows_synced: 30 });
    const [chunk] = collector.find('read chunk');
    expect(chunk!.attributes).toMatchObject({ 'penstock.sync.job_id': run.id, 'penstock.sync.rows': 30 });
    expect(collector.find('send lanes', chunk!.traceId)).toMatchObject([
      { kind: 'producer', parentSpanId: chunk!.spanId, attributes: { 'penstock.objects': 30 } },
    ]);
    expect(collector.bytes().toString()).not.toMatch(/traced\d/);
  });

  test('the next run reads only new rows, and at the last timestamp only missing ones', async () => {
    const table = {
      rows: [eventRow('a', at(1), 'edge'), eventRow('b', at(2), 'edge'), eventRow('b', at(2), 'edge')],
    };
    const integration = await scene.integrate(table, { kind: 'events' });
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 3, rows_synced: 3 });
    expect(await scene.sync(integration)).toMatchObject({
      status: 'success',
      rows_read: 0,
      last_timestamp: null,
    });
    expect(await scene.countEvents('edge')).toBe(3);
    // A third copy of the equal rows, and another row, at the same timestamp.
    table.rows.push(eventRow('b', at(2), 'edge'), eventRow('c', at(2), 'edge'));
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 2, rows_synced: 2 });
    expect(await scene.countEvents('edge')).toBe(5);
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 0 });
    table.rows.push(eventRow('d', at(3), 'edge'));
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 1, last_timestamp: at(3) });
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 0 });
    expect(await scene.countEvents('edge')).toBe(6);
  });

  test('thousands of rows of one timestamp, equal ones included, are read again without effect', async () => {
    const rows = users('same', 3000).map((_, index) => eventRow(`same${index % 1000}`, at(7), 'many'));
    const integration = await scene.integrate({ rows }, { kind: 'events' });
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 3000 });
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 0 });
    rows.push(eventRow('same5', at(7), 'many'));
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 1 });
    expect(await scene.countEvents('many')).toBe(3001);
    expect((await scene.pool.query('select from sync_expected')).rowCount).toBe(0);
  });

  test('an invalid row among valid ones fails alone, with its reason, and the run is partial', async () => {
    const bad = { updatedAt: at(1), identifiers: { external_id: 'p1' }, payload: '{' };
    const rows = [countingRow('p0', at(0)), bad, countingRow('p2', at(2))];
    const run = await scene.sync(await scene.integrate({ rows }));
    expect(run).toMatchObject({
      status: 'partial',
      rows_read: 3,
      rows_synced: 2,
      rows_failed: 1,
      message: '1 row failed',
    });
    expect(await scene.errors(run.id)).toEqual({ 2: expect.stringMatching(/^PAYLOAD is not valid/) });
    const { rows: kept } = await scene.pool.query(
      'select updated_at, identifier, payload from sync_row_errors where job_id = $1',
      [run.id],
    );
    expect(kept).toEqual([{ updated_at: at(1), identifier: 'EXTERNAL_ID=p1', payload: '{' }]);
  });

  test('a run whose rows all failed is an error, wherever; a run without rows is a success', async () => {
    const bad = users('bad', 3).map((user, i) => ({ ...countingRow(user, at(i)), payload: '{' }));
    const refused = await scene.sync(await scene.integrate({ rows: bad }));
    expect(refused).toMatchObject({
      status: 'error',
      rows_read: 3,
      rows_synced: 0,
      rows_failed: 3,
      message: '3 rows failed',
    });
    expect(Object.keys(await scene.errors(refused.id))).toEqual(['1', '2', '3']);
    await scene.pool.query("alter table events add constraint no_venom check (name <> 'venom') not valid");
    try {
      const rows = [eventRow('v0', at(0), 'venom'), eventRow('v1', at(1), 'venom')];
      const run = await scene.sync(await scene.integrate({ rows }, { kind: 'events' }));
      expect(run).toMatchObject({ status: 'error', rows_synced: 0, rows_failed: 2 });
    } finally {
      await scene.pool.query('alter table events drop constraint no_venom');
    }
    const empty = await scene.sync(await scene.integrate({ rows: [] }));
    expect(empty).toMatchObject({ status: 'success', rows_read: 0, message: null });
  });

  test('a row that only the worker rejects is an error of that row as well', async () => {
    await scene.pool.query("alter table events add constraint no_poison check (name <> 'poison') not valid");
    try {
      const rows = [
        eventRow('w0', at(0), 'fine'),
        eventRow('w1', at(1), 'poison'),
        eventRow('w2', at(2), 'fine'),
      ];
      const run = await scene.sync(await scene.integrate({ rows }, { kind: 'events' }));
      expect(run).toMatchObject({ status: 'partial', rows_read: 3, rows_synced: 2, rows_failed: 1 });
      expect(await scene.errors(run.id)).toEqual({ 2: expect.stringContaining('no_poison') });
      expect(await scene.countEvents('fine')).toBe(2);
    } finally {
      await scene.pool.query('alter table events drop constraint no_poison');
    }
  });

  test('rows without a readable time fail in each run, once', async () => {
    const rows = [
      { unreadable: 'soon', identifiers: { external_id: 'u1' }, payload: '{}' },
      countingRow('u2', at(2)),
    ];
    const integration = await scene.integrate({ rows });
    for (const [read, status] of [
      [2, 'partial'],
      [1, 'error'],
    ] as const) {
      const run = await scene.sync(integration);
      expect(run).toMatchObject({ status, rows_read: read, rows_failed: 1 });
    }
    expect(Object.fromEntries(await scene.pointsOf('u2'))).toEqual({ u2: 1 });
  });

  test('an unreadable line of a file is shown by its reason and text, not as a time', async () => {
    const broken = { reason: 'rows.csv line 3: Expected Number of Columns: 3 Found: 2', text: 'b,now' };
    const run = await scene.sync(
      await scene.integrate({ rows: [{ unreadable: 'both', broken, identifiers: {} }] }),
    );
    expect(await scene.errors(run.id)).toEqual({ 1: broken.reason });
    const { rows: kept } = await scene.pool.query(
      'select updated_at, payload from sync_row_errors where job_id = $1',
      [run.id],
    );
    expect(kept).toEqual([{ updated_at: null, payload: broken.text }]);
  });

  test('deletes remove users', async () => {
    const made = await scene.integrate({
      rows: users('gone', 20).map((user, i) => countingRow(user, at(i))),
    });
    await scene.sync(made);
    const rows = users('gone', 19).map((user, i) => ({
      updatedAt: at(i),
      identifiers: { external_id: user },
    }));
    const columns = ['updated_at', 'external_id'];
    const run = await scene.sync(await scene.integrate({ rows, columns }, { kind: 'deletes' }));
    expect(run).toMatchObject({ status: 'success', rows_synced: 19 });
    expect((await scene.pointsOf('gone')).map(([user]) => user)).toEqual(['gone19']);
  });

  test.for([
    ['without UPDATED_AT', 'attributes', ['EXTERNAL_ID', 'PAYLOAD'], /the column UPDATED_AT is missing/],
    [
      'without an identifier',
      'events',
      ['UPDATED_AT', 'PAYLOAD'],
      /a column with an identifier is missing; add one of EXTERNAL_ID/,
    ],
    ['without PAYLOAD', 'purchases', ['UPDATED_AT', 'EXTERNAL_ID'], /the column PAYLOAD is missing/],
    ['with PAYLOAD in a deletes sync', 'deletes', ['UPDATED_AT', 'EXTERNAL_ID', 'PAYLOAD'], /is not allowed/],
  ] as const)('a source %s is a config error', async ([_, kindOfData, columns, message]) => {
    const integration = await scene.integrate({ rows: [], columns: [...columns] }, { kind: kindOfData });
    expect(await scene.sync(integration)).toMatchObject({
      status: 'config_error',
      message: expect.stringMatching(message),
    });
  });

  test('a source that fails midway is an error: rows before it count, and the next run continues', async () => {
    const table = {
      rows: users('half', 1200).map((user, i) => countingRow(user, at(i))),
      failure: { afterRows: 1000, error: new SourceError('failed', 'the warehouse went away') },
    };
    const integration = await scene.integrate(table);
    const run = await scene.sync(integration);
    expect(run).toMatchObject({ status: 'error', message: 'the warehouse went away' });
    // On a busy machine chunks are smaller; rows that do not fill a chunk are read again by the next run.
    expect(run.rows_read).toBeGreaterThan(0);
    expect(run.rows_read).toBeLessThanOrEqual(1000);
    expect(await scene.pointsOf('half')).toHaveLength(run.rows_read);
    delete (table as { failure?: object }).failure;
    expect(await scene.sync(integration)).toMatchObject({
      status: 'success',
      rows_read: 1200 - run.rows_read,
    });
    expect((await scene.pointsOf('half')).filter(([, points]) => points !== 1)).toEqual([]);
  });

  test('a run that reaches its row limit is an error, and the next one continues after it', async () => {
    const rows = users('lim', 700).map((user, i) => countingRow(user, at(i)));
    const integration = await scene.integrate({ rows });
    const run = await scene.sync(integration, { maxRows: 400 });
    expect(run).toMatchObject({
      status: 'error',
      message: expect.stringMatching(/^Limit Exceeded: .* 400 rows/),
    });
    expect(run.rows_read).toBeGreaterThan(0);
    expect(run.rows_read).toBeLessThanOrEqual(400);
    expect(await scene.sync(integration)).toMatchObject({
      status: 'success',
      rows_read: 700 - run.rows_read,
    });
    expect((await scene.pointsOf('lim')).filter(([, points]) => points !== 1)).toEqual([]);
  });

  test('a timestamp in the future is used and reported', async () => {
    const integration = await scene.integrate({
      rows: [countingRow('f0', at(1)), countingRow('f1', '2999-01-01T00:00:00.000000Z')],
    });
    const run = await scene.sync(integration);
    expect(run).toMatchObject({
      status: 'success',
      last_timestamp: '2999-01-01T00:00:00.000000Z',
      message: expect.stringMatching(/2999.* is in the future/),
    });
    scene.tables.get(integration)!.rows.push(countingRow('f2', at(5)));
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 0 });
  });

  test('a run with a hanging source ends when it is cancelled, without blocking other runs', async () => {
    const silent = await scene.integrate({ rows: [] });
    const id = await scene.begin(silent);
    const open: typeof scene.parts.open = async (run, signal) => ({
      ...(await scene.parts.open(run, signal)),
      async *rowsSince() {
        await new Promise(() => {});
        yield [];
      },
      close: () => new Promise(() => {}),
    });
    const done = scene.process(id, never, { open });
    const other = await scene.integrate({
      rows: users('beside', 300).map((user, i) => countingRow(user, at(i))),
    });
    expect(await scene.sync(other)).toMatchObject({ status: 'success', rows_synced: 300 });
    await scene.pool.query('update sync_jobs set cancelled_at = now() where id = $1', [id]);
    expect(await done).toBe(true);
    expect(await scene.runRow(id)).toMatchObject({ status: 'error', message: 'cancelled by the operator' });
  }, 60_000);

  test('a cancelled run ends as an error, and counts all rows that it has enqueued', async () => {
    const rows = users('stop', 5000).map((user, i) => countingRow(user, at(i)));
    const integration = await scene.integrate({ rows });
    const id = await scene.begin(integration);
    const done = scene.process(id);
    await waitUntil(async () => (await scene.runRow(id)).rows_read > 0, { what: 'the first chunk' });
    await scene.pool.query('update sync_jobs set cancelled_at = now() where id = $1', [id]);
    expect(await done).toBe(true);
    const run = await scene.runRow(id);
    expect(run).toMatchObject({ status: 'error', message: 'cancelled by the operator' });
    expect(run.rows_read).toBeLessThan(5000);
    expect(await scene.pointsOf('stop')).toHaveLength(run.rows_synced);
    expect(await scene.sync(integration)).toMatchObject({ rows_read: 5000 - run.rows_read });
    expect((await scene.pointsOf('stop')).filter(([, points]) => points !== 1)).toEqual([]);
  });
});
