import { describe, expect, inject, test, vi } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { watchHorizon } from '../../src/store/horizon.ts';
import { setDestinationState } from '../../src/store/stream-destinations.ts';
import { appendLog, readLog } from '../../src/store/stream-log.ts';
import { DeliveryError } from '../../src/streams/destination.ts';
import { signatureOf } from '../../src/streams/webhook.ts';
import { identity, merge, remove } from '../identity/objects.ts';
import { entriesOf } from '../setup/stream-entries.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { attributes, event, openPool, purchase, silent } from '../workers/batch.ts';
import { type Received, startReceiver } from './receiver.ts';
import { apply, deliverStreams, pool, soon, stream, url, useStore } from './scene.ts';

useStore();

const shown = ({ type, user: who, data }: Received) => [
  type,
  who?.external_id ?? null,
  data.name ?? data.product_id ?? data.change ?? data.subscription ?? data.custom_attributes,
];

describe('a change in a workspace', () => {
  test('is delivered signed and in order, and other workspaces are not logged', async () => {
    const receiver = await startReceiver();
    const { workspace, secret, state } = await stream(receiver.url);
    const other = await createWorkspace(pool, newId());
    const running = deliverStreams();
    await apply(other, event('ada'));
    await apply(
      workspace,
      event('ada', 'one'),
      attributes('ada', { change: undefined, custom: { plan: 'pro' } } as never),
      attributes('ada', { standard: { email: 'ada@x.com' }, email_subscribe: 'opted_in' } as never),
      purchase('ada'),
      event('ben', 'two'),
    );
    await apply(
      workspace,
      identity('external_id_rename', { current_external_id: 'ben', new_external_id: 'bob' }),
    );
    await apply(workspace, merge('bob', 'ada'));
    await apply(workspace, remove('ada'));
    await soon(async () => receiver.messages().some(({ data }) => data.change === 'deleted'));
    await soon(async () => (await state()).lag === 0);
    await running.stop();
    const { rows } = await pool.query('select from stream_log where workspace_id = $1', [other.id]);
    expect(rows).toEqual([]);
    const { headers, body } = receiver.taken[0]!;
    const at = Number(headers['webhook-timestamp']);
    expect(headers['webhook-signature']).toBe(
      signatureOf(secret, { id: headers['webhook-id'] as string, at, body }),
    );
    expect(Math.abs(Date.now() / 1000 - at)).toBeLessThan(60);
    expect(await state()).toMatchObject({ lag: 0, failures: 0, lost: 0 });
    const last = receiver.messages().at(-1)!;
    expect(last).toMatchObject({ type: 'identity', data: { change: 'deleted', external_id: 'ada' } });
  });

  test('is delivered with values before and after', async () => {
    const receiver = await startReceiver();
    const { workspace, workspaceId } = await stream(receiver.url);
    await apply(
      workspace,
      event('ada', 'one'),
      attributes('ada', { standard: { email: 'ada@x.com' }, email_subscribe: 'opted_in' } as never),
      event('ada', 'two'),
      purchase('ada'),
    );
    await apply(workspace, event('ben', 'three'));
    await apply(workspace, merge('ben', 'ada'));
    const running = deliverStreams();
    await soon(async () => receiver.messages().some(({ data }) => data.change === 'merged'));
    await running.stop();
    const messages = receiver.messages();
    expect(messages.map(shown)).toEqual([
      ['event', 'ada', 'one'],
      ['attributes', 'ada', {}],
      ['event', 'ada', 'two'],
      ['purchase', 'ada', 'book'],
      // Subscriptions follow the other objects of their request.
      ['subscription', null, ''],
      ['event', null, 'three'],
      ['identity', null, 'merged_into'],
      ['identity', 'ada', 'merged'],
    ]);
    expect(messages[0]).toMatchObject({
      workspace_id: workspaceId,
      user: { service_id: expect.stringMatching(/^[0-9a-f]{24}$/), external_id: 'ada' },
      data: { name: 'one', properties: null },
    });
    expect(messages[1]!.data.attributes).toMatchObject({ email: 'ada@x.com' });
    const positions = messages.map(({ position }) => position);
    expect(positions).toEqual([...new Set(positions)].sort());
    expect(messages.at(-1)!.data.from).toBe(messages.at(-2)!.user!.service_id);
  });

  test('of a user deleted before the delivery is omitted, except for the deletion', async () => {
    const receiver = await startReceiver();
    const { workspace } = await stream(receiver.url);
    await apply(workspace, event('ada'), attributes('ada', { standard: { first_name: 'Ada' } } as never));
    await apply(workspace, remove('ada'));
    const running = deliverStreams();
    await soon(async () => receiver.messages().length > 0);
    await running.stop();
    expect(receiver.messages().map(shown)).toEqual([['identity', null, 'deleted']]);
  });
});

