import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { FleetState } from '../../src/board/fleet.ts';
import { createLive, type Live } from '../../src/board/live.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import type { Database } from '../../src/store/database.ts';
import { createCompany } from '../setup/access.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createVisitor } from './browser-session.ts';
import { type Console, openConsole, page } from './console-scene.ts';
import { log } from './installation.ts';
import type { Visitor } from './people.ts';

/** Opens a stream and records its output and its end. */
function listen(visitor: Visitor, path = '/events') {
  const leaving = new AbortController();
  const received = { status: 0, headers: new Headers(), text: '', ended: false };
  const reading = (async () => {
    const answer = await visitor.send('GET', path, {
      signal: leaving.signal,
      headers: { accept: 'text/event-stream' },
    });
    received.status = answer.status;
    received.headers = answer.headers;
    for await (const piece of answer.body!) received.text += Buffer.from(piece).toString();
    received.ended = true;
  })().catch(() => {
    received.ended = true;
  });
  const leave = async () => {
    leaving.abort();
    await reading;
  };
  return { received, leave };
}

const partsOf = (text: string): Record<string, string>[] =>
  [...text.matchAll(/^event: parts\ndata: (.+)$/gm)].map(([, data]) => JSON.parse(data!));

const until = (what: string, holds: () => boolean | Promise<boolean>) =>
  waitUntil(async () => holds(), { what, deadline: 30_000 });

describe('the health page as a stream', () => {
  let scene: Console;
  beforeAll(async () => {
    scene = await openConsole();
  });
  afterAll(() => scene.installation.stop());

  test('a stream sends every part first, and then only parts that changed', async () => {
    const { visitor } = await scene.people.arrive();
    const { received, leave } = listen(visitor, '/events?range=day');
    await until('the first parts', () => partsOf(received.text).length > 0);
    expect(received.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(received.headers.get('x-accel-buffering')).toBe('no');
    expect(received.headers.get('cache-control')).toBe('no-store');
    expect(received.text).toMatch(/^retry: \d+\n\n/);
    const [first] = partsOf(received.text);
    const names = [
      'as_of',
      'charts',
      'figures',
      'lanes',
      'marks',
      'problem_count',
      'problems',
      'processes',
      'stores',
    ];
    expect(Object.keys(first!).sort()).toEqual(names);
    await scene.letterIn(scene.shop);
    await until('the change', () =>
      partsOf(received.text).some((one, index) => index > 0 && 'figures' in one),
    );
    const change = partsOf(received.text).at(-1)!;
    expect(change.stores === undefined || change.marks === undefined).toBe(true);
    await leave();
  });

  test('accounts see names of failing streams and imports of their own workspaces only', async () => {
    const pool = scene.installation.database.pool as never;
    const other = await createCompany(pool, `company-${uuidv7()}`);
    const bakery = uuidv7();
    await scene.query(
      'insert into workspaces (id, name, company_id) values ($1, $2, $3)',
      ...[bakery, 'bakery', other],
    );
    await scene.query(
      `insert into stream_destinations (workspace_id, id, name, kind, settings, position, failures, last_error, failed_at)
       values ($1, $2, 'oven', 'webhook', '{"url": "https://oven.example.com/"}', 0, 3, 'no such oven', now())`,
      ...[bakery, uuidv7()],
    );
    await scene.query(
      `insert into imports (workspace_id, key, id, file, digest, reading, rows_done, started_at, staged_at)
       values ($1, '\\x01', gen_random_uuid(), 'flour.csv', '\\x02', '{}', 40, now() - interval '3 hours', now() - interval '2 hours')`,
      bakery,
    );
    const allowed = { workspace: scene.shop, permissions: ['edit_cloud_data_ingestion'], teams: [] };
    const viewers = {
      operator: scene.operator,
      shopkeeper: (await scene.people.arrive([], { appGroups: [allowed] })).visitor,
      baker: (await scene.people.arrive(['admin'], { company: other })).visitor,
      newcomer: (await scene.people.arrive()).visitor,
    };
    const names = ['crm', 'shop', 'oven', 'bakery', 'flour.csv'];
    const isIn = (text: string) => names.filter((name) => text.includes(name));
    const expected = {
      operator: names,
      shopkeeper: ['crm', 'shop'],
      baker: ['oven', 'bakery', 'flour.csv'],
      newcomer: [],
    };
    const shownTo = async (visitor: Visitor) =>
      /data-live="problems">(.*?)<div data-live="figures">/s.exec((await page(visitor, '/')).text)![1]!;
    // Readings are cached, so the first ones may be from before the rows were added.
    await until('the new rows', async () => isIn(await shownTo(scene.operator)).length === names.length);
    for (const [who, visitor] of Object.entries(viewers)) {
      const { received, leave } = listen(visitor);
      await until('the first parts', () => partsOf(received.text).length > 0);
      const [{ problems }] = partsOf(received.text) as [Record<string, string>];
      await leave();
      expect([who, isIn(problems!), isIn(await shownTo(visitor))]).toEqual([
        who,
        ...Array(2).fill(expected[who as never]),
      ]);
    }
  });

  test('a stream needs a session, and other methods are rejected', async () => {
    const stranger = createVisitor(scene.board);
    expect((await stranger.get('/events', { accept: 'text/event-stream' })).status).toBe(401);
    expect((await scene.operator.send('POST', '/events')).status).toBe(405);
    const head = await scene.operator.send('HEAD', '/events');
    expect([head.status, head.headers.get('content-type')]).toEqual([
      200,
      'text/event-stream; charset=utf-8',
    ]);
  });

  test('an account can have eight streams, and others can still open theirs', async () => {
    const { visitor } = await scene.people.arrive();
    const streams = Array.from({ length: 8 }, () => listen(visitor));
    await until('all of them', () => streams.every(({ received }) => received.status === 200));
    const refused = await visitor.get('/events', { accept: 'text/event-stream' });
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '30']);
    const other = listen(scene.operator);
    await until('that of somebody else', () => other.received.status === 200);
    await streams[0]!.leave();
    await waitUntil(
      async () => {
        const again = listen(visitor);
        await until('an answer', () => again.received.status > 0);
        await again.leave();
        return again.received.status === 200;
      },
      { what: 'room for another', deadline: 10_000 },
    );
    for (const { leave } of [...streams, other]) await leave();
  });

  test('a stream ends with the session, and when the console stops', async () => {
    const { visitor, id } = await scene.people.arrive();
    const { received } = listen(visitor);
    await until('the first parts', () => partsOf(received.text).length > 0);
    await scene.query('update accounts set active = false where id = $1', id);
    await until('its end', () => received.ended);
    expect(received.text).toContain('event: end\n');

    const board = await scene.installation.startBoard();
    const operator = createVisitor(board);
    await operator.signIn();
    const other = listen(operator);
    await until('the first parts', () => partsOf(other.received.text).length > 0);
    await board.stop();
    await until('its end', () => other.received.ended);
    expect(other.received.text).not.toContain('event: end\n');
  });
});

