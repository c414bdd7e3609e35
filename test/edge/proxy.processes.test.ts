import { createServer, type IncomingHttpHeaders, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { waitUntil } from '../setup/fixtures.ts';

interface Asked {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** Another service with the same API. It records requests, and answers as the test defines. */
let upstream: Server;
const requested: Asked[] = [];
let answer: (response: ServerResponse) => void;

const SUCCESS = { attributes_processed: 1, message: 'success' };

/** Answers like another vendor's service, with its own header and its own messages. */
function says(status: number, body: unknown) {
  return (response: ServerResponse) => {
    response.writeHead(status, { 'Content-Type': 'application/json', 'X-Theirs': 'yes' });
    response.end(JSON.stringify(body));
  };
}

let fleet: Fleet;
let port: number;
let key: string;
beforeAll(async () => {
  upstream = createServer(async (received, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of received) chunks.push(chunk);
    const { method = '', url = '', headers } = received;
    requested.push({ method, url, headers, body: Buffer.concat(chunks) });
    answer(response);
  });
  await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
  const address = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/v1`;
  fleet = await startFleet('redis', {
    edges: 1,
    workers: 1,
    env: { PROXY_UPSTREAM: address, PROXY_TIMEOUT_MS: '1000' },
  });
  await liftLimits(fleet.pool, fleet.workspace.id);
  port = fleet.edges[0]!.port;
  key = fleet.workspace.key;
});
afterAll(async () => {
  await fleet.stop();
  upstream.closeAllConnections();
  upstream.close();
});
beforeEach(() => {
  requested.length = 0;
  answer = says(201, SUCCESS);
});

const track = (json: Record<string, never> | object) =>
  send(port, { path: '/users/track', key, json: json as never });
const named = (external_id: string) => ({ attributes: [{ external_id, first_name: 'Ada' }] });

async function kept(externalId: string): Promise<number> {
  const { rows } = await fleet.pool.query(
    'select count(*)::integer as count from profiles where external_id = $1',
    [externalId],
  );
  return rows[0].count;
}

async function outcomes(): Promise<Record<string, number>> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const lines = text.matchAll(
    /^penstock_proxied_requests_total\{operation="([^"]+)",outcome="([^"]+)"\} (\d+)/gm,
  );
  return Object.fromEntries(
    [...lines].map(([, operation, outcome, n]) => [`${operation} ${outcome}`, Number(n)]),
  );
}

/** Outcomes that were added since. */
async function added(before: Record<string, number>): Promise<string[]> {
  return Object.entries(await outcomes()).flatMap(([name, n]) => (n > (before[name] ?? 0) ? [name] : []));
}

describe('a client', () => {
  test('gets the answer of the upstream, which gets the unchanged request of the client', async () => {
    answer = says(418, { theirs: 'ü' });
    const response = await fetch(`http://127.0.0.1:${port}/messages/send?a=%20b`, {
      method: 'PUT',
      headers: { 'X-Mine': 'yes', 'Content-Type': 'text/plain' },
      body: 'any',
    });
    expect(response.status).toBe(418);
    expect(response.headers.get('x-theirs')).toBe('yes');
    expect(await response.json()).toEqual({ theirs: 'ü' });
    const [one] = requested;
    expect(one).toMatchObject({ method: 'PUT', url: '/v1/messages/send?a=%20b', body: Buffer.from('any') });
    expect(one!.headers).toMatchObject({ 'x-mine': 'yes', 'content-type': 'text/plain' });
  });

  test("gets an answer of any length, and the upstream's own answer to copied requests", async () => {
    const long = 'x'.repeat(9_000_000);
    answer = (response) => response.end(long);
    const text = await (await fetch(`http://127.0.0.1:${port}/users/export/ids`, { method: 'POST' })).text();
    expect(text === long).toBe(true);
    answer = says(201, { ...SUCCESS, theirs: 1 });
    const { status, body, headers } = await track(named('words'));
    expect([status, body.theirs, headers.get('x-theirs')]).toEqual([201, 1, 'yes']);
  });

  test('gets 502 or 504 if the upstream is unavailable or silent, and no copy is made', async () => {
    const before = await outcomes();
    answer = (response) => void response.destroy();
    expect((await track(named('away'))).status).toBe(502);
    answer = () => {};
    expect((await track(named('silent'))).status).toBe(504);
    expect(await added(before)).toEqual(['users.track failed_there']);
    expect([await kept('away'), await kept('silent')]).toEqual([0, 0]);
  });

  test('cannot smuggle a request in a chunked body, whatever its method', async () => {
    const inner = 'GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n';
    const answered = await new Promise<number>((resolve, reject) => {
      const sent = request(
        { host: '127.0.0.1', port, path: '/any', method: 'GET', headers: { 'Transfer-Encoding': 'chunked' } },
        (response) => {
          response.resume();
          response.on('end', () => resolve(response.statusCode!));
        },
      );
      sent.on('error', reject);
      sent.end(inner);
    });
    expect(answered).toBe(201);
    expect(requested.map(({ url, body }) => [url, String(body)])).toEqual([['/v1/any', inner]]);
  });

  test('gets probes, metrics and documentation from this server', async () => {
    const paths = ['/readyz', '/metrics', '/openapi.json', '/docs'];
    const answers = await Promise.all(paths.map((path) => fetch(`http://127.0.0.1:${port}${path}`)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(requested).toEqual([]);
  });
});

