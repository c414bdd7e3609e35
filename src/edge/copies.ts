import {
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestOptions,
} from 'node:http';
import { Counter, type Registry } from 'prom-client';
import { ByteBudget } from '../platform/byte-budget.ts';
import { newId } from '../platform/ids.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import { type Log, messageOf } from '../platform/log.ts';
import { backOff, rest } from '../platform/poll.ts';

/** Headers that apply to one connection only (RFC 9110 §7.6.1), and headers that the next connection sets itself. */
const OF_THE_CONNECTION = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'expect', 'host', 'content-length'],
]);

/** Maximum bytes of an answer that is compared. No operation that changes users has a longer answer. */
const MAX_ANSWER_BYTES = 1_048_576;

/** Milliseconds for which a copy is retried, and for which a stop waits for running copies. */
const COPY_MS = 60_000;
const FAREWELL_MS = 1000;
const FIRST_RETRY_MS = 50;
const MAX_RETRY_MS = 2000;

/** Maximum characters of a logged message or path. */
const MAX_CHARACTERS = 200;

/** The result of a request here, compared with the upstream. */
export type Outcome =
  | 'same'
  | 'late'
  | 'errors_differ'
  | 'refused_here'
  | 'not_kept'
  | 'refused_there'
  | 'failed_there'
  | 'not_copied'
  | 'forwarded';

export type Headers = Record<string, string | string[]>;

/** A complete answer. */
interface Received {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** A request with its complete body, which is sent twice. */
export interface Copied {
  request: IncomingMessage;
  operation: CopiedOperation;
  body: Buffer;
  /** The client was answered before the copy had taken effect. */
  isLate?: boolean;
}

interface CopyOptions {
  /** Port of the server for copies, on the loopback address. */
  port: number;
  /** Maximum bytes of bodies that wait for an answer. */
  maxBytes: number;
  registry: Registry;
  log: Log;
}

export function addProxyMetric(registry: Registry): Counter<'operation' | 'outcome'> {
  return new Counter({
    name: 'penstock_proxied_requests_total',
    help: 'Requests sent to PROXY_UPSTREAM, by operation (other: not copied) and by outcome of the copy compared with the upstream.',
    labelNames: ['operation', 'outcome'],
    registers: [registry],
  });
}

/**
 * Executes requests here that the upstream has accepted, and logs where the results differ. A copy has an
 * Idempotency-Key, so it takes effect once, even if it is sent several times.
 */
export function createCopies({ port, maxBytes, registry, log }: CopyOptions) {
  const outcomes = addProxyMetric(registry);
  const agent = new HttpAgent({ keepAlive: true, maxSockets: 256 });
  const own: RequestOptions = { host: '127.0.0.1', port, agent };
  const leaving = new AbortController();
  const inProgress = new Set<Promise<void>>();
  const held = new ByteBudget({ maxBytes });

  /**
   * Starts a copy. `done` resolves when it has taken effect or has failed for good; it never rejects. Call `isLate`
   * if the client has not waited for it.
   */
  function keep(copied: Copied, there: Received): { done: Promise<void>; isLate(): void } {
    const copy = { ...copied, isLate: false };
    const done = copyOf(copy, there);
    inProgress.add(done);
    void done.finally(() => inProgress.delete(done));
    return {
      done,
      isLate() {
        copy.isLate = true;
      },
    };
  }

  async function copyOf(copy: Copied, there: Received): Promise<void> {
    const { body } = copy;
    // Not `reserve`, which lets a body through that is larger than the budget.
    if (!held.hasRoom(body.length)) return report(copy, there, { error: 'too much waits to be copied' });
    const reservation = held.count(body.length);
    const headers = {
      ...endToEnd(copy.request.headers, body.length),
      'accept-encoding': 'identity',
      host: copy.request.headers.host ?? 'localhost',
      'idempotency-key': copy.request.headers['idempotency-key'] ?? `proxy-${newId()}`,
      ...forwardedBy(copy.request),
    };
    const nextWait = backOff(FIRST_RETRY_MS, MAX_RETRY_MS);
    const until = performance.now() + COPY_MS;
    let here: Received | { error: string };
    do {
      here = await carryOut(copy, headers);
      const isPassing = 'error' in here || here.status >= 500 || here.status === 429;
      if (!isPassing || leaving.signal.aborted) break;
      await rest(nextWait(), leaving.signal);
    } while (performance.now() < until);
    reservation.release();
    report(copy, there, here);
  }

  function carryOut(
    { request, operation, body }: Copied,
    headers: Headers,
  ): Promise<Received | { error: string }> {
    return new Promise((resolve) => {
      const failed = (error: unknown) => resolve({ error: messageOf(error) });
      const { method, url = '' } = request;
      const query = url.indexOf('?');
      const path = query < 0 ? operation.path : operation.path + url.slice(query);
      const sent = httpRequest({ ...own, method: method!, path, headers }, (answer) => {
        received(answer).then(resolve, failed);
      });
      sent.setTimeout(COPY_MS, () => sent.destroy(new Error('no answer in time')));
      sent.on('error', failed);
      sent.end(body);
    });
  }

  /**
   * Counts the result of a copy, and logs differences. The log lines contain content from the client only in the
   * messages.
   */
  function report(
    { operation, isLate = false }: Copied,
    there: Received,
    here: Received | { error: string },
  ): void {
    const [theirs, ours] = [errorsOf(there), 'error' in here ? undefined : errorsOf(here)];
    const judged = outcomeOf(here, theirs, ours);
    const outcome = judged === 'same' && isLate ? 'late' : judged;
    count(operation.id, outcome);
    if (judged === 'same') return;
    const line = {
      ...{ operation: operation.id, outcome, upstream_status: there.status, upstream_errors: theirs.errors },
      ...('error' in here
        ? { error: here.error }
        : { request_id: here.headers['x-request-id'], status: here.status, errors: ours!.errors }),
      ...(ours?.message && { message: ours.message }),
    };
    if (outcome === 'not_kept') log.error(line, 'copy of an upstream request was not stored');
    else log.warn(line, 'upstream and copy returned different results for a request');
  }

  /** Logs a request that the upstream accepted and that may change users, but that was not executed here. */
  function reportNotCopied(method: string, path: string, status: number): void {
    count('other', 'not_copied');
    log.warn(
      { outcome: 'not_copied', method, path: path.slice(0, MAX_CHARACTERS), upstream_status: status },
      'upstream accepted a request that Penstock does not copy; make the same change in Penstock',
    );
  }

  function count(operation: string, outcome: Outcome): void {
    outcomes.inc({ operation, outcome });
  }

  return {
    keep,
    count,
    reportNotCopied,
    async stop() {
      await withTimeout(FAREWELL_MS, Promise.all(inProgress)).catch(() => {});
      leaving.abort();
      await Promise.all(inProgress);
      agent.destroy();
    },
  };
}

function outcomeOf(
  here: Received | { error: string },
  theirs: { errors: number },
  ours: { errors: number } | undefined,
): Outcome {
  if ('error' in here || here.status >= 500 || here.status === 429) return 'not_kept';
  if (here.status >= 300) return 'refused_here';
  return theirs.errors === ours!.errors ? 'same' : 'errors_differ';
}

/** Filters the headers that pass through a proxy. */
export function endToEnd(headers: IncomingHttpHeaders, length?: number): Headers {
  const named = new Set((headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase()));
  const kept: Headers = {};
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && !OF_THE_CONNECTION.has(name) && !named.has(name)) kept[name] = value;
  const bytes = length === undefined ? headers['content-length'] : String(length);
  if (bytes !== undefined) kept['content-length'] = bytes;
  return kept;
}

