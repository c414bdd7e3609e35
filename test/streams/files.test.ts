import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { readParquet } from '../../src/object-store/parquet.ts';
import { newId } from '../../src/platform/ids.ts';
import { createReach } from '../../src/platform/reach.ts';
import {
  removeDestination,
  replayFrom,
  setDestinationState,
  trimLog,
} from '../../src/store/stream-destinations.ts';
import { leaseDestinations } from '../../src/store/stream-leases.ts';
import { appendLog } from '../../src/store/stream-log.ts';
import { DeliveryError, type FileDestination } from '../../src/streams/destination.ts';
import { openDestination } from '../../src/streams/open-destination.ts';
import { remove } from '../identity/objects.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import { entriesOf } from '../setup/stream-entries.ts';
import { attributes, event } from '../workers/batch.ts';
import { inBucket, inFolder, messagesOf, rowsFrom, streamToFiles } from './file-scene.ts';
import { apply, cursorOf, deliverStreams, pool, soon, stream, useStore } from './scene.ts';

useStore();

const targets = [
  ['a folder', () => inFolder()],
  ['the prefix of a bucket', () => inBucket()],
] as const;

test.each(targets)(
  'messages are written to %s in order, one file per hour, each visible once complete',
  async (_, make) => {
    const target = await make();
    const { workspace, workspaceId, state } = await streamToFiles(target);
    const users = ['ada', 'bob', 'cy'];
    for (let index = 0; index < 6; index++)
      await apply(workspace, ...users.map((user) => event(user, `event-${index}`)));
    // Two messages before the hour, one after it, one that began before the hour and committed after it, two
    // in the next hour.
    await rowsFrom(workspace, '2026-11-24T08:59:58Z', 1);
    await pool.query(
      `update stream_log set at = '2026-11-24T08:59:59.5Z' where workspace_id = $1 and id =
       (select id from stream_log where workspace_id = $1 order by id offset 3 limit 1)`,
      [workspaceId],
    );
    await pool.query(
      `update stream_log set at = '2026-11-24T10:00:02Z'::timestamptz where workspace_id = $1 and id in
       (select id from stream_log where workspace_id = $1 order by id offset 4)`,
      [workspaceId],
    );
    const running = deliverStreams();
    await soon(async () => (await state()).lag === 0);
    await running.stop();
    const files = await target.files();
    const hours = ['08', '09', '10'].map((hour) => `workspace=${workspaceId}/date=2026-11-24/hour=${hour}/`);
    expect(files.map(({ key }) => key)).toEqual(
      hours.map((one) => expect.stringMatching(new RegExp(`^${one}\\d{19}-\\d{19}\\.ndjson\\.gz$`))),
    );
    const ends = files.map(({ key }) => key.match(/(\d{19})-(\d{19})/)!.slice(1));
    expect(ends.slice(1).map(([from]) => from)).toEqual(ends.slice(0, -1).map(([, to]) => to));
    expect(files.map(({ body }) => messagesOf([{ body }]).length)).toEqual([6, 6, 6]);
    const messages = messagesOf(files);
    expect(new Set(messages.map(({ id }) => id)).size).toBe(18);
    for (const user of users) {
      const own = messages.filter(({ user: who }) => who!.external_id === user);
      expect(own.map(({ data }) => data.name)).toEqual([0, 1, 2, 3, 4, 5].map((n) => `event-${n}`));
    }
    expect(messages[0]).toMatchObject({
      type: 'event',
      workspace_id: workspaceId,
      time: '2026-11-24T08:59:58.000Z',
    });
    expect(await state()).toMatchObject({ delivered: 18, failures: 0 });
  },
);

test('a Parquet file has one row per message, which DuckDB reads', async () => {
  const targetStore = await inFolder();
  const { workspace, workspaceId, state } = await streamToFiles(targetStore, { format: 'parquet' });
  await apply(
    workspace,
    event('ada', 'one'),
    attributes('ada', { standard: { first_name: 'Ada' } } as never),
  );
  await apply(workspace, event('ada', 'two'));
  const running = deliverStreams();
  await soon(async () => (await state()).lag === 0);
  await running.stop();
  const rows: Record<string, unknown>[] = [];
  for (const { key, body } of await targetStore.files()) {
    expect(key).toMatch(/\.parquet$/);
    const file = path.join(temporaryFolder(), 'file.parquet');
    writeFileSync(file, body);
    const names = ['id', 'type', 'workspace_id', 'service_id', 'external_id', 'data'] as const;
    const columns = names.map((name) => ({ name, type: 'text' as const }));
    for await (const piece of readParquet(file, [...columns, { name: 'time', type: 'timestamp' }]))
      rows.push(...piece);
  }
  expect(rows.map(({ type, data }) => [type, JSON.parse(data as string).name])).toEqual([
    ['event', 'one'],
    ['attributes', undefined],
    ['event', 'two'],
  ]);
  expect(rows[0]).toMatchObject({
    ...{ workspace_id: workspaceId, external_id: 'ada', service_id: expect.stringMatching(/^[0-9a-f]{24}$/) },
    time: expect.stringMatching(/^20\d\d-.*Z$/),
  });
});