describe('a copy', () => {
  test('takes effect once the upstream has accepted the request, and not if it has refused it', async () => {
    const before = await outcomes();
    expect((await track(named('taken'))).status).toBe(201);
    await waitUntil(async () => (await kept('taken')) === 1, { what: 'the copy' });
    answer = says(400, { message: 'theirs' });
    expect((await track(named('refused'))).body).toEqual({ message: 'theirs' });
    expect(await added(before)).toEqual(['users.track same', 'users.track refused_there']);
    expect(await kept('refused')).toBe(0);
  });

  test('is made of /users/track/sync like of any other track', async () => {
    const before = await outcomes();
    answer = says(201, { users: [], message: 'success' });
    const sent = await send(port, { path: '/users/track/sync', key, json: named('at once') });
    expect([sent.status, sent.body.users]).toEqual([201, []]);
    expect(requested.map(({ url }) => url)).toEqual(['/v1/users/track/sync']);
    expect(await added(before)).toEqual(['users.track.sync same']);
    await waitUntil(async () => (await kept('at once')) === 1, { what: 'the copy' });
  });

  test('removes numbers from the list of invalid ones once the upstream has removed them', async () => {
    const before = await outcomes();
    await fleet.pool.query(
      `insert into invalid_phone_numbers (workspace_id, phone, reason, detected_at)
       values ($1, $2, 'deactivated', now())`,
      [fleet.workspace.id, '+14155552671'],
    );
    const remove = {
      path: '/sms/invalid_phone_numbers/remove',
      key,
      json: { phone_numbers: ['+14155552671'] },
    };
    const left = async () => (await fleet.pool.query('select from invalid_phone_numbers')).rowCount;
    answer = says(503, {});
    expect((await send(port, remove)).status).toBe(503);
    expect(await left()).toBe(1);
    answer = says(201, { message: 'success' });
    expect((await send(port, remove)).status).toBe(201);
    expect(await left()).toBe(0);
    expect((await added(before)).sort()).toEqual([
      'sms.invalid_phone_numbers.remove failed_there',
      'sms.invalid_phone_numbers.remove same',
    ]);
  });

  test("with a different result is logged with its operation, and without the client's data", async () => {
    const before = await outcomes();
    await track({
      attributes: [{ external_id: 'judged', first_name: 'Ada' }, { first_name: 'nobody-4711' }],
    });
    await send(port, { path: '/users/track', key: 'a-key-of-theirs-alone', json: named('strange') });
    expect((await added(before)).sort()).toEqual(['users.track errors_differ', 'users.track refused_here']);
    await waitUntil(async () => (await kept('judged')) === 1, { what: 'the copy' });
    const loggedLines = () =>
      fleet.edges[0]!.log.filter(({ outcome }) => /differ|here/.test(String(outcome)));
    await waitUntil(() => loggedLines().length === 2, { what: 'two lines' });
    const lines = loggedLines();
    expect(lines.find(({ outcome }) => outcome === 'errors_differ')).toMatchObject({
      ...{ operation: 'users.track', upstream_status: 201, upstream_errors: 0, status: 201, errors: 1 },
      request_id: expect.any(String),
    });
    expect(lines.find(({ outcome }) => outcome === 'refused_here')).toMatchObject({ status: 401 });
    expect(JSON.stringify(lines)).not.toContain('4711');
  });

  test('waits for an unavailable queue and applies once, while the client is answered within 2 s', async () => {
    const before = await outcomes();
    process.kill(fleet.redis!.pid, 'SIGSTOP');
    const begun = performance.now();
    expect(
      (await track({ events: [{ external_id: 'late', name: 'read', time: new Date().toISOString() }] }))
        .status,
    ).toBe(201);
    expect(performance.now() - begun).toBeLessThan(2000);
    process.kill(fleet.redis!.pid, 'SIGCONT');
    const events = async () =>
      (
        await fleet.pool.query(
          `select count(*)::integer as count from events
           join profiles on profiles.workspace_id = events.workspace_id and profiles.id = events.profile_id
           where profiles.external_id = 'late'`,
        )
      ).rows[0].count;
    await waitUntil(async () => (await events()) > 0, { what: 'the copy' });
    await waitUntil(async () => (await added(before)).includes('users.track late'), { what: 'its outcome' });
    expect(await events()).toBe(1);
  });

  test('that is not made of a request that may change users is logged, without query and body', async () => {
    const before = await outcomes();
    const call = (method: string, path: string) => send(port, { method, path, key, json: { secret: 4712 } });
    await call('PUT', '/scim/v2/Users/abc?secret=4712');
    expect(await added(before)).toEqual(['other not_copied']);
    const loggedLines = () => fleet.edges[0]!.log.filter(({ outcome }) => outcome === 'not_copied');
    await waitUntil(() => loggedLines().length === 1, { what: 'its line' });
    expect(loggedLines()[0]).toMatchObject({
      method: 'PUT',
      path: '/scim/v2/Users/abc',
      upstream_status: 201,
    });
    expect(JSON.stringify(loggedLines())).not.toContain('4712');
    answer = says(404, { message: 'theirs' });
    const afterwards = await outcomes();
    await call('POST', '/users/unheard_of');
    expect(await added(afterwards)).toEqual(['other refused_there']);
  });

  test('is not made of reads and messages, which count as forwarded', async () => {
    const before = await outcomes();
    await send(port, { path: '/users/export/ids', key, json: { external_ids: ['taken'] } });
    await send(port, { path: '/messages/send', key, json: {} });
    const after = await outcomes();
    expect(after['other forwarded']! - (before['other forwarded'] ?? 0)).toBe(2);
    expect(await added(before)).toEqual(['other forwarded']);
  });

  test('of more than MAX_BODY_BYTES is refused before it is sent, with limit and size', async () => {
    const { status, body } = await send(port, { path: '/users/track', key, raw: ' '.repeat(4_194_305) });
    expect(status).toBe(413);
    expect(body).toMatchObject({
      code: 'body_too_large',
      detail: expect.stringContaining('The body has 4194305 bytes; the limit is 4194304 bytes.'),
    });
    expect(requested).toEqual([]);
  });
});
