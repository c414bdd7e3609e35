import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { errorBodyOf } from '../../src/errors.ts';
import { allOperations } from '../../src/operations/index.ts';
import { type Fleet, type Member, startFleet } from '../guarantees/fleet.ts';
import { exampleOf, send } from '../setup/api.ts';
import { expectCommonHeaders } from '../setup/common-headers.ts';
import { waitUntil } from '../setup/fixtures.ts';

const probes = ['/healthz', '/readyz', '/metrics'];
const pages = ['/openapi.json', '/docs', '/docs/guides/api', '/docs/reference/users.track', '/docs/search'];

let fleet: Fleet;
let edge: Member;
beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 0, env: { LOG_LEVEL: 'info' } });
  edge = fleet.edges[0]!;
});
afterAll(() => fleet.stop());

const call = (method: string, path: string, headers: Record<string, string> = {}) =>
  fetch(`http://127.0.0.1:${edge.port}${path}`, { method, headers });

/** The log lines of the request with this answer, once there is one. */
async function linesOf(headers: { get(name: string): string | null }) {
  const id = headers.get('x-request-id');
  const find = () => edge.log.filter(({ request_id }) => request_id === id);
  await waitUntil(() => find().length > 0, { what: `the line of ${id}` });
  return find();
}

test.each([...probes, ...pages])('%s has the headers of every answer, with empty limits', async (path) => {
  for (const method of ['GET', 'HEAD']) {
    const { status, headers } = await call(method, path);
    expect(status).toBe(200);
    expectCommonHeaders(headers, /^$/);
  }
});

test.each([...probes, ...pages])('%s allows only reading: 405 with Allow for other methods', async (path) => {
  for (const method of ['POST', 'DELETE', 'OPTIONS']) {
    const answer = await call(method, path);
    expect([answer.status, await answer.json()]).toEqual([405, errorBodyOf('methodNotAllowed')]);
    expect(answer.headers.get('allow')).toBe('GET, HEAD');
    expectCommonHeaders(answer.headers, /^$/);
  }
});

test.for<[what: string, method: string, path: string, status: number, named: string]>([
  ['a page', 'GET', '/docs', 200, '/docs'],
  ['a page, without the search terms', 'GET', '/docs/search?q=secret', 200, '/docs/search'],
  ['another method of a page', 'POST', '/healthz', 405, '/healthz'],
  ['another method of an operation', 'GET', '/users/track', 405, '/users/track'],
])('one log line with the path: %s', async ([_what, method, path, status, named]) => {
  const { headers } = await call(method, path);
  const lines = await linesOf(headers);
  expect(lines).toEqual([expect.objectContaining({ msg: 'request', method, status, path: named })]);
});

test('one log line for the root path, without the query', async () => {
  const { status, headers } = await call('GET', '/?key=secret');
  expect(status).toBe(404);
  const lines = await linesOf(headers);
  expect(lines).toEqual([expect.objectContaining({ msg: 'request', method: 'GET', status: 404, path: '/' })]);
  expect(JSON.stringify(lines)).not.toContain('secret');
});

test('one log line for an unknown path, without the path, which may identify a person', async () => {
  for (const path of ['/users/ada@example.com', '/users/%ff', '/nowhere?key=secret']) {
    const { status, headers } = await call('GET', path);
    expect(status).toBe(404);
    const lines = await linesOf(headers);
    expect(lines).toEqual([expect.objectContaining({ msg: 'request', method: 'GET', status: 404 })]);
    expect(lines[0]).not.toHaveProperty('path');
  }
});

test('one log line for an operation that is refused before it begins', async () => {
  for (const operation of allOperations('service_id')) {
    const { status, headers } = await send(edge.port, exampleOf(operation));
    expect(status).toBe(401);
    expect(await linesOf(headers)).toEqual([expect.objectContaining({ operation: operation.id, status })]);
  }
});

test('a malformed or broken request, or one without Host, gets a JSON answer and one log line', async () => {
  const track = `POST /users/track HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${fleet.workspace.key}\r\n`;
  for (const sent of [
    'GARBAGE\r\n\r\n',
    'GET /healthz HTTP/1.1\r\n\r\n',
    // An operation is processing this request when it breaks.
    `${track}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n`,
  ]) {
    const socket = connect(edge.port, '127.0.0.1');
    socket.write(sent);
    const [head, body] = (await text(socket)).split('\r\n\r\n') as [string, string];
    expect(head).toMatch(/^HTTP\/1.1 400 /);
    expect(JSON.parse(body)).toEqual(errorBodyOf('malformedRequest'));
    const headers = new Headers(
      head
        .split('\r\n')
        .slice(1)
        .map((line) => line.split(/: ?(.*)/, 2) as [string, string]),
    );
    expectCommonHeaders(headers, /^$/);
    expect(await linesOf(headers)).toEqual([expect.objectContaining({ msg: 'request', status: 400 })]);
  }
});

test('an unknown value of Expect is ignored', async () => {
  const socket = connect(edge.port, '127.0.0.1');
  socket.write('GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: wonders\r\nConnection: close\r\n\r\n');
  expect(await text(socket)).toMatch(/^HTTP\/1.1 200 [\s\S]*\r\nX-Request-Id: /);
});

test('probes are not logged', async () => {
  const ids = await Promise.all(
    probes.map(async (path) => (await call('GET', path)).headers.get('x-request-id')),
  );
  await linesOf((await call('GET', '/docs')).headers);
  expect(edge.log.filter(({ request_id }) => ids.includes(request_id as string))).toEqual([]);
});

test("a client's own request id is logged if it is safe, and omitted otherwise", async () => {
  const lineOf = async (theirs: string) => {
    const operation = allOperations('service_id')[0]!;
    const headers = { 'x-request-id': theirs };
    const { headers: answered } = await send(edge.port, { ...exampleOf(operation), headers });
    const page = await call('GET', '/docs', headers);
    return [...(await linesOf(answered)), ...(await linesOf(page.headers))];
  };
  for (const theirs of ['a', 'ABC-123_x.y', 'x'.repeat(100)]) {
    for (const line of await lineOf(theirs)) expect(line.client_request_id).toBe(theirs);
  }
  for (const theirs of ['ada@example.com', '+15550100', 'a b', 'x'.repeat(101), '{}']) {
    for (const line of await lineOf(theirs)) expect(line).not.toHaveProperty('client_request_id');
  }
});
