import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Config } from './config.ts';
import type { TracedProcess, Tracing } from './open-telemetry.ts';
import { importOptional } from './optional-package.ts';

type Sdk = typeof import('./open-telemetry.ts');

/**
 * Creates OpenTelemetry spans for this process. It is undefined if tracing is off; then no part of the SDK is
 * loaded, and callers skip their spans.
 */
export let tracing: (Tracing & Pick<Sdk, 'failSpan' | 'idsOf' | 'traceparentOf'>) | undefined;

/**
 * Maximum milliseconds for sending the last spans when the process stops, and the maximum share of the
 * shutdown timeout.
 */
const FAREWELL = { maxMs: 1500, share: 0.3 };

/**
 * Loads the SDK if a collector is configured. Call it before the log and the stores are created, because they
 * read `tracing`.
 */
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

/** Sends the last spans and turns tracing off; never rejects. */
export async function stopTracing({ SHUTDOWN_TIMEOUT_MS }: Config): Promise<void> {
  const patience = Math.min(FAREWELL.maxMs, SHUTDOWN_TIMEOUT_MS * FAREWELL.share);
  const stopped = tracing;
  tracing = undefined;
  await stopped?.stop(patience).catch(() => {});
}

type Handler<Request extends IncomingMessage> = (request: Request, response: ServerResponse) => void;

/** Properties that routers set on a request. */
interface Routed extends IncomingMessage {
  baseUrl?: string;
  route?: { path?: unknown };
}

/**
 * Known values of `http.request.method`. Other methods are not recorded, because they are text of the caller.
 */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

/** Paths that machines request every few seconds. They are not traced. */
const PROBES = new Set(['/healthz', '/readyz', '/metrics']);

/**
 * Wraps a handler so that each request is a SERVER span from its headers to the end of its response. The span
 * contains the route but neither the address nor other text of the caller, because these may identify a user.
 *
 * @param throughout whether all work for a request runs as part of its span; otherwise the handler must keep
 * the span
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
    const methodName = METHODS.has(method) ? method : '_OTHER';
    const span = sdk.begin(methodName === '_OTHER' ? 'HTTP' : methodName, {
      kind: 'SERVER',
      parent: headers.traceparent as string | undefined,
    });
    if (span.isRecording()) {
      span.setAttribute('http.request.method', methodName);
      response.once('close', () => {
        const { statusCode, headersSent } = response;
        const { route, baseUrl = '' } = request as Routed;
        if (typeof route?.path === 'string') nameRoute(span, methodName, `${baseUrl}${route.path}`);
        if (headersSent) span.setAttribute('http.response.status_code', statusCode);
        if (!headersSent) sdk.failSpan(span, 'closed');
        else if (statusCode >= 500) sdk.failSpan(span, String(statusCode));
        span.end();
      });
    }
    const work = () => handle(request, response);
    if (throughout) traceThroughout(span, response, work);
    else sdk.withSpan(span, work);
  };
}

export type Span = ReturnType<Tracing['begin']>;

/**
 * Runs work that queries the store as part of a span until the response closes. With a span that is not
 * sampled, only the part up to the first `await` belongs to it.
 */
export function traceThroughout<Result>(
  span: Span | undefined,
  response: ServerResponse,
  work: () => Result,
): Result {
  if (!tracing || !span) return work();
  return span.isRecording() ? tracing.throughout(span, response, work) : tracing.withSpan(span, work);
}

function nameRoute(span: Span, method: string, route: string): void {
  span.setAttribute('http.route', route).updateName(`${method} ${route}`);
}

/** Records the route of a request and attributes of its result. */
export function noteRequest(
  span: Span,
  { method, path }: { method: string; path: string },
  attributes: Parameters<Span['setAttributes']>[0],
): void {
  if (!span.isRecording()) return;
  nameRoute(span, method, path);
  span.setAttributes(attributes);
}

/**
 * Returns the `traceparent` of a span, by default of the active one, for work that continues in another
 * process. The object is empty if the span is not sampled.
 */
export function presentTrace(span = tracing?.active()): { traceparent?: string } {
  const traceparent = tracing?.traceparentOf(span);
  return traceparent === undefined ? {} : { traceparent };
}

/** Runs work as part of a new span, which ends with it. Only the kind of an error is recorded. */
export async function inSpan<Result>(
  sdk: NonNullable<typeof tracing>,
  span: Span,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await sdk.withSpan(span, work);
  } catch (error) {
    sdk.failSpan(span, kindOf(error));
    throw error;
  } finally {
    span.end();
  }
}

/** Returns the SQLSTATE or the Node error code, otherwise the name of the error class. */
export function kindOf(error: unknown): string {
  const { code, name } = (error ?? {}) as { code?: unknown; name?: unknown };
  return typeof code === 'string' ? code : typeof name === 'string' ? name : 'Error';
}
