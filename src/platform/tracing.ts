import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Config } from './config.ts';
import type { TracedProcess, Tracing } from './open-telemetry.ts';
import { importOptional } from './optional-package.ts';

type Sdk = typeof import('./open-telemetry.ts');

/**
 * Traces as OpenTelemetry has them: spans of what this process does. Undefined: nobody wants them, nothing of the SDK is
 * loaded, and who would make a span looks here and goes on.
 */
export let tracing: (Tracing & Pick<Sdk, 'failSpan' | 'idsOf' | 'traceparentOf'>) | undefined;

/** Milliseconds in which the last spans are sent when the process stops, and the share of its time for that. */
const FAREWELL = { most: 1500, share: 0.3 };

/** Loads the SDK, if there is a collector to send spans to. Before the log and the stores, which look at `tracing`. */
export async function startTracing(config: Config, self: TracedProcess): Promise<void> {
  if (config.OTEL_EXPORTER_OTLP_ENDPOINT === '' || config.OTEL_SDK_DISABLED === 'true') return;
  tracing = await importOptional(
    {
      name: '@opentelemetry/sdk-trace-base',
      users: 'traces',
      alternative: ', or set OTEL_SDK_DISABLED=true',
    },
    async () => {
      const { openTelemetry, failSpan, idsOf, traceparentOf } = await import('./open-telemetry.ts');
      return { ...(await openTelemetry(config, self)), failSpan, idsOf, traceparentOf };
    },
  );
}

/** Sends the last spans, and makes no more of them; never rejects. */
export async function stopTracing({ SHUTDOWN_TIMEOUT_MS }: Config): Promise<void> {
  const patience = Math.min(FAREWELL.most, SHUTDOWN_TIMEOUT_MS * FAREWELL.share);
  const stopped = tracing;
  tracing = undefined;
  await stopped?.stop(patience).catch(() => {});
}

type Handler<Request extends IncomingMessage> = (request: Request, response: ServerResponse) => void;

/** What routers know of a request. */
interface Routed extends IncomingMessage {
  baseUrl?: string;
  route?: { path?: unknown };
}

/** As `http.request.method` knows them; any other is a word of the caller's. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

/** Asked every few seconds by machines. */
const PROBES = new Set(['/healthz', '/readyz', '/metrics']);

/**
 * A handler of requests, each of which is a SERVER span from its headers to the end of its answer. Neither the address nor
 * any other words of the caller get into it: they may name a person. The route does, once it is known.
 *
 * @param throughout whether all that is done for a request knows its span; else the handler keeps it for those who need it
 */
export function traceRequests<Request extends IncomingMessage>(
  handle: Handler<Request>,
  { throughout = false } = {},
): Handler<Request> {
  const sdk = tracing;
  if (!sdk) return handle;
  return (request, response) => {
    if (PROBES.has(request.url ?? '')) return handle(request, response);
    const { method = '', headers } = request;
    const known = METHODS.has(method) ? method : '_OTHER';
    const span = sdk.begin(known === '_OTHER' ? 'HTTP' : known, {
      kind: 'SERVER',
      parent: headers.traceparent as string | undefined,
    });
    if (span.isRecording()) {
      span.setAttribute('http.request.method', known);
      response.once('close', () => {
        const { statusCode, headersSent } = response;
        const { route, baseUrl = '' } = request as Routed;
        if (typeof route?.path === 'string') nameRoute(span, known, `${baseUrl}${route.path}`);
        if (headersSent) span.setAttribute('http.response.status_code', statusCode);
        if (!headersSent) sdk.failSpan(span, 'closed');
        else if (statusCode >= 500) sdk.failSpan(span, String(statusCode));
        span.end();
      });
    }
    const work = () => handle(request, response);
    if (throughout) traceThroughout(span, response, work);
    else sdk.within(span, work);
  };
}

export type Span = ReturnType<Tracing['begin']>;

/** Does work that asks the store as part of a span, to the end of its answer; of one that is not sampled, up to its first wait. */
export function traceThroughout<Result>(
  span: Span | undefined,
  response: ServerResponse,
  work: () => Result,
): Result {
  if (!tracing || !span) return work();
  return span.isRecording() ? tracing.throughout(span, response, work) : tracing.within(span, work);
}

function nameRoute(span: Span, method: string, route: string): void {
  span.setAttribute('http.route', route).updateName(`${method} ${route}`);
}

/** Says of a request what it was, and what became of it. */
export function noteRequest(
  span: Span,
  { method, path }: { method: string; path: string },
  attributes: Parameters<Span['setAttributes']>[0],
): void {
  if (!span.isRecording()) return;
  nameRoute(span, method, path);
  span.setAttributes(attributes);
}

/** The `traceparent` of a span, the present one unless told, for who goes on with its work in another process; nothing, unless it is sampled. */
export function presentTrace(span = tracing?.active()): { traceparent?: string } {
  const traceparent = tracing?.traceparentOf(span);
  return traceparent === undefined ? {} : { traceparent };
}

/** Does work as a part of a new span, which ends with it. What it throws is told by its kind alone. */
export async function inSpan<Result>(
  sdk: NonNullable<typeof tracing>,
  span: Span,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await sdk.within(span, work);
  } catch (error) {
    sdk.failSpan(span, kindOf(error));
    throw error;
  } finally {
    span.end();
  }
}

/** SQLSTATE or a code of Node's where there is one, else the name of its class. */
export function kindOf(error: unknown): string {
  const { code, name } = (error ?? {}) as { code?: unknown; name?: unknown };
  return typeof code === 'string' ? code : typeof name === 'string' ? name : 'Error';
}
