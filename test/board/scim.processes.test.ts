import { afterAll, beforeAll, expect, test } from 'vitest';
import { startBoard } from '../../src/board/server.ts';
import { readConfig } from '../../src/platform/config.ts';
import { connectProducer } from '../../src/queue/connection.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { penstockOn } from '../admin/penstock.ts';
import { createScene, type Scene } from '../scim/scene.ts';
import { createVisitor } from './browser-session.ts';
import { account, log } from './installation.ts';

let scene: Scene;
let board: Awaited<ReturnType<typeof startBoard>>;
const stops: (() => Promise<void>)[] = [];
beforeAll(async () => {
  scene = await createScene();
  const url = scene.fleet.env.DATABASE_URL!;
  const config = readConfig({ ...scene.fleet.env, BOARD_PORT: '0' });
  const database = openDatabase(url, 2);
  const connection = connectProducer(config, url);
  const producer = createLaneProducer(connection, { timeout: config.QUEUE_TIMEOUT_MS, log });
  const stores = { database, connection, producer, loss: () => undefined };
  board = await startBoard({ config, account, log }, stores, { lacking: () => [] });
  stops.push(board.stop, producer.stop, connection.stop, database.stop, scene.stop);
});
afterAll(async () => {
  for (const stop of stops) await stop();
});

const PASSWORD = 'seven wooden ladders';

test('an account created over SCIM can be invited, signs in, and is deactivated over SCIM', async () => {
  const { provider } = scene;
  const { id, userName } = await provider.create({ userName: 'Ada@corp.internal' });
  const read = async () => (await provider.call('GET', `/Users/${id}`)).body;
  expect((await read()).lastSignInAt).toBe('N/A');

  const command = penstockOn(scene.fleet.env.DATABASE_URL!);
  const { invitation } = await command.json(`accounts invite ${userName} --board-url ${board.url}`);
  const visitor = createVisitor(board);
  const path = invitation.slice(board.url.length);
  expect(await (await visitor.get(path)).text()).toContain('value="ada@corp.internal"');
  const token = new URLSearchParams(path.split('?')[1]).get('token')!;
  const body = new URLSearchParams({ token, password: PASSWORD, again: PASSWORD });
  expect((await visitor.send('POST', '/invitation', { body })).status).toBe(303);
  // Setting a password is not a sign-in.
  expect((await read()).lastSignInAt).toBe('N/A');

  const before = Date.now();
  expect((await visitor.signIn('ADA@corp.internal', PASSWORD)).status).toBe(303);
  const { lastSignInAt } = await read();
  expect(lastSignInAt).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  expect(Date.parse(lastSignInAt)).toBeGreaterThanOrEqual(before - 1);
  const statusOfQueues = async () => (await visitor.get('/queues/api/queues')).status;
  expect(await statusOfQueues()).toBe(200);

  const set = (active: boolean) => provider.patch(id, [{ op: 'replace', path: 'active', value: active }]);
  expect((await set(false)).status).toBe(200);
  expect(await statusOfQueues()).toBe(401);
  expect((await visitor.signIn(userName, PASSWORD)).status).toBe(401);
  expect((await set(true)).status).toBe(200);
  // The old session stays ended. The password is unchanged.
  expect(await statusOfQueues()).toBe(401);
  expect((await visitor.signIn(userName, PASSWORD)).status).toBe(303);
  expect(await statusOfQueues()).toBe(200);

  expect((await provider.call('DELETE', `/Users/${id}`)).status).toBe(204);
  expect(await statusOfQueues()).toBe(401);
});

test('permissions set over SCIM apply in the console from the next request', async () => {
  const { provider } = scene;
  const { id, userName } = await provider.create({ permissions: { companyPermissions: [], appGroup: [] } });
  const command = penstockOn(scene.fleet.env.DATABASE_URL!);
  const { invitation } = await command.json(`accounts invite ${userName}`);
  const visitor = createVisitor(board);
  const token = /token=([\w-]+)/.exec(invitation)![1]!;
  await visitor.send('POST', '/invitation', {
    body: new URLSearchParams({ token, password: PASSWORD, again: PASSWORD }),
  });
  await visitor.signIn(userName, PASSWORD);
  // A user with the right gets an error about the form. Other users are rejected earlier.
  const act = async () =>
    (
      await visitor.send('POST', '/dead-letters', {
        body: new URLSearchParams({ action: 'replay', workspace: provider.workspace.id }),
      })
    ).status;
  expect(await act()).toBe(403);
  const path = 'permissions.companyPermissions';
  for (const name of ['manage_company_settings', 'admin']) {
    await provider.patch(id, [{ op: 'add', path, value: [name] }]);
    expect([name, await act()]).toEqual([name, 400]);
    await provider.patch(id, [{ op: 'remove', path }]);
    expect(await act()).toBe(403);
  }
  await provider.patch(id, [{ op: 'add', path, value: ['add_remove_app_groups'] }]);
  expect(await act()).toBe(403);
});
