import {
  type Agent,
  createServer,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
  type RequestOptions,
  type ServerResponse,
} from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';
import type { Registry } from 'prom-client';
import { ApiError, type ErrorName, errorBodyOf, errors } from '../errors.ts';
import type { Operation } from '../operations/operation.ts';
import { ByteBudget } from '../platform/byte-budget.ts';
import { newId } from '../platform/ids.ts';
import { type Service, withTimeout } from '../platform/lifecycle.ts';
import { namesOneHost, serverOptions, targetOf } from '../platform/listen.ts';
import { type Log, messageOf } from '../platform/log.ts';
import {
  type Copied,
  type CopiedOperation,
  createCopies,
  endToEnd,
  forwardedBy,
  type Headers,
  type Outcome,
  readAll,
  received,
} from './copies.ts';
import { sendJson } from './reply.ts';
import { type RequestInHand, tooLarge } from './request.ts';
import type { Responses } from './responses.ts';

/** Paths that this installation serves itself: probes, metrics, documentation, preference centers. */
const OWN = /^\/{1,2}(?:healthz|readyz|metrics|docs|openapi\.json|preferences|exports)(?:[/?]|$)/;

/** Milliseconds for which the client's answer waits for the copy. */
const WAIT_MS = 1000;

/** Owner under which answers of the upstream are counted, because only the upstream reads the API keys. */
const UPSTREAM = 'upstream';

/** Maximum number of concurrent requests to the upstream; further ones are answered with 503. */
const MAX_CONCURRENT = 2000;

interface ProxySettings {
  /** Origin of the upstream service, and a path prefix of its operations. */
  upstream: URL;
  /** Milliseconds for its answer. */
  patience: number;
  /** Maximum bytes of one copied body, and of all bodies that are being copied. */
  maxBodyBytes: number;
  maxBytes: number;
}

interface ProxyParts {
  /** Handles requests that are not forwarded, and the copies. */
  handle(request: RequestInHand, response: ServerResponse): void;
  operations: Operation[];
  /** Bounds the memory of answers that clients do not read. */
  responses: Responses;
  registry: Registry;
  log: Log;
}

/**
 * The thin proxy: forwards every request to the upstream and returns its answer to the client byte for byte. A
 * request that changes users and that the upstream accepted is also executed here, and differences between the two
 * results are counted and logged. A request that the upstream refused or did not answer is not copied: its client may
 * send it again.
 *
 * The client's answer waits at most one second for the copy, so that problems here do not affect the client.
 */
