import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { until } from '../../src/platform/poll.ts';
import type { Context } from '../../src/resources/resource.ts';
import { beginMove } from '../../src/resources/workspace-moves.ts';
import { searchAudit } from '../../src/store/audit-list.ts';
import { createVisitor } from './browser-session.ts';
import { type Console, openConsole, page, post } from './console-scene.ts';
import { createInstallation } from './installation.ts';
import type { Visitor } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene.installation.stop());

/** Returns the visible text of a page. */
const words = (text: string) => text.replace(/<[^>]+>/g, ' ').replace(/\s+/g, ' ');

test('usage of the last 30 days including today is drawn and listed in a table', async () => {
  expect((await page(scene.operator, `/workspaces/${scene.shop}`)).text).toContain('Nothing was applied');
  await scene.query(
    `insert into usage (workspace_id, day, lane, attributes, events)
     select $1, (now() at time zone 'utc')::date - n, lane, n, 1000
     from generate_series(0, 60) as n, generate_series(0, 1) as lane`,
    scene.shop,
  );
  const { text } = await page(scene.operator, `/workspaces/${scene.shop}`);
  const today = new Date().toISOString().slice(0, 10);
  expect(words(text)).toContain(`${today} 0 2,000 0 0 0 2,000`);
  expect(text.split('<rect ')).toHaveLength(31);
  expect(text.match(/<td[^>]*>\d{4}-\d\d-\d\d<\/td>/g)).toHaveLength(30);
  expect(text).toMatch(/role="img" aria-label="Applied objects by day, from .* most on .*: 2,058"/);
  expect(text).not.toMatch(/style=|<script>/);
  // Usage of another workspace is not included.
  expect((await page(scene.operator, `/workspaces/${scene.school}`)).text).toContain('Nothing was applied');
});

test('limits name the endpoints that each bucket counts', async () => {
  const path = `workspace=${scene.shop}`;
  const list = words((await page(scene.operator, `/limits?${path}`)).text);
  expect(list).toMatch(
    /users\.external_ids 1,000 1 min built in Counts POST \/users\/external_ids\/rename, POST \/users\/external_ids\/remove\./,
  );
  expect(list).toMatch(/all other endpoints \(default\) 250,000 .* and \d+ more\./);
  const one = words((await page(scene.operator, `/limits/default?${path}`)).text);
  expect(one).toContain('GET /email/unsubscribes');
  expect(one).toContain('GET /segments/list');
});

test('only BOARD_USER can set and reset limits, with audit entries', async () => {
  const path = `/workspaces/${scene.shop}`;
  const rowOf = async () =>
    /users\.track ([\d,]+ \S+ \S+ (?:own|built in)) Counts POST \/users\/track\./.exec(
      words((await page(scene.operator, path)).text),
    )?.[1];
  expect(await rowOf()).toBe('50,000 1 min built in');
  const limit = `/limits/users.track?workspace=${scene.shop}`;
  const set = { action: 'set', requests: '7', window_seconds: '3600' };
  const changed = await post(scene.operator, limit, set);
  expect(changed.status).toBe(303);
  const { text } = await page(scene.operator, changed.headers.get('location')!);
  expect(text).toContain('Limit set. It applies within 2 s.');
  expect(await rowOf()).toBe('7 1 h own');
  for (const wrong of [{ requests: '0' }, { requests: '1.5' }, { window_seconds: '3000000000' }])
    expect((await post(scene.operator, limit, { ...set, ...wrong })).status).toBe(400);
  expect((await post(scene.operator, `/limits/all?workspace=${scene.shop}`, set)).status).toBe(404);
  const admin = await scene.people.arrive(['admin']);
  expect((await post(admin.visitor, limit, set)).status).toBe(403);
  const resetAll = { action: 'reset', workspace: scene.shop };
  expect((await post(admin.visitor, '/limits', resetAll)).status).toBe(403);
  for (let press = 0; press < 2; press++) await post(scene.operator, limit, { action: 'reset' });
  expect(await rowOf()).toBe('50,000 1 min built in');
  const { rows } = await searchAudit(scene.installation.database.pool, { subject: 'users.track', limit: 10 });
  expect(rows.map(({ action, detail }) => [action, detail])).toEqual([
    ['rate_limits.reset', {}],
    ['rate_limits.set', { requests: 7, window_seconds: 3600 }],
  ]);
  await post(scene.operator, limit, set);
  expect((await post(scene.operator, '/limits', { ...resetAll, bucket: 'moon' })).status).toBe(400);
  expect((await post(scene.operator, '/limits', resetAll)).status).toBe(303);
  expect(await rowOf()).toBe('50,000 1 min built in');
});

test('BOARD_USER creates a workspace of a company; a name that is taken stays in the form', async () => {
  const made = await post(scene.operator, '/workspaces', { name: 'atelier', company: 'default' });
  expect(made.status).toBe(303);
  const path = made.headers.get('location')!;
  expect((await page(scene.operator, path)).text).toContain('<h1>atelier</h1>');
  const [entry] = await scene.query("select detail from audit where action = 'workspaces.create'");
  expect(entry).toEqual({ detail: { name: 'atelier' } });
  for (const [fields, problem] of [
    [{ name: 'atelier', company: 'default' }, 'already exists'],
    [{ name: 'studio', company: 'moon' }, 'No company has the name or the id'],
  ] as const) {
    const answer = await post(scene.operator, '/workspaces', fields);
    const text = await answer.text();
    expect([answer.status >= 400, text.includes(problem)]).toEqual([true, true]);
    expect(text).toContain(`name="name" value="${fields.name}"`);
  }
});

