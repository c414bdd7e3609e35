import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { type Collector, startCollector } from '../setup/collector.ts';
import { waitUntil } from '../setup/fixtures.ts';

const PERSON = 'sam.person-7f3a';
const EMAIL = 'sam.7f3a@example.com';
const time = '2026-01-31T12:00:00.000Z';

let collector: Collector;
let fleet: Fleet;
beforeAll(async () => {
  collector = await startCollector();
  fleet = await startFleet('redis', {
    edges: 1,
    workers: 1,
    env: {
      LOG_LEVEL: 'info',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=blue',
      // Long enough that a hanging batch blocks the next ones until a busy machine has created as many spans
      // again.
      OTEL_EXPORTER_OTLP_TIMEOUT: '4000',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=trial',
      OTEL_BSP_SCHEDULE_DELAY: '200',
      OTEL_BSP_MAX_QUEUE_SIZE: '128',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '64',
    },
  });
});
afterAll(async () => {
  await fleet?.stop();
  await collector?.stop();
});

const newTrace = () => ({ traceId: randomBytes(16).toString('hex'), spanId: randomBytes(8).toString('hex') });

function request(path: string, json: object | undefined, headers: Record<string, string> = {}) {
  const { key } = fleet.workspace;
  const method = json ? 'POST' : 'GET';
  return send(fleet.edges[0]!.port, { method, path, key, json: json as never, headers });
}

const track = (headers: Record<string, string> = {}, more: object = {}) =>
  request(
    '/users/track',
    {
      attributes: [{ external_id: PERSON, email: EMAIL, favourite: 'marzipan-7f3a' }],
      events: [{ external_id: PERSON, name: 'seen-7f3a', time, ...more }],
    },
    headers,
  );

/** Returns the spans of a trace with this name once there is one. */
const seen = (name: string, traceId: string) =>
  waitUntil(() => collector.find(name, traceId)[0], { what: `the span ${name} of ${traceId}` });

async function count(port: number, outcome: string): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  return Number(new RegExp(`penstock_spans_total\\{outcome="${outcome}"\\} (\\d+)`).exec(text)?.[1]);
}