const dueNow = async (gathers = true) =>
  (await leaseDestinations(pool, { milliseconds: 1, limit: 50, gathers })).map(({ id }) => id);

test('a file is leased only once its oldest row is old enough or its rows fill it', async () => {
  const { id, workspace, workspaceId } = await streamToFiles(await inFolder(), { gatherMs: 240_000 });
  expect(await dueNow()).not.toContain(id);
  await apply(workspace, event('ada'));
  expect(await dueNow()).not.toContain(id);
  await pool.query("update stream_log set at = now() - interval '4 minutes' where workspace_id = $1", [
    workspaceId,
  ]);
  expect(await dueNow()).toContain(id);
  await pool.query('update stream_log set at = now() where workspace_id = $1', [workspaceId]);
  await soon(async () => !(await dueNow()).includes(id));
  const entry = () => ({ workspaceId, kind: 'i' as const, profileId: newId(), id: newId(), detail: {} });
  const entries = Array.from({ length: 20_000 }, entry);
  await appendLog(pool as never, entriesOf(entries), new Date().toISOString());
  expect(await dueNow()).toContain(id);
  await removeDestination(pool, { workspaceId, id });
});

test('a file is polled less often while a transaction holds the log back, and then written', async () => {
  const target = await inFolder();
  const { id, workspace, workspaceId, state } = await streamToFiles(target);
  const slow = await pool.connect();
  await slow.query('begin');
  const entry = { workspaceId, kind: 'i' as const, profileId: newId(), id: newId(), detail: {} };
  await appendLog(slow as never, entriesOf([entry]), new Date().toISOString());
  await apply(workspace, event('ada', 'one'));
  const running = deliverStreams();
  await soon(async () => (await state()).nextTryAt !== null);
  expect(await state()).toMatchObject({ failures: 0, lastError: null, delivered: 0 });
  await slow.query('rollback');
  slow.release(true);
  await pool.query('update stream_destinations set next_try_at = null where id = $1', [id]);
  await soon(async () => (await state()).lag === 0);
  await running.stop();
  expect(messagesOf(await target.files()).map(({ data }) => data.name)).toEqual(['one']);
});

test('a failed stream without remaining messages is not leased again', async () => {
  const { id, workspace, workspaceId } = await stream('http://127.0.0.1:9');
  await apply(workspace, event('ada'));
  await pool.query('update stream_destinations set failures = 3 where id = $1', [id]);
  await soon(async () => (await dueNow(false)).includes(id));
  await pool.query("update stream_log set at = now() - interval '9 days' where workspace_id = $1", [
    workspaceId,
  ]);
  await trimLog(pool, 7, 100);
  await pool.query('update stream_destinations set leased_until = null where id = $1', [id]);
  expect(await dueNow(false)).not.toContain(id);
});

/** Opens destinations as a process does, and calls `puts` around each put. */
function opener(puts: (put: () => Promise<void>, signal: AbortSignal) => Promise<void>) {
  const opening = {
    ...{ reach: createReach({ refused: 'none' }), keys: [], serviceIdField: 'service_id' },
    files: { folders: ['/'], bucketAccess: () => ({}) as never },
  };
  return (stored: Parameters<typeof openDestination>[0]): FileDestination => {
    const opened = openDestination(stored, opening) as FileDestination;
    return {
      ...opened,
      async write(...given) {
        const file = await opened.write(...given);
        return { ...file, put: (...given) => puts(() => file.put(...given), given[1]) };
      },
    };
  };
}