export async function createProxy(settings: ProxySettings, parts: ProxyParts) {
  const { upstream, patience, maxBodyBytes, maxBytes } = settings;
  const { handle, operations, responses, registry, log } = parts;
  const isSecure = upstream.protocol === 'https:';
  const agent: Agent = isSecure ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true });
  const copied = copiedOperations(operations);
  // Copies arrive at a server of their own and pass the same checks as any other request.
  const door = createServer(serverOptions, handle);
  await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve));
  const { port } = door.address() as AddressInfo;
  const copies = createCopies({ port, maxBytes, registry, log });
  const bodies = new ByteBudget({ maxBytes });
  let forwarding = 0;

  function take(request: RequestInHand, response: ServerResponse): void {
    // Only one host and one path are accepted, so that the upstream cannot read the target in another way than
    // Penstock.
    const target = namesOneHost(request) ? targetOf(request) : undefined;
    if (target === undefined) {
      refuse(response, { entry: 'malformedRequest', headers: { Connection: 'close' } });
      return;
    }
    request.url = target;
    if (OWN.test(target)) {
      Object.assign(request.headers, forwardedBy(request));
      handle(request, response);
    } else passOn(request, response);
  }

  function passOn(request: IncomingMessage, response: ServerResponse): void {
    const path = request.url!.split('?', 1)[0]!.replace(/^\/\//, '/');
    const operation = copied.get(`${request.method} ${path}`);
    const served = operation
      ? answerAndCopy(request, response, operation)
      : forward(request, response, (status) => countForwarded(request.method!, path, status));
    served.catch((error) => fail(response, error, operation));
  }

  /** Counts a forwarded request, and logs it if it may have changed users in the upstream but not here. */
  function countForwarded(method: string, path: string, status: number): void {
    if (!mayChangeUsers(method, path)) copies.count('other', 'forwarded');
    else if (status >= 300) copies.count('other', refusedBy(status));
    else copies.reportNotCopied(method, path, status);
  }

  /** @throws {ApiError} if too many requests wait for the upstream already */
  async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (forwarding >= MAX_CONCURRENT) throw new ApiError('serverBusy');
    responses.requireRoom(UPSTREAM);
    forwarding++;
    try {
      return await work();
    } finally {
      forwarding--;
    }
  }

  /**
   * Streams the request and the answer, which may have any size. `onStatus` is called with the status of the upstream,
   * even if the client disconnects.
   */
  function forward(
    request: IncomingMessage,
    response: ServerResponse,
    onStatus: (status: number) => void,
  ): Promise<void> {
    return inTurn(async () => {
      const headers = endToEnd(request.headers);
      // Node frames a body of unknown length only for some methods. Without a frame the body would be read as another
      // request.
      if (request.headers['transfer-encoding'] !== undefined) headers['transfer-encoding'] = 'chunked';
      const { sent, answer: receiving } = send(request, headers);
      const [answer] = await Promise.all([receiving, pipeline(request, sent)]);
      onStatus(answer.statusCode!);
      // From here on the client may be slow.
      sent.setTimeout(0);
      response.writeHead(answer.statusCode!, endToEnd(answer.headers));
      await pipeline(answer, response);
    });
  }

  async function answerAndCopy(
    request: IncomingMessage,
    response: ServerResponse,
    operation: CopiedOperation,
  ): Promise<void> {
    let isShed = false;
    // Only received bytes are counted; above the limit the oldest arriving body is dropped.
    const counted = bodies.receive(() => {
      isShed = true;
      request.destroy();
      refuse(response, { entry: 'serverBusy', headers: { 'Retry-After': '1', Connection: 'close' } });
    });
    try {
      const body = await readAll(request, maxBodyBytes, (bytes) => counted.grow(bytes));
      if (body === undefined) {
        const length = request.headers['content-length'];
        const { entry, fact } = tooLarge(
          { limit: maxBodyBytes },
          length === undefined ? length : Number(length),
        );
        return refuse(response, { entry, fact, headers: { Connection: 'close' } });
      }
      counted.know();
      counted.complete();
      await inTurn(() => answerBoth({ request, operation, body }, response));
    } catch (error) {
      if (!isShed) throw error;
    } finally {
      counted.release();
    }
  }

  async function answerBoth(copied: Copied, response: ServerResponse): Promise<void> {
    const { request, operation, body } = copied;
    // Uncompressed, because the content is compared.
    const headers = { ...endToEnd(request.headers, body.length), 'accept-encoding': 'identity' };
    const { sent, answer } = send(request, headers);
    sent.end(body);
    const silent = () => sent.destroy(new UpstreamSilent('the upstream has not answered in time'));
    const timer = setTimeout(silent, patience);
    const there = await answer.then(received).finally(() => clearTimeout(timer));
    // A client that reads its own write must find it here as well.
    if (there.status < 300) {
      const copy = copies.keep(copied, there);
      await withTimeout(WAIT_MS, copy.done).catch(copy.isLate);
    } else copies.count(operation.id, refusedBy(there.status));
    response.writeHead(there.status, endToEnd(there.headers, there.body.length));
    responses.end(response, there.body, UPSTREAM);
  }

  /** Starts a request to the upstream. The caller has to send its body. */
  function send({ method, url }: IncomingMessage, headers: Headers) {
    const { pathname } = upstream;
    const options: RequestOptions = {
      protocol: upstream.protocol,
      hostname: upstream.hostname.replace(/^\[(.*)\]$/, '$1'),
      port: upstream.port || (isSecure ? 443 : 80),
      agent,
      method: method!,
      path: `${pathname === '/' ? '' : pathname.replace(/\/$/, '')}${url}`,
      headers: { ...headers, host: upstream.host },
      timeout: patience,
    };
    const sent = (isSecure ? httpsRequest : httpRequest)(options);
    const answer = new Promise<IncomingMessage>((resolve, reject) => {
      sent.on('response', resolve);
      sent.on('timeout', () => sent.destroy(new UpstreamSilent('the upstream has not answered in time')));
      sent.on('error', reject);
    });
    return { sent, answer };
  }

  function fail(response: ServerResponse, error: unknown, operation: CopiedOperation | undefined): void {
    // The client has disconnected.
    if (response.destroyed) return;
    if (error instanceof ApiError) {
      refuse(response, { entry: 'serverBusy', headers: { 'Retry-After': '1', Connection: 'close' } });
      return;
    }
    copies.count(operation?.id ?? 'other', 'failed_there');
    log.warn(
      { reason: messageOf(error), ...(operation && { operation: operation.id }) },
      'upstream did not answer',
    );
    if (response.headersSent) response.destroy();
    else refuse(response, { entry: error instanceof UpstreamSilent ? 'upstreamSilent' : 'upstreamAway' });
  }

  const service: Service = {
    name: 'proxy',
    async stop() {
      await copies.stop();
      agent.destroy();
      await new Promise((resolve) => door.close(resolve));
    },
  };
  return { take, service };
}

