import type { ServerResponse } from 'node:http';
import { NIL } from 'uuid';
import { expect, test, vi } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { replayFrom, trimLog } from '../../src/store/stream-destinations.ts';
import { appendLog, readLog } from '../../src/store/stream-log.ts';
import { openReader } from '../../workers/streams/read.ts';
import { openSource } from '../../workers/streams/source.ts';
import { entriesOf } from '../setup/stream-entries.ts';
import { event } from '../workers/batch.ts';
import { startReceiver } from './receiver.ts';
import { apply, cursorOf, deliverStreams, pool, soon, stream, useStore } from './scene.ts';

useStore();

test('several processes share the streams and deliver each message once if all stay alive', async () => {
  const receiver = await startReceiver();
  const { workspace, state } = await stream(receiver.url);
  const running = [deliverStreams(), deliverStreams()];
  for (let index = 0; index < 30; index++)
    await apply(workspace, ...Array.from({ length: 40 }, (_, n) => event(`user-${n}`, `event-${index}`)));
  await soon(async () => (await state()).delivered >= 1200);
  for (const one of running) await one.stop();
  const ids = receiver.messages().map(({ id }) => id);
  expect([ids.length, new Set(ids).size]).toEqual([1200, 1200]);
});

test('a replay delivers messages again with the same ids', async () => {
  const receiver = await startReceiver();
  const again = await stream(receiver.url);
  await apply(again.workspace, event('ada', 'one'));
  const running = deliverStreams();
  await soon(async () => receiver.messages().length === 1);
  await replayFrom(pool, again, new Date(0));
  await soon(async () => receiver.messages().length === 2);
  await running.stop();
  expect(new Set(receiver.messages().map(({ id }) => id)).size).toBe(1);
  expect(receiver.taken[0]!.headers['webhook-id']).toBe(receiver.taken[1]!.headers['webhook-id']);
});

test('a replay includes a transaction that began later but has a smaller id', async () => {
  // The log is shared by all workspaces, and the times of this test are in the past.
  await pool.query('delete from stream_log');
  const again = await stream('http://127.0.0.1:9');
  const { workspaceId } = again;
  const entry = { workspaceId, kind: 'i' as const, profileId: NIL, id: newId(), detail: {} };
  // The second transaction began first and took longer; the third one began last.
  const times = ['08:00:05', '08:00:00', '08:00:09', '07:00:00'];
  for (const time of times) await appendLog(pool as never, entriesOf([entry]), `2026-11-23T${time}Z`);
  const { rows } = await pool.query<{ id: number }>(
    'select id from stream_log where workspace_id = $1 order by id',
    [workspaceId],
  );
  await replayFrom(pool, again, new Date('2026-11-23T08:00:00Z'));
  expect(Number((await cursorOf(again)).position)).toBe(rows[0]!.id - 1);
});

test('a batch that was running while the cursor was reset does not move it', async () => {
  const receiver = await startReceiver();
  const again = await stream(receiver.url);
  await apply(again.workspace, event('ada', 'one'));
  const held: ServerResponse[] = [];
  receiver.answer = (response) => void held.push(response);
  const running = deliverStreams();
  await soon(async () => held.length === 1);
  await replayFrom(pool, again, new Date(0));
  // The same process has leased the stream again.
  await soon(async () => held.length === 2);
  const { position } = await cursorOf(again);
  held[0]!.writeHead(204).end();
  held[1]!.writeHead(500).end();
  await soon(async () => (await again.state()).failures === 1);
  expect(await cursorOf(again)).toEqual({ position, place: 0 });
  expect(await again.state()).toMatchObject({ delivered: 0 });
  await running.stop();
});

test('a stream with a constant backlog yields to the stream that has waited longest', async () => {
  await pool.query('delete from stream_destinations');
  const [busy, other] = await Promise.all([startReceiver(), startReceiver()]);
  const always = await stream(busy.url);
  const waiting = await stream(other.url);
  // Each batch creates another one.
  let index = 0;
  busy.answer = (response) =>
    void apply(always.workspace, event('ada', `event-${index++}`)).then(() => response.writeHead(204).end());
  await apply(always.workspace, event('ada'));
  const running = deliverStreams({ times: { turnMs: 200 }, atOnce: 1 });
  await soon(async () => busy.requests > 0);
  await apply(waiting.workspace, event('ben'));
  await soon(async () => other.messages().length === 1);
  const requested = busy.requests;
  await soon(async () => busy.requests > requested);
  busy.answer = undefined;
  await running.stop();
});