describe('the horizon', () => {
  test('waits for an earlier id that commits after a later one', async () => {
    const { workspaceId } = await stream('http://127.0.0.1:9');
    const watch = watchHorizon(pool);
    const entry = { workspaceId, kind: 'i' as const, profileId: newId(), id: newId(), detail: {} };
    const now = new Date().toISOString();
    const slow = await openPool(url).connect();
    await slow.query('begin');
    await appendLog(slow as never, entriesOf([{ ...entry, id: newId() }]), now);
    await appendLog(pool as never, entriesOf([entry]), now);
    const read = async () => {
      await watch.check();
      await watch.check();
      return readLog(pool, workspaceId, { after: '0', horizon: watch.horizon(), limit: 10, entries: 10 });
    };
    expect(await read()).toEqual([]);
    // The row is visible; only the horizon holds it back.
    const all = { after: '0', horizon: '999999999', limit: 10, entries: 10 };
    expect(await readLog(pool, workspaceId, all)).toHaveLength(1);
    await slow.query('commit');
    slow.release(true);
    // Other transactions of the cluster may be open.
    await soon(async () => (await read()).length === 2);
  });

  /** Returns what is read up to the horizon while an earlier id commits after a later one. */
  async function readBetween(watch: ReturnType<typeof watchHorizon>, workspaceId: string) {
    const entry = () => ({ workspaceId, kind: 'i' as const, profileId: newId(), id: newId(), detail: {} });
    const now = new Date().toISOString();
    const slow = await openPool(url).connect();
    try {
      await slow.query('begin');
      await appendLog(slow as never, entriesOf([entry()]), now);
      await appendLog(pool as never, entriesOf([entry()]), now);
      await watch.check();
      const read = { after: '0', horizon: watch.horizon(), limit: 10, entries: 10 };
      return await readLog(pool, workspaceId, read);
    } finally {
      await slow.query('commit');
      slow.release(true);
    }
  }

  const lookUntil = (watch: ReturnType<typeof watchHorizon>, id: bigint) =>
    soon(async () => {
      await watch.check();
      return BigInt(watch.horizon()) >= id;
    });

  /** Advances the ids of the log. @returns the last id */
  const idsOfLog = async (moved: number) => {
    const { rows } = await pool.query(
      "select setval('stream_log_id', nextval('stream_log_id') + $1)::text as id",
      [moved],
    );
    return BigInt(rows[0]!.id);
  };

  test('goes back with the ids of the log, so that reused ids count as undecided', async () => {
    const { workspaceId } = await stream('http://127.0.0.1:9');
    const watch = watchHorizon(pool);
    const ahead = await idsOfLog(1000);
    await lookUntil(watch, ahead);
    // Sets the sequence back, as after a failover to a replica without the latest ids.
    await idsOfLog(-42);
    expect(await readBetween(watch, workspaceId)).toEqual([]);
    await idsOfLog(1000);
    await lookUntil(watch, ahead + 1n);
  });

  test('is determined again on another server, which counts ids and transactions separately', async () => {
    const { workspaceId } = await stream('http://127.0.0.1:9');
    // The other server is far ahead in both: it had more traffic, and had begun to decide when it was lost.
    const [ahead, oldest] = [String((await idsOfLog(0)) - 1n), '18000000000000000000'];
    const other = { server: 'other', last: ahead, xid: oldest, oldest };
    let isLost = false;
    const query = (given: string) => (isLost ? pool.query(given) : Promise.resolve({ rows: [other] }));
    const watch = watchHorizon({ query } as never);
    await watch.check();
    expect(watch.horizon()).toBe('0');
    isLost = true;
    const id = await idsOfLog(1);
    await lookUntil(watch, id);
    expect(await readBetween(watch, workspaceId)).toEqual([]);
  });

  test('is read once for simultaneous requests; a failed read leaves it unchanged until the next', async () => {
    const { workspaceId } = await stream('http://127.0.0.1:9');
    const watch = watchHorizon(pool);
    const entry = { workspaceId, kind: 'i' as const, profileId: newId(), id: newId(), detail: {} };
    await appendLog(pool as never, entriesOf([entry]), new Date().toISOString());
    const sent = vi.spyOn(pool, 'query');
    await Promise.all(Array.from({ length: 20 }, () => watch.check()));
    // Two reads of the horizon, and one of the numbers; with nodes, each is one statement for the coordinator
    // and one for the nodes.
    expect(sent.mock.calls.length).toBeLessThanOrEqual(inject('citusTemplate') ? 5 : 3);
    sent.mockRestore();
    await appendLog(pool as never, entriesOf([{ ...entry, id: newId() }]), new Date().toISOString());
    const before = BigInt(watch.horizon());
    const failing = vi.spyOn(pool, 'query').mockImplementation(() => Promise.reject(new Error('away')));
    const checks = await Promise.allSettled([watch.check(), watch.check()]);
    failing.mockRestore();
    expect(checks.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(BigInt(watch.horizon())).toBe(before);
    await soon(async () => {
      await Promise.all([watch.check(), watch.check()]);
      return BigInt(watch.horizon()) > before;
    });
  });
});

describe('a failure on the side of Penstock', () => {
  test('is reported as one of Postgres or as a bug, whose stack is in the log', async () => {
    const failures: [Error, string][] = [
      [
        new TypeError('x is not a function'),
        'a mistake of Penstock itself: the log of the sync process has it',
      ],
      [new Error('unexpected'), 'a mistake of Penstock itself: the log of the sync process has it'],
      [
        Object.assign(new Error('no such table'), { code: '42P01' }),
        'Postgres answered with the error 42P01',
      ],
      [Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }), 'Postgres did not answer'],
      [Object.assign(new Error('write'), { code: 'EPIPE' }), 'Postgres did not answer'],
      [new Error('Connection terminated unexpectedly'), 'Postgres did not answer'],
    ];
    const streams = await Promise.all(failures.map(() => stream('http://127.0.0.1:9')));
    for (const { workspace } of streams) await apply(workspace, event('ada'));
    const logged: unknown[] = [];
    const log = Object.assign(Object.create(silent), {
      error: ({ err, destination, stream: name }: { err: Error; destination: string; stream: string }) =>
        logged.push([destination, err, typeof name]),
    });
    const open = ({ id }: { id: string }) => {
      throw failures[streams.findIndex((one) => one.id === id)]?.[0] ?? new DeliveryError('not asked');
    };
    const running = deliverStreams({ open, log });
    for (const [index, { state }] of streams.entries()) {
      await soon(async () => (await state()).failures > 0);
      expect((await state()).lastError).toBe(failures[index]![1]);
    }
    await running.stop();
    expect(logged).toContainEqual([streams[0]!.id, failures[0]![0], 'string']);
    expect(logged).toContainEqual([streams[1]!.id, failures[1]![0], 'string']);
    expect(new Set(logged.map((one) => (one as string[])[0])).size).toBe(2);
  });
});

