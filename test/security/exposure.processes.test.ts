import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { endStarted, KEY, output, runningOn, settings, startAndWait } from '../setup/npm-start.ts';

/** Settings of an installation started by npm start, with every possible secret. */
const secrets = {
  BOARD_PASSWORD: 'correct horse battery staple',
  BOOTSTRAP_API_KEY: 'bootstrap-api-key-of-this-test',
  BOOTSTRAP_SCIM_TOKEN: 'bootstrap-scim-token-of-this-test',
};
let env: Awaited<ReturnType<typeof settings>>;
let databasePassword: string;
let everything: string[];

beforeAll(async () => {
  env = await settings();
  const start = await startAndWait({
    ...env,
    ...secrets,
    BOOTSTRAP_SCIM_ORIGIN: 'https://idp.example',
    LOG_LEVEL: 'trace',
  });
  databasePassword = readFileSync(path.join(env.DATA_DIR, 'password'), 'utf8').trim();
  everything = [...Object.values(secrets), databasePassword];
  for (const key of [secrets.BOOTSTRAP_API_KEY, 'made-up-key-that-opens-nothing']) {
    await send(Number(env.PORT), {
      path: '/users/export/ids',
      key,
      json: { external_ids: ['ada'] },
    });
  }
  logged = () => JSON.stringify(start.log) + output(start);
});
let logged: () => string;
afterAll(() => endStarted());

test('every port is open to this machine only, unless a setting says otherwise', () => {
  const listening = ['tcp', 'tcp6'].flatMap((family) =>
    readFileSync(`/proc/net/${family}`, 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(([, , , state]) => state === '0A')
      .map(([, local]) => local!.split(':') as [string, string]),
  );
  // The embedded Postgres has no port.
  const postgres = new URL(readFileSync(path.join(env.DATA_DIR, 'database-url'), 'utf8').trim());
  expect(postgres.hostname).toBe(encodeURIComponent(path.join(env.DATA_DIR, 'socket')));
  for (const port of [env.PORT, env.BOARD_PORT, env.WORKER_PORT]) {
    const addresses = listening.flatMap(([address, hex]) =>
      Number.parseInt(hex, 16) === Number(port) ? [address] : [],
    );
    // 127.0.0.1 in the kernel's byte order.
    expect(addresses, port).toEqual(['0100007F']);
  }
});

test('command lines, which every user of the machine can read, contain no secret', () => {
  const commands = runningOn(env.DATA_DIR).map(({ command }) => command);
  expect(commands.length).toBeGreaterThan(3);
  for (const secret of everything) expect(commands.join('\n')).not.toContain(secret);
});

test('/metrics, /readyz and the API document contain no secret', async () => {
  for (const port of [env.PORT, env.WORKER_PORT]) {
    for (const page of ['/metrics', '/readyz', '/openapi.json']) {
      const text = await (await fetch(`http://127.0.0.1:${port}${page}`)).text();
      for (const secret of everything) expect(text, page).not.toContain(secret);
    }
  }
});

test('the log contains no secret, at any level', async () => {
  // Lines are buffered for a moment before they are written.
  await waitUntil(() => logged().includes('"status":401'), { what: 'the line of a refused request' });
  const text = logged();
  for (const secret of [...everything, 'made-up-key']) expect(text).not.toContain(secret);
  expect(text).not.toMatch(KEY);
});

test('only the owner can read the data and the secrets in DATA_DIR', () => {
  for (const name of readdirSync(env.DATA_DIR)) {
    const { mode } = statSync(path.join(env.DATA_DIR, name));
    // The lock returns only a process id to its clients.
    if (name === 'lock.sock') continue;
    expect((mode & 0o077).toString(8), name).toBe('0');
  }
});

test('SQL in a name is stored and read back as data, without any effect', async () => {
  const sql = `'); drop table events; -- "$1 \\ %s`;
  const time = '2026-01-02T03:04:05Z';
  const port = Number(env.PORT);
  const key = secrets.BOOTSTRAP_API_KEY;
  const answer = await send(port, {
    path: '/users/track',
    key,
    json: {
      attributes: [{ external_id: sql, first_name: sql, [sql]: sql }],
      events: [{ external_id: sql, name: sql, time, properties: { [sql]: sql } }],
      purchases: [{ external_id: sql, product_id: sql, currency: 'USD', price: 1, time }],
    },
  });
  expect(answer).toMatchObject({ status: 201, body: { message: 'success' } });
  const user = await waitUntil(
    async () => {
      const { body } = await send(port, { path: '/users/export/ids', key, json: { external_ids: [sql] } });
      return body.users[0]?.custom_events && body.users[0];
    },
    { what: 'the user' },
  );
  expect(user).toMatchObject({
    external_id: sql,
    first_name: sql,
    custom_attributes: { [sql]: sql },
    custom_events: [{ name: sql, count: 1 }],
    purchases: [{ name: sql, count: 1 }],
  });
});