test('a put without an answer is repeated with the same name and content', async () => {
  const target = await inFolder();
  const { workspace, state, id } = await streamToFiles(target);
  await apply(workspace, event('ada', 'one'), event('bob', 'one'));
  const dying = deliverStreams({
    open: opener(async (put) => {
      await put();
      throw new DeliveryError('it died here');
    }),
  });
  await soon(async () => (await state()).failures > 0);
  await dying.stop();
  const [before] = await target.files();
  // The next message may fall into the same hour or into a later one.
  await apply(workspace, event('ada', 'two'));
  await pool.query('update stream_destinations set next_try_at = null where id = $1', [id]);
  const running = deliverStreams();
  await soon(async () => (await state()).lag === 0);
  await running.stop();
  const files = await target.files();
  expect(files).toHaveLength(2);
  expect(files[0]).toEqual(before);
  expect(messagesOf(files).map(({ data }) => data.name)).toEqual(['one', 'one', 'two']);
  expect(await state()).toMatchObject({ delivered: 3, failures: 0 });
});

test('a process that loses its lease during a put does not move the cursor', async () => {
  const target = await inFolder();
  const again = await streamToFiles(target);
  await apply(again.workspace, event('ada', 'one'));
  const held: (() => void)[] = [];
  const running = deliverStreams({
    open: opener(async (put) => {
      await new Promise<void>((resolve) => held.push(resolve));
      await put();
    }),
  });
  await soon(async () => held.length === 1);
  await replayFrom(pool, again, new Date(0));
  await soon(async () => held.length === 2);
  const { position } = await cursorOf(again);
  held[0]!();
  await soon(async () => (await target.files()).length === 1);
  expect(await cursorOf(again)).toEqual({ position, place: 0 });
  expect(await again.state()).toMatchObject({ delivered: 0 });
  held[1]!();
  await soon(async () => (await again.state()).delivered === 1);
  await running.stop();
  expect(new Set(messagesOf(await target.files()).map(({ id }) => id)).size).toBe(1);
});

test('a stream paused during a put stops it, and repeats the same put when it is resumed', async () => {
  const target = await inFolder();
  const paused = await streamToFiles(target);
  await apply(paused.workspace, event('ada', 'one'));
  let [begun, ended] = [0, 0];
  const hanging = deliverStreams({
    times: { keepMs: 20 },
    open: opener(async (put, signal) => {
      await put();
      begun += 1;
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      ended += 1;
      signal.throwIfAborted();
    }),
  });
  await soon(async () => begun === 1);
  // The lease is renewed during the put, so that no other process takes it.
  const leaseOf = async () =>
    (await pool.query('select leased_until from stream_destinations where id = $1', [paused.id])).rows[0]
      .leased_until;
  const first = await leaseOf();
  await soon(async () => (await leaseOf()) > first);
  await setDestinationState(pool, paused, 'paused');
  await soon(async () => ended === 1);
  await hanging.stop();
  expect(await paused.state()).toMatchObject({ delivered: 0, failures: 0 });
  const before = await target.files();
  await apply(paused.workspace, event('ada', 'two'));
  await setDestinationState(pool, paused, 'active');
  await pool.query('update stream_destinations set leased_until = null where id = $1', [paused.id]);
  const running = deliverStreams();
  await soon(async () => (await paused.state()).delivered === 2);
  await running.stop();
  const files = await target.files();
  expect([files.length, files[0]]).toEqual([2, before[0]]);
});

test('a planned file whose rows have all been erased blocks no later file', async () => {
  const target = await inFolder();
  const { workspace, state, id } = await streamToFiles(target);
  await apply(workspace, event('ada', 'one'));
  const dying = deliverStreams({ open: opener(() => Promise.reject(new DeliveryError('away'))) });
  await soon(async () => (await state()).failures > 0);
  await dying.stop();
  await apply(workspace, event('bob', 'two'));
  await apply(workspace, remove('ada'));
  await pool.query('update stream_destinations set next_try_at = null where id = $1', [id]);
  const running = deliverStreams();
  await soon(async () => (await state()).lag === 0);
  await running.stop();
  expect(messagesOf(await target.files()).map(({ data }) => data.name ?? data.change)).toEqual([
    'two',
    'deleted',
  ]);
});

test('a stream may start with the rows that the log still has', async () => {
  const [first, second] = [await inFolder(), await inFolder()];
  const { workspace, workspaceId, state } = await streamToFiles(first);
  await apply(workspace, event('ada', 'one'));
  await apply(workspace, event('ada', 'two'));
  const late = await streamToFiles(second, { from: new Date(0) }, { id: workspaceId });
  const running = deliverStreams();
  await soon(async () => (await late.state()).lag === 0 && (await state()).lag === 0);
  await running.stop();
  const ids = messagesOf(await second.files()).map(({ id }) => id);
  expect(ids).toEqual(messagesOf(await first.files()).map(({ id }) => id));
  expect(ids).toHaveLength(2);
});
