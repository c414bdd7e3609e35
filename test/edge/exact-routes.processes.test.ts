import { once } from 'node:events';
import { connect } from 'node:net';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allOperations } from '../../src/operations/index.ts';
import { permissions } from '../../src/schemas/permissions.ts';
import { newApiKey } from '../../src/store/credentials.ts';
import { createInstallation } from '../board/installation.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { exampleOf, send } from '../setup/api.ts';
import { createWorkspace } from '../setup/workspace.ts';

const operations = allOperations('service_id');

let fleet: Fleet;
beforeAll(async () => {
  fleet = await startFleet('postgres', { edges: 1, workers: 1, syncs: 1 });
});
afterAll(() => fleet?.stop());

/** The status of a request that is sent unchanged. `fetch` would normalize its target. */
async function statusOf(
  port: number,
  requestLine: `${string} ${string}`,
  headers: string[] = [],
): Promise<number> {
  const socket = connect(port, '127.0.0.1');
  let answer = '';
  socket.setEncoding('latin1').on('data', (data) => {
    answer += data;
  });
  const lines = headers.length > 0 ? headers : ['Host: a'];
  const head = [`${requestLine} HTTP/1.1`, ...lines, 'Connection: close', 'Content-Length: 0', '', ''];
  socket.write(head.join('\r\n'), 'latin1');
  await once(socket, 'close');
  return Number(answer.split(' ')[1]);
}