test('a move that cannot begin is shown with its reason, and an unknown shard at its field', async () => {
  const installation = await createInstallation('redis', { env: { SHARDS: '2' } });
  try {
    const operator = createVisitor(await installation.startBoard());
    await operator.signIn();
    const { prisma } = installation.database;
    const company = await prisma.company.findFirstOrThrow();
    const data = { id: uuidv7(), name: 'atelier', companyId: company.id };
    await prisma.workspace.create({ data });
    const path = `/workspaces/${data.id}`;
    const unknown = await post(operator, path, { action: 'move', shard: '2', wait: '1' });
    expect(unknown.status).toBe(400);
    expect(await unknown.text()).toContain('Shard 2 does not exist: SHARDS is 2');
    // Without a worker, the markers of the move are not applied.
    const move = { action: 'move', shard: '1', wait: '1' };
    expect((await post(operator, path, move)).status).toBe(303);
    expect((await page(operator, path)).text).toMatch(/data-refresh="2"[\s\S]*moving to shard 1/);
    expect((await post(operator, path, move)).status).toBe(409);
    const text = await until(async () => (await page(operator, path)).text, {
      every: 100,
      deadline: Date.now() + 15_000,
      isSo: (shown) => shown.includes('move to shard 1 failed'),
    });
    expect(text).toContain('the workspace stays in shard 0');
  } finally {
    await installation.stop();
  }
});

test('a move opens the queue once, whether it ends well or the shard does not exist', async () => {
  const { resourceContext } = scene.installation;
  let opened = 0;
  const context: Context = {
    ...resourceContext,
    withQueue(work) {
      opened += 1;
      return resourceContext.withQueue(work);
    },
  };
  const { ended } = await beginMove(context, scene.shop, { to: 0, wait: 1 });
  expect(await ended).toEqual({ from: 0, held: 0 });
  expect(opened).toBe(1);
  await expect(beginMove(context, scene.shop, { to: 1, wait: 1 })).rejects.toThrow('SHARDS is 1');
  expect(opened).toBe(2);
});

test('the end of a move is recorded again if Postgres did not store it', async () => {
  const { resourceContext } = scene.installation;
  const { database } = resourceContext;
  let failures = 0;
  const pool = new Proxy(database.pool, {
    get: (target, name) =>
      name === 'query'
        ? (text: string, values: unknown[] = []) => {
            if (String(text).includes('endedAt') && values[3] === true && failures++ === 0)
              return Promise.reject(new Error('no answer'));
            return target.query(text, values);
          }
        : Reflect.get(target, name, target),
  });
  const context: Context = { ...resourceContext, database: { ...database, pool } };
  const { ended } = await beginMove(context, scene.shop, { to: 0, wait: 1 });
  await ended;
  expect(failures).toBe(2);
  const [{ ended: at }] = await scene.query(
    `select shard_move ->> 'endedAt' as ended from workspaces where id = $1`,
    scene.shop,
  );
  expect(Date.parse(at)).toBeGreaterThan(Date.now() - 60_000);
});

test('two processes of the console show a move, refuse a second one, and report a lost one', async () => {
  const installation = await createInstallation('redis', { env: { SHARDS: '2' } });
  try {
    const visitors = [];
    for (const board of [await installation.startBoard(), await installation.startBoard()]) {
      const visitor = createVisitor(board);
      await visitor.signIn();
      visitors.push(visitor);
    }
    const [first, second] = visitors as [Visitor, Visitor];
    const { prisma, pool } = installation.database;
    const company = await prisma.company.findFirstOrThrow();
    const data = { id: uuidv7(), name: 'studio', companyId: company.id };
    await prisma.workspace.create({ data });
    const path = `/workspaces/${data.id}`;
    const move = { action: 'move', shard: '1', wait: '2' };
    expect((await post(first, path, move)).status).toBe(303);
    expect((await page(second, path)).text).toMatch(/data-refresh="2"[\s\S]*moving to shard 1/);
    expect((await post(second, path, move)).status).toBe(409);
    const ended = await until(async () => (await page(second, path)).text, {
      ...{ every: 100, deadline: Date.now() + 15_000 },
      isSo: (shown) => shown.includes('move to shard 1 failed'),
    });
    expect(ended).toContain('the workspace stays in shard 0');

    // The record that a process leaves when it is killed during a move.
    await pool.query(
      `update workspaces set shard_move = jsonb_build_object('id', 'x', 'to', 1, 'startedAt', now(),
         'seenAt', now() - interval '11 seconds') where id = $1`,
      [data.id],
    );
    const lost = (await page(first, path)).text;
    expect(lost).toContain('move to shard 1 interrupted');
    expect(lost).not.toContain('data-refresh');
    expect((await post(second, path, move)).status).toBe(303);
    await until(async () => (await page(first, path)).text, {
      ...{ every: 100, deadline: Date.now() + 15_000 },
      isSo: (shown) => shown.includes('move to shard 1 failed'),
    });
  } finally {
    await installation.stop();
  }
});