const refusedBy = (status: number): Outcome => (status < 500 ? 'refused_there' : 'failed_there');

class UpstreamSilent extends Error {}

function refuse(
  response: ServerResponse,
  {
    entry,
    fact,
    headers = {},
  }: { entry: ErrorName; fact?: string | undefined; headers?: Record<string, string> },
): void {
  const { status } = errors[entry];
  sendJson(response, { status, body: errorBodyOf(entry, fact), headers }, { requestId: newId() });
}

/** Direct operations that change only data of the workspace and return no generated id. */
const COPIED_DIRECT: ReadonlySet<string> = new Set(['sms.invalid_phone_numbers.remove']);

/**
 * Operations of the upstream that Penstock may not offer, depending on VENDOR_RULES, with the operation of Penstock
 * that does the same with the same body.
 */
const SAME_AS: readonly { path: string; id: string; ours: string }[] = [
  { path: '/users/track/sync', id: 'users.track.sync', ours: 'users.track' },
];

/**
 * Path prefixes under which the upstream changes users, their addresses, numbers and states, or what visitors see of
 * them.
 */
const CHANGING = /^\/(?:v\d+\/)?(?:users|sms|email|subscription|preference_center|scim|cdi)(?:\/|$)/;

/** Exports use POST but do not change users. */
const EXPORTING = /^\/users\/export\//;

const READING: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

/** Operations that are also executed here, by exact method and path. */
export function copiedOperations(operations: readonly Operation[]): ReadonlyMap<string, CopiedOperation> {
  const copiedByTarget = new Map<string, CopiedOperation>();
  for (const { kind, id, method, path } of operations)
    if (kind === 'queued' || COPIED_DIRECT.has(id)) copiedByTarget.set(`${method} ${path}`, { id, path });
  for (const { path, id, ours } of SAME_AS) {
    const same = operations.find((operation) => operation.id === ours);
    if (same && !copiedByTarget.has(`${same.method} ${path}`))
      copiedByTarget.set(`${same.method} ${path}`, { id, path: same.path });
  }
  return copiedByTarget;
}

/**
 * Whether a request that is only forwarded may have changed data that the copy has as well. The upstream may match
 * paths less strictly: other cases, escapes and slashes count as the same path.
 */
export function mayChangeUsers(method: string, path: string): boolean {
  if (READING.has(method)) return false;
  const read = unescaped(path).toLowerCase().replace(/\/+/g, '/');
  return CHANGING.test(read) && !EXPORTING.test(read);
}

function unescaped(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