describe('a request whose client traces it', () => {
  const client = newTrace();
  let answer: Awaited<ReturnType<typeof track>>;
  beforeAll(async () => {
    answer = await track({ traceparent: `00-${client.traceId}-${client.spanId}-01` });
    expect(answer.status).toBe(201);
  });

  test("is a SERVER span below the client's span, by its route", async () => {
    const server = await seen('POST /users/track', client.traceId);
    expect(server).toMatchObject({ kind: 'server', parentSpanId: client.spanId, failed: false });
    expect(server.attributes).toMatchObject({
      'http.request.method': 'POST',
      'http.route': '/users/track',
      'http.response.status_code': 201,
      'penstock.request.id': answer.headers.get('x-request-id'),
      'penstock.workspace.id': fleet.workspace.id,
      'penstock.objects.accepted': 2,
    });
  });

  test('its flush is a PRODUCER span below it', async () => {
    const server = await seen('POST /users/track', client.traceId);
    const producer = await seen('send lanes', client.traceId);
    expect(producer).toMatchObject({ kind: 'producer', parentSpanId: server.spanId });
    expect(producer.attributes).toMatchObject({
      'messaging.system': 'bullmq',
      'messaging.operation.type': 'send',
      'penstock.requests': 1,
      'penstock.objects': 2,
    });
  });

  test('the transaction that applies it is a CONSUMER span of its own trace, linked to it', async () => {
    const server = await seen('POST /users/track', client.traceId);
    const link = `${client.traceId}/${server.spanId}`;
    const consumer = await waitUntil(
      () => collector.find('process lanes').find(({ links }) => links.includes(link)),
      { what: 'the transaction with the request in it' },
    );
    expect(consumer).toMatchObject({ kind: 'consumer', parentSpanId: '', links: [link] });
    expect(consumer.traceId).not.toBe(client.traceId);
    expect(consumer.attributes).toMatchObject({
      'messaging.operation.type': 'process',
      'messaging.batch.message_count': 1,
      'penstock.outcome': 'applied',
      'penstock.objects.applied': 2,
    });
    const statements = collector.spans.filter(({ parentSpanId }) => parentSpanId === consumer.spanId);
    const names = statements.map(({ name }) => name);
    expect(names).toEqual(
      expect.arrayContaining(['begin', 'claim-envelopes', 'record-events', 'insert-profiles', 'commit']),
    );
    for (const { kind, name, traceId, attributes } of statements) {
      expect({ kind, traceId }).toEqual({ kind: 'client', traceId: consumer.traceId });
      expect(attributes).toEqual({ 'db.system.name': 'postgresql', 'db.operation.name': name });
    }
    const line = await waitUntil(
      () => fleet.workers[0]!.log.find(({ msg, trace_id }) => msg === 'job' && trace_id === consumer.traceId),
      { what: 'the line of the transaction' },
    );
    expect(line).toMatchObject({ span_id: consumer.spanId });
  });

  test('has its span ids in its log lines', async () => {
    const server = await seen('POST /users/track', client.traceId);
    const line = await waitUntil(
      () => fleet.edges[0]!.log.find(({ trace_id }) => trace_id === client.traceId),
      { what: 'the line of the request' },
    );
    expect(line).toMatchObject({ msg: 'request', span_id: server.spanId, trace_id: client.traceId });
  });

  test('names its processes by service, version and the id of their heartbeat', async () => {
    const server = await seen('POST /users/track', client.traceId);
    const { rows } = await fleet.pool.query(`select id, version from processes where name = 'web'`);
    expect(server.resource).toMatchObject({
      'service.name': 'penstock-web',
      'service.version': rows[0].version,
      'service.instance.id': rows[0].id,
      'deployment.environment.name': 'trial',
    });
    await waitUntil(
      () => collector.spans.some((span) => span.resource['service.name'] === 'penstock-worker'),
      {
        what: 'a span of the worker',
      },
    );
    expect(collector.headers[0]).toMatchObject({ 'x-tenant': 'blue' });
  });
});

test('a page of the console is a SERVER span of penstock-board', async () => {
  const board = await fleet.startBoard();
  const { traceId, spanId } = newTrace();
  const traceparent = `00-${traceId}-${spanId}-01`;
  expect((await fetch(`http://127.0.0.1:${board.port}/sign-in`, { headers: { traceparent } })).status).toBe(
    200,
  );
  const server = await seen('GET /sign-in', traceId);
  expect(server).toMatchObject({ kind: 'server', parentSpanId: spanId, failed: false });
  expect(server.resource).toMatchObject({ 'service.name': 'penstock-board' });
  await fleet.end(board, 'SIGTERM');
});

test('the statements of a direct operation are part of its request', async () => {
  const { traceId, spanId } = newTrace();
  await request(
    '/users/export/ids',
    { external_ids: [PERSON] },
    { traceparent: `00-${traceId}-${spanId}-01` },
  );
  const server = await seen('POST /users/export/ids', traceId);
  expect(collector.find('read-profiles', traceId)[0]).toMatchObject({
    kind: 'client',
    parentSpanId: server.spanId,
  });
});

test('that is not sampled has no span, and its ids in the log', async () => {
  const { traceId, spanId } = newTrace();
  await track({ traceparent: `00-${traceId}-${spanId}-00` });
  const after = newTrace();
  await track({ traceparent: `00-${after.traceId}-${after.spanId}-01` });
  const server = await seen('POST /users/track', after.traceId);
  const link = `${after.traceId}/${server.spanId}`;
  await waitUntil(() => collector.spans.some(({ links }) => links.includes(link)), {
    what: 'its transaction',
  });
  expect(collector.spans.filter((span) => span.traceId === traceId)).toEqual([]);
  expect(collector.spans.flatMap(({ links }) => links).filter((id) => id.startsWith(traceId))).toEqual([]);
  await waitUntil(() => fleet.edges[0]!.log.find(({ trace_id }) => trace_id === traceId), {
    what: 'its line',
  });
});