/** Spellings that a proxy's rule for the path would not match. */
const spellings = (path: string) =>
  [
    path.toUpperCase(),
    `/${path[1]!.toUpperCase()}${path.slice(2)}`,
    `${path}/`,
    `${path}//`,
    `///${path.slice(1)}`,
    path.replace(/(?<=.)\//, '//'),
    `/.${path}`,
    `/x/..${path}`,
    `/%2f${path.slice(1)}`,
    `/%${path.charCodeAt(1).toString(16)}${path.slice(2)}`,
    `\\${path.slice(1)}`,
    `/\\${path.slice(1)}`,
    `${path}#`,
    `${path}#x`,
    `${path.replaceAll('/', '\\').replace('\\', '/')}${path.lastIndexOf('/') > 0 ? '?#' : '\\'}`,
    `${path}\xa0`,
    `${path};x`,
    `${path}%20`,
  ].filter((spelling) => spelling !== path && spelling !== `/${path}`);

describe('a path matches an operation or page only with its exact spelling', () => {
  test.each(operations)('$method $path', async ({ method, path }) => {
    const { port } = fleet.edges[0]!;
    const own = path.replace(/:\w+/g, 'example');
    expect(await statusOf(port, `${method} ${own}`)).toBe(401);
    for (const spelling of spellings(own)) {
      // These two are other values of a last parameter.
      if (/:\w+$|v1\/list$/.test(path) && /(;x|%20)$/.test(spelling)) continue;
      // Node's own parser refuses some spellings with 400.
      expect([spelling, await statusOf(port, `${method} ${spelling}`)]).toEqual([
        spelling,
        expect.toBeOneOf([400, 404]),
      ]);
    }
  });

  test.each(['/metrics', '/readyz', '/healthz'])('%s in every process', async (page) => {
    for (const { port } of [...fleet.edges, ...fleet.workers, ...fleet.syncs]) {
      expect(await statusOf(port, `GET ${page}`)).toBeOneOf([200, 503]);
      for (const spelling of [`/${page}`, ...spellings(page)])
        expect([spelling, await statusOf(port, `GET ${spelling}`)]).toEqual([
          spelling,
          expect.toBeOneOf([400, 404]),
        ]);
    }
  });

  test('pages of the documentation', async () => {
    for (const page of ['/docs', '/openapi.json'])
      for (const spelling of [`/${page}`, ...spellings(page)])
        expect([spelling, await statusOf(fleet.edges[0]!.port, `GET ${spelling}`)]).toEqual([
          spelling,
          expect.toBeOneOf([400, 404]),
        ]);
  });

  test('pages of the console without a session', async () => {
    const installation = await createInstallation('postgres');
    const board = await installation.startBoard();
    try {
      const port = Number(new URL(board.url).port);
      expect(await statusOf(port, 'GET /healthz')).toBe(200);
      for (const page of ['/healthz', '/sign-in', '/invitation'])
        for (const spelling of spellings(page))
          expect([spelling, await statusOf(port, `GET ${spelling}`)]).toEqual([
            spelling,
            expect.toBeOneOf([400, 401, 404]),
          ]);
      expect(await statusOf(port, 'GET /healthz', ['Host: a', 'Host: a'])).toBe(400);
      expect(await statusOf(port, 'GET /healthz', ['X: y'])).toBe(400);
    } finally {
      await installation.stop();
    }
  });
});

describe('a base URL that ends in a slash', () => {
  test.each(operations)('reaches its operation: $method $path', async (operation) => {
    const { port } = fleet.edges[0]!;
    const doubled = () => {
      const request = exampleOf(operation);
      return { ...request, path: `/${request.path}` };
    };
    expect((await send(port, doubled())).status).toBe(401);
    if (operation.auth === 'scim') return;
    const { key } = fleet.workspace;
    const answer = await send(port, { ...doubled(), key });
    // Only operations have a limit.
    expect(answer.headers.get('x-ratelimit-limit')).toMatch(/^\d+$/);
  });

  test('counts towards the same limit', async () => {
    const { port } = fleet.edges[0]!;
    const { id, key } = await createWorkspace(fleet.pool, 'limited');
    await fleet.pool.query("insert into rate_limits values ($1, 'users.track', 1, 3600)", [id]);
    const path = operations[0]!.path;
    expect((await send(port, { ...exampleOf(operations[0]!), key })).status).toBe(201);
    for (const spelling of [path, `/${path}`])
      expect((await send(port, { ...exampleOf(operations[0]!), path: spelling, key })).status).toBe(429);
  });

  test('lists the allowed methods like the path itself', async () => {
    const { port } = fleet.edges[0]!;
    const answer = await send(port, { method: 'GET', path: '//users/track' });
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'POST']);
  });

  test("is subject to the key's allowlist", async () => {
    const { secret, identifier, hash } = newApiKey();
    await fleet.pool.query(
      `insert into api_keys (id, workspace_id, name, identifier, key_hash, permissions, ip_allowlist)
       values ($1, $2, 'elsewhere', $3, $4, $5, '{10.0.0.0/8}')`,
      [uuidv7(), fleet.workspace.id, identifier, hash, permissions],
    );
    const { port } = fleet.edges[0]!;
    for (const path of ['/users/export/ids', '//users/export/ids'])
      expect((await send(port, { path, key: secret, json: {} })).status).toBe(403);
  });
});

test('a target in absolute form leads to its exact path only', async () => {
  const { port } = fleet.edges[0]!;
  expect(await statusOf(port, 'GET http://a/healthz')).toBe(200);
  expect(await statusOf(port, 'POST http://a/users/track')).toBe(401);
  for (const target of ['http://a//metrics', 'http://a/Metrics', 'http://a/metrics#', 'http://a\\metrics'])
    expect([target, await statusOf(port, `GET ${target}`)]).toEqual([target, expect.toBeOneOf([400, 404])]);
});

test('two Host headers, or a missing one, are refused with 400 in every process', async () => {
  for (const { port } of [...fleet.edges, ...fleet.workers, ...fleet.syncs]) {
    for (const headers of [['Host: a', 'Host: b'], ['Host: a', 'hOST: a'], ['X: y']])
      expect(await statusOf(port, 'GET /healthz', headers)).toBe(400);
    expect(await statusOf(port, 'GET /healthz', ['Host: a'])).toBe(200);
  }
  const { port } = fleet.edges[0]!;
  expect(await statusOf(port, 'POST /users/track', ['Host: a', 'Host: b'])).toBe(400);
});