describe('streams of a fleet', () => {
  let server: Server;
  let calls = 0;
  let live: Live;
  const gone = new Set<string>();

  beforeAll(async () => {
    const now: FleetState = {
      ...{ at: new Date(), queue: 'postgres', lacking: [], problems: [] },
      ...{ counters: undefined, rates: undefined },
    };
    live = createLive({
      fleet: { read: async () => ({ ...now, at: new Date(Date.now() + calls++) }) },
      ...{ connection: { kind: 'postgres' } as QueueConnection, database: {} as Database, log },
      lacking: () => [],
      ...{ checkMs: 50, lifeMs: 5000 },
    });
    const app = express();
    app.use((request, response, next) => {
      const { owner = '' } = request.query as { owner?: string };
      response.locals.viewer = { accountId: owner };
      response.locals.again = async () => {
        if (owner === 'unknown') throw new Error('no Postgres');
        return gone.has(owner) ? undefined : response.locals.viewer;
      };
      next();
    });
    app.get('/events', live.serve);
    server = app.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  afterAll(async () => {
    await live.stop();
    server.close();
  });

  const listenAs = (owner: string) => {
    const { port } = server.address() as AddressInfo;
    return listen(createVisitor({ url: `http://127.0.0.1:${port}` }), `/events?owner=${owner}`);
  };

  test('streams share one reading, end after their lifetime, and end when the session is lost', async () => {
    expect(calls).toBe(0);
    const streams = ['a', 'b', 'gone', 'unknown'].map(listenAs);
    await until('parts for all', () => streams.every(({ received }) => partsOf(received.text).length > 0));
    const [before, had] = [calls, streams.map(({ received }) => partsOf(received.text).length)];
    await until('a change in all', () =>
      streams.every(({ received }, index) => partsOf(received.text).length > had[index]!),
    );
    expect(calls - before).toBe(1);
    gone.add('gone');
    await until('the end of one', () => streams[2]!.received.ended);
    expect(streams[2]!.received.text).toContain('event: end\n');
    // While the session cannot be checked, the stream continues, with comments that keep proxies from closing it.
    expect(streams.map(({ received }) => received.ended)).toEqual([false, false, true, false]);
    expect(streams[3]!.received.text).toMatch(/^:$/m);
    await until('the end of all', () => streams.every(({ received }) => received.ended));
    expect(streams[0]!.received.text).not.toContain('event: end');
    expect(live.count()).toBe(0);
  });
});
