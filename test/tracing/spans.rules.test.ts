import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import type { Envelope } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { newId } from '../../src/platform/ids.ts';
import { startTracing, stopTracing, traceRequests, tracing } from '../../src/platform/tracing.ts';
import { MAX_LINKS, traceFlush, traceTransaction } from '../../src/queue/spans.ts';
import { decodeEnvelope, encodeEnvelope } from '../../src/queue/wire.ts';
import { PostgresClient } from '../../src/store/postgres-client.ts';
import { open } from '../../workers/batch/open.ts';
import { type Collector, startCollector, traceTo } from '../setup/collector.ts';

const self = { name: 'trial', id: newId(), version: '1.2.3' };

let collector: Collector | undefined;

async function trace(environment: Record<string, string> = {}): Promise<Collector> {
  collector = await startCollector();
  await traceTo(collector, self, environment);
  return collector;
}

const sent = () => stopTracing(readConfig({}));

afterEach(async () => {
  await sent();
  await collector?.stop();
  collector = undefined;
});

let traces = 0;
const traceparentOf = (flags = '01') => `00-${String(++traces).padStart(32, 'a')}-${'b'.repeat(16)}-${flags}`;

function envelope(traceparents: unknown[]): Envelope {
  const workspace_id = newId();
  const accepted_at = new Date().toISOString();
  const request = (traceparent: unknown) => ({
    ...{ request_id: newId(), workspace_id, accepted_at, count: 1 },
    ...(traceparent !== undefined && { traceparent: traceparent as string }),
  });
  return {
    requests: traceparents.map(request),
    objects: traceparents.map((_, index) => ({
      ...{ kind: 'events', id: newId(), index, identifier: { external_id: 'one' } },
      ...{ name: 'seen', time: accepted_at },
    })),
  };
}

const apply = (traceparents: unknown[]) =>
  traceTransaction(
    [{ lane: 0, envelope: envelope(traceparents) }],
    async () => 7,
    () => ({}),
  );

describe('off', () => {
  test.each([
    ['without an endpoint', {}],
    ['where the SDK is disabled', { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://a', OTEL_SDK_DISABLED: 'true' }],
  ])('no span is created %s: connections and request handlers are not wrapped', async (_, environment) => {
    await startTracing(readConfig(environment), self);
    expect(tracing).toBeUndefined();
    expect(Object.hasOwn(new PostgresClient(), 'query')).toBe(false);
    const handle = () => {};
    expect(traceRequests(handle)).toBe(handle);
    expect((await apply([traceparentOf()])).ids).toEqual({});
  });

  test('only one file imports the SDK, and it is loaded only with a collector', () => {
    const files = ['src', 'workers'].flatMap((folder) =>
      readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts'))
        .map((name) => path.posix.join(folder, name)),
    );
    const loading = (pattern: RegExp) =>
      files.filter((file) => pattern.test(readFileSync(path.join(packageRoot, file), 'utf8')));
    const sdk = 'src/platform/open-telemetry.ts';
    expect(loading(/^import (?!type\b)[^;]*'@opentelemetry\//m)).toEqual([sdk]);
    expect(loading(/^(?:import|export) (?!type\b)[^;]*\/open-telemetry\.ts'/m)).toEqual([]);
    expect(loading(/\bimport\('[^']*(?:@opentelemetry|open-telemetry)/).sort()).toEqual([
      sdk,
      'src/platform/tracing.ts',
    ]);
  });
});

describe('a transaction', () => {
  test('links to a limited number of requests, each once, and has their total number', async () => {
    const { spans } = await trace();
    const once = Array.from({ length: 1000 }, () => traceparentOf());
    await apply(once.flatMap((traceparent) => [traceparent, traceparent]));
    await sent();
    expect(spans).toHaveLength(1);
    expect(new Set(spans[0]!.links).size).toBe(MAX_LINKS);
    expect(spans[0]).toMatchObject({ attributes: { 'penstock.requests': 2000 }, parentSpanId: '' });
  });

  test.each([
    ['parentbased_traceidratio', '01', 1],
    ['parentbased_traceidratio', undefined, 0],
    ['parentbased_always_off', '01', 1],
    ['parentbased_always_on', undefined, 1],
    ['traceidratio', '01', 0],
    ['always_off', '01', 0],
    ['always_on', undefined, 1],
  ])('with %s and a request that is traced (%s) has %i spans', async (sampler, flags, count) => {
    const { spans } = await trace({ OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: '0' });
    const { result, ids } = await apply([flags && traceparentOf(flags)]);
    await sent();
    expect(result).toBe(7);
    expect(ids).toHaveProperty('trace_id');
    expect(spans).toHaveLength(count);
  });

  test('that fails has the kind of its error without its message', async () => {
    const { spans, bytes } = await trace();
    const failure = Object.assign(new Error('Key (external_id)=(sam) exists'), { code: '23505' });
    const work = traceTransaction(
      [],
      () => Promise.reject(failure),
      () => ({}),
    );
    await expect(work).rejects.toBe(failure);
    await sent();
    expect(spans[0]).toMatchObject({ failed: true, attributes: { 'error.type': '23505' } });
    expect(bytes().toString()).not.toContain('sam');
  });

  test('accepts any trace data of another release', async () => {
    const { spans } = await trace();
    const strange = [{}, 7, 'no traceparent', 'x'.repeat(100_000), null];
    await apply(strange);
    await traceTransaction(
      [{ lane: 0, envelope: null as unknown as Envelope }],
      async () => {},
      () => ({}),
    );
    await sent();
    expect(spans.map(({ links }) => links)).toEqual([[], []]);
    const opened = open([{ id: newId(), lane: 0, envelope: envelope(strange) }]);
    expect(opened).toMatchObject({ items: { length: strange.length }, deadLetters: [] });
  });
});

describe('a flush', () => {
  test('is part of the trace of its first request, and linked to the others', async () => {
    const { spans } = await trace();
    const [first, second] = [traceparentOf(), traceparentOf()];
    const entries = [envelope([undefined, first]), envelope([first, second])];
    await traceFlush(
      entries.map((one, lane) => ({ lane, id: newId(), envelope: one })),
      async () => {},
    );
    await sent();
    expect(spans).toMatchObject([
      {
        name: 'send lanes',
        traceId: first.slice(3, 35),
        links: [`${second.slice(3, 35)}/${'b'.repeat(16)}`],
      },
    ]);
  });

  test('without a traced request has no span', async () => {
    const { spans } = await trace();
    await traceFlush([{ lane: 0, id: newId(), envelope: envelope([undefined]) }], async () => {});
    await sent();
    expect(spans).toEqual([]);
  });
});

test('a traceparent travels in the envelope', () => {
  const traceparent = traceparentOf();
  const wire = JSON.parse(JSON.stringify(encodeEnvelope(envelope([traceparent, undefined]))));
  const { requests } = decodeEnvelope(wire);
  expect(requests.map((request) => request.traceparent)).toEqual([traceparent, undefined]);
});

test('spans are sent as protobuf by default', async () => {
  const { headers, bytes } = await trace({ OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf' });
  await apply([traceparentOf()]);
  await sent();
  expect(headers[0]).toMatchObject({ 'content-type': 'application/x-protobuf' });
  expect(bytes().toString('latin1')).toContain('process lanes');
});

test('OTEL_SERVICE_NAME names the service', async () => {
  const { spans } = await trace({ OTEL_SERVICE_NAME: 'user-data' });
  await apply([traceparentOf()]);
  await sent();
  expect(spans[0]!.resource).toMatchObject({ 'service.name': 'user-data', 'service.instance.id': self.id });
});