test('rows of the log are read once, and only as many as fit into one page', async () => {
  const { workspaceId } = await stream('http://127.0.0.1:9');
  const now = new Date().toISOString();
  const entry = () => ({ workspaceId, kind: 'i' as const, profileId: NIL, id: newId(), detail: {} });
  const sizes = [300, 1700, 1, 2];
  const rows = sizes.map((size) => Array.from({ length: size }, entry));
  for (const entries of rows) await appendLog(pool as never, entriesOf(entries), now);
  const sent = vi.spyOn(pool, 'query');
  const read = openReader(openSource(pool, 'service_id'), workspaceId, { position: '0', place: 0 });
  const ids: string[] = [];
  const readPositions: number[] = [];
  for (let page = await read('999999999'); page; page = await read('999999999')) {
    ids.push(...page.read.map(({ message }) => message.id));
    const logs = sent.mock.calls.filter(([given]) => (given as { name?: string }).name === 'read-stream-log');
    readPositions.push(logs.length);
    // Another lease continues from any place.
    const again = await openReader(openSource(pool, 'service_id'), workspaceId, page.end)('999999999');
    if (page.end.place > 0) expect(again!.read[0]!.message.id).toBe(rows.flat()[ids.length]!.id);
    sent.mockClear();
  }
  sent.mockRestore();
  expect(ids).toEqual(rows.flat().map(({ id }) => id));
  expect(readPositions).toEqual([1, 0, 0, 0, 0, 1]);
  const two = await readLog(pool, workspaceId, {
    ...{ after: '0', horizon: '999999999', limit: 10 },
    entries: 500,
  });
  expect(two.map((row) => row.ids.length)).toEqual([300, 1700]);
});

test('destinations of a workspace with the same cursor share each read, and each gets all rows', async () => {
  const { workspaceId } = await stream('http://127.0.0.1:9');
  const now = new Date().toISOString();
  const entry = () => ({ workspaceId, kind: 'i' as const, profileId: NIL, id: newId(), detail: {} });
  const rows = [3, 700, 1, 260].map((size) => Array.from({ length: size }, entry));
  for (const entries of rows) await appendLog(pool as never, entriesOf(entries), now);
  const sent = vi.spyOn(pool, 'query');
  const source = openSource(pool, 'service_id');
  const start = { position: '0', place: 0 };
  // The second read begins in the middle of a part.
  const [, middle] = rows;
  const first = openReader(source, workspaceId, start);
  const { end } = (await first('999999999'))!;
  const readers = [first, openReader(source, workspaceId, { ...end, place: end.place + 7 })];
  const ids: string[][] = [[], []];
  for (let more = true; more; ) {
    const pages = await Promise.all(readers.map((read) => read('999999999')));
    for (const [index, page] of pages.entries())
      ids[index]!.push(...(page?.read ?? []).map(({ message }) => message.id));
    more = pages.some(Boolean);
  }
  const names = sent.mock.calls.map(([given]) => (given as { name?: string }).name);
  sent.mockRestore();
  const all = rows.flat().map(({ id }) => id);
  const sliceFrom = (of: string[]) => all.slice(all.indexOf(of[0]!));
  expect(ids[0]).toEqual(sliceFrom(ids[0]!));
  expect(ids[1]).toEqual(sliceFrom(ids[1]!));
  expect(ids[1]).toHaveLength(ids[0]!.length - 7);
  expect(middle!.map(({ id }) => id)).toContain(ids[1]![0]);
  // Parts: 1 + 3 + 1 + 2, each looked up once, and the empty reads at the end.
  expect(names.filter((name) => name === 'read-stream-names').length).toBeLessThanOrEqual(4);
});