test.each([
  '00-0-0-01',
  `ff-${'a'.repeat(32)}-${'b'.repeat(16)}-01`,
  `00-${'0'.repeat(32)}-${'b'.repeat(16)}-01`,
])('an invalid traceparent starts a new trace: %s', async (traceparent) => {
  const { headers } = await track({ traceparent });
  const id = headers.get('x-request-id');
  const span = await waitUntil(
    () => collector.spans.find(({ attributes }) => attributes['penstock.request.id'] === id),
    { what: 'the span of the request' },
  );
  expect(span.parentSpanId).toBe('');
  expect(traceparent).not.toContain(span.traceId);
});

test('spans contain no personal data', async () => {
  await request(`/subscription/status/get?external_id=${PERSON}&subscription_group_id=none`, undefined);
  await request(`/users/${EMAIL}?${PERSON}`, undefined);
  const { traceId, spanId } = newTrace();
  const headers = {
    traceparent: `00-${traceId}-${spanId}-01`,
    tracestate: `who=${PERSON}`,
    baggage: `who=${PERSON}`,
    'user-agent': PERSON,
  };
  // A worker cannot apply this event, and its error quotes the event.
  await track(headers, { properties: { note: PERSON } });
  await seen('send lanes', traceId);
  await seen('POST /users/track', traceId);
  await waitUntil(() => collector.find('GET /subscription/status/get').length > 0, { what: 'the read' });
  const text = collector.bytes().toString('latin1');
  for (const personal of ['7f3a', 'marzipan', 'external_id=', fleet.workspace.key])
    expect(text).not.toContain(personal);
});

describe('a collector that rejects spans', () => {
  test.each(['refuses', 'hangs'] as const)('does not affect requests when it %s', async (mode) => {
    const [{ port, log }] = fleet.edges as [Fleet['edges'][0]];
    const [failed, dropped] = [await count(port, 'failed'), await count(port, 'dropped')];
    collector.behave(mode);
    const countReports = () => log.filter(({ msg }) => String(msg).startsWith('spans do not reach')).length;
    const before = countReports();
    const sendBurst = async () => {
      const answers = await Promise.all(Array.from({ length: 60 }, () => track()));
      expect(answers.map(({ status }) => status)).toEqual(Array(60).fill(201));
    };
    await sendBurst();
    await waitUntil(
      async () => {
        await sendBurst();
        // Each hanging batch blocks the next one; at most 128 spans wait.
        if (mode === 'hangs' && (await count(port, 'dropped')) === dropped) return false;
        return (await count(port, 'failed')) > failed + 64;
      },
      { what: 'batches that failed, and spans that were omitted' },
    );
    expect(countReports()).toBe(before + 1);
    collector.behave('takes');
    await waitUntil(
      async () => {
        await track();
        return log.filter(({ msg }) => msg === 'spans reach their collector again').length === before + 1;
      },
      {
        what: 'the line that it takes them again',
      },
    );
  });

  test('does not delay the end of a process', async () => {
    const edge = await fleet.startEdge(undefined, { OTEL_EXPORTER_OTLP_TIMEOUT: '60000' });
    collector.behave('hangs');
    const answer = await send(edge.port, { path: '/nowhere', key: fleet.workspace.key });
    expect(answer.status).toBe(404);
    const { code, milliseconds } = await fleet.end(edge, 'SIGTERM');
    collector.behave('takes');
    expect(code).toBe(0);
    expect(milliseconds).toBeLessThan(5000);
  });
});

test('a process that is asked to stop sends its last spans', async () => {
  const edge = await fleet.startEdge(undefined, { OTEL_BSP_SCHEDULE_DELAY: '60000' });
  const { traceId, spanId } = newTrace();
  await send(edge.port, {
    path: '/users/track',
    key: fleet.workspace.key,
    json: { events: [{ external_id: 'last', name: 'last', time }] },
    headers: { traceparent: `00-${traceId}-${spanId}-01` },
  });
  expect(collector.find('POST /users/track', traceId)).toEqual([]);
  expect((await fleet.end(edge, 'SIGTERM')).code).toBe(0);
  expect(collector.find('POST /users/track', traceId)).toHaveLength(1);
});
