import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { readConfig } from '../../src/platform/config.ts';
import type { TracedProcess } from '../../src/platform/open-telemetry.ts';
import { startTracing } from '../../src/platform/tracing.ts';

/** A span as the collector received it. */
export interface SeenSpan {
  name: string;
  kind: 'internal' | 'server' | 'client' | 'producer' | 'consumer';
  traceId: string;
  spanId: string;
  /** Empty: the first of its trace. */
  parentSpanId: string;
  attributes: Record<string, unknown>;
  /** `traceId/spanId` of each. */
  links: string[];
  failed: boolean;
  /** Resource attributes of the process. */
  resource: Record<string, unknown>;
}

const KINDS = ['internal', 'internal', 'server', 'client', 'producer', 'consumer'] as const;

/**
 * Starts an OpenTelemetry collector that reads spans from OTLP over HTTP with JSON. Other request bodies are
 * kept as bytes.
 */
export async function startCollector() {
  const bodies: Buffer[] = [];
  const headers: IncomingMessage['headers'][] = [];
  const spans: SeenSpan[] = [];
  let mode: 'takes' | 'refuses' | 'hangs' = 'takes';
  const server = createServer((request, response) => void take(request, response));

  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await buffer(request);
    if (mode === 'hangs') return;
    if (mode === 'refuses' || request.url !== '/v1/traces') return void response.writeHead(400).end();
    bodies.push(body);
    headers.push(request.headers);
    if (request.headers['content-type'] === 'application/json') spans.push(...read(body));
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  }

  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    headers,
    /** Returns all received bytes. */
    bytes: () => Buffer.concat(bodies),
    behave(as: typeof mode): void {
      mode = as;
    },
    /** Returns spans by name, and optionally by trace. */
    find: (name: string, traceId?: string) =>
      spans.filter((span) => span.name === name && (traceId === undefined || span.traceId === traceId)),
    async stop(): Promise<void> {
      server.closeAllConnections();
      server.close();
    },
  };
}

export type Collector = Awaited<ReturnType<typeof startCollector>>;

/**
 * Starts tracing in the test's own process as in a Penstock process with these additional variables. The SDK
 * reads them
 * once; `stopTracing` ends it.
 */
export async function traceTo(
  { url }: Collector,
  self: TracedProcess,
  environment: Record<string, string> = {},
): Promise<void> {
  const all = {
    OTEL_EXPORTER_OTLP_ENDPOINT: url,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    ...environment,
  };
  Object.assign(process.env, all);
  try {
    await startTracing(readConfig(all), self);
  } finally {
    for (const name of Object.keys(all)) delete process.env[name];
  }
}

// biome-ignore lint/suspicious/noExplicitAny: The JSON of OTLP.
type Wire = any;

function read(body: Buffer): SeenSpan[] {
  const { resourceSpans } = JSON.parse(body.toString()) as Wire;
  return resourceSpans.flatMap(({ resource, scopeSpans }: Wire) =>
    scopeSpans.flatMap((scope: Wire) =>
      scope.spans.map((span: Wire) => ({
        name: span.name,
        kind: KINDS[span.kind],
        traceId: span.traceId,
        spanId: span.spanId,
        parentSpanId: span.parentSpanId ?? '',
        attributes: valuesOf(span.attributes),
        links: (span.links ?? []).map((link: Wire) => `${link.traceId}/${link.spanId}`),
        failed: span.status?.code === 2,
        resource: valuesOf(resource.attributes),
      })),
    ),
  );
}

function valuesOf(attributes: { key: string; value: Record<string, unknown> }[]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}