test('events of a deleted user are omitted for a destination that reads a second later', async () => {
  const one = await stream('http://127.0.0.1:9');
  await apply(one.workspace, event('ada'));
  const source = openSource(pool, 'service_id');
  const pages = async () =>
    (await openReader(source, one.workspaceId, { position: '0', place: 0 })('999999999'))?.read.filter(
      ({ message }) => message.type === 'event',
    );
  expect(await pages()).toHaveLength(1);
  await pool.query('delete from profiles where workspace_id = $1', [one.workspaceId]);
  await soon(async () => (await pages())?.length === 0);
});

test('messages trimmed before delivery are reported, with their number', async () => {
  const late = await stream('http://127.0.0.1:9');
  await apply(late.workspace, event('ada'));
  await pool.query("update stream_log set at = now() - interval '8 days' where workspace_id = $1", [
    late.workspaceId,
  ]);
  expect(await trimLog(pool, 7, 100)).toMatchObject({ lost: [late.id] });
  expect(await late.state()).toMatchObject({ lost: 1, lostAt: expect.any(Date) });
});

test('the rows after a row that was trimmed in mid-delivery are delivered completely', async () => {
  const late = await stream('http://127.0.0.1:9');
  const { workspaceId } = late;
  const now = new Date().toISOString();
  const entry = () => ({ workspaceId, kind: 'i' as const, profileId: NIL, id: newId(), detail: {} });
  const rows = [800, 60, 300].map((size) => Array.from({ length: size }, entry));
  const [begun, ...others] = rows;
  await appendLog(pool as never, entriesOf(begun!), now);
  const { end } = (await openReader(openSource(pool, 'service_id'), workspaceId, {
    ...{ position: '0', place: 0 },
  })('999999999'))!;
  expect(end.place).toBe(500);
  await pool.query('update stream_destinations set position = $2, place = $3 where id = $1', [
    ...[late.id, end.position, end.place],
  ]);
  await pool.query("update stream_log set at = now() - interval '8 days' where workspace_id = $1", [
    workspaceId,
  ]);
  expect(await trimLog(pool, 7, 100)).toMatchObject({ lost: [late.id] });
  for (const entries of others) await appendLog(pool as never, entriesOf(entries), now);
  const read = openReader(openSource(pool, 'service_id'), workspaceId, await cursorOf(late));
  const ids: string[] = [];
  for (let page = await read('999999999'); page; page = await read('999999999'))
    ids.push(...page.read.map(({ message }) => message.id));
  expect(ids).toEqual(others.flat().map(({ id }) => id));
});

test('a cursor inside a row of an earlier release loses no message of that row', async () => {
  const { workspaceId } = await stream('http://127.0.0.1:9');
  const entries = Array.from({ length: 9 }, () => ({
    ...{ workspaceId, kind: 'i' as const, profileId: NIL, id: newId(), detail: {} },
  }));
  await appendLog(pool as never, entriesOf(entries), new Date().toISOString());
  // In an earlier release the position was that of the previous row.
  const read = openReader(openSource(pool, 'service_id'), workspaceId, { position: '0', place: 5 });
  const page = await read('999999999');
  expect(page!.read.map(({ message }) => message.id)).toEqual(entries.map(({ id }) => id));
});

test('the back-off starts again after a successful delivery, also within one lease', async () => {
  const receiver = await startReceiver();
  const { id, workspace, state } = await stream(receiver.url);
  await pool.query('update stream_destinations set failures = 9 where id = $1', [id]);
  await apply(workspace, event('ada', 'one'));
  receiver.answer = (response) => {
    // The next message comes while this one is being delivered.
    receiver.answer = (next) => void next.writeHead(500).end();
    void apply(workspace, event('ada', 'two')).then(() => response.writeHead(204).end());
  };
  const running = deliverStreams();
  await soon(async () => (await state()).failures === 1);
  await running.stop();
  const waits =
    'select round(extract(epoch from next_try_at - failed_at))::float8 as s from stream_destinations where id = $1';
  expect((await pool.query(waits, [id])).rows).toEqual([{ s: 1 }]);
});