describe('a receiver that', () => {
  test.each<[string, number]>([
    ['answers 500', 500],
    ['redirects', 302],
    ['asks for a pause', 429],
  ])('%s gets everything later, in order, and delays no other receiver', async (_, status) => {
    const [bad, good] = await Promise.all([startReceiver(), startReceiver()]);
    bad.answer = (response) => void response.writeHead(status, { location: good.url }).end();
    const failing = await stream(bad.url);
    await stream(good.url, failing.workspace);
    const running = deliverStreams();
    const names = Array.from({ length: 20 }, (_, index) => `event-${index}`);
    for (const name of names) await apply(failing.workspace, event('ada', name), event(name, name));
    await soon(async () => good.messages().length === 40);
    await soon(async () => (await failing.state()).failures > 0);
    expect(await failing.state()).toMatchObject({ lastError: expect.stringContaining(`answered ${status}`) });
    expect((await failing.state()).lag).toBeGreaterThan(0);
    expect(good.requests).toBe(good.taken.length);
    bad.answer = undefined;
    await setDestinationState(pool, failing, 'paused');
    await setDestinationState(pool, failing, 'active');
    await soon(async () => bad.messages().length >= 40);
    await soon(async () => (await failing.state()).lag === 0);
    await running.stop();
    const ada = bad.messages().filter(({ user: who }) => who!.external_id === 'ada');
    expect(ada.map(({ data }) => data.name)).toEqual(names);
    expect(bad.messages().map(({ id }) => id)).toEqual(good.messages().map(({ id }) => id));
    expect(await failing.state()).toMatchObject({ failures: 0, lastError: null, lag: 0 });
  });

  test('answers 410 is paused, and continues at its cursor when it is resumed', async () => {
    const receiver = await startReceiver();
    receiver.answer = (response) => void response.writeHead(410).end();
    const gone = await stream(receiver.url);
    const running = deliverStreams();
    await apply(gone.workspace, event('ada'));
    await soon(async () => (await gone.state()).state === 'paused');
    receiver.answer = undefined;
    await setDestinationState(pool, gone, 'active');
    await soon(async () => receiver.messages().length === 1);
    await running.stop();
  });
});