/** Headers that a proxy adds, so that IP allowlists see the client, and links use the client's scheme. */
export function forwardedBy({ headers, socket }: IncomingMessage): Headers {
  const { 'x-forwarded-for': addresses, 'x-forwarded-proto': schemes } = headers;
  const join = (...entries: unknown[]) => entries.flat().filter(Boolean).join(', ');
  return {
    'x-forwarded-for': join(addresses, socket.remoteAddress),
    'x-forwarded-proto': join(schemes, 'http'),
  };
}

/** @returns undefined if the body is longer; the rest of it is not read */
export async function readAll(
  request: IncomingMessage,
  maxBytes: number,
  came: (bytes: number) => void = () => {},
): Promise<Buffer | undefined> {
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) return undefined;
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    bytes += chunk.length;
    if (bytes > maxBytes) return undefined;
    came(chunk.length);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

export async function received(answer: IncomingMessage): Promise<Received> {
  const body = await readAll(answer, MAX_ANSWER_BYTES);
  if (body === undefined) {
    answer.destroy();
    throw new Error(`an answer has more than ${MAX_ANSWER_BYTES} bytes`);
  }
  return { status: answer.statusCode!, headers: answer.headers, body };
}

/** Reads the errors in an answer. A compressed answer or one that is not JSON counts as having no errors. */
function errorsOf({ body, status }: Received): { errors: number; message?: string } {
  try {
    const { errors, message } = JSON.parse(body.toString('utf8'));
    const summary = { errors: Array.isArray(errors) ? errors.length : 0 };
    if (status < 300 || typeof message !== 'string') return summary;
    return { ...summary, message: message.slice(0, MAX_CHARACTERS) };
  } catch {
    return { errors: 0 };
  }
}

/** The operation that is executed here for a request that the upstream has accepted. */
export interface CopiedOperation {
  /** Id in the metric and the log. */
  id: string;
  /** Path of the operation here. */
  path: string;
}
