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
import { newId } from '../platform/ids.ts';
import { type Service, within } from '../platform/lifecycle.ts';
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
import { createSmallBodies } from './reading.ts';
import { sendJson } from './reply.ts';
import type { RequestInHand } from './request.ts';
import type { Responses } from './responses.ts';

/** Paths that are this installation's own: probes, numbers, documentation, preference centers. */
const OWN = /^\/{1,2}(?:healthz|readyz|metrics|docs|openapi\.json|preferences|exports)(?:[/?]|$)/;

/** Milliseconds for which the client's answer waits for our copy. */
const WAIT_MS = 1000;

/** Whom answers of the upstream count for: it alone reads the keys. */
const UPSTREAM = 'upstream';

/** Requests on their way to the upstream; further ones are answered with 503. */
const MOST_AT_ONCE = 2000;

interface ProxySettings {
  /** Origin of the service that answers, and a path before those of its operations. */
  upstream: URL;
  /** Milliseconds for its answer. */
  patience: number;
  /** Bytes of the largest body that is copied, and of all that are in hand. */
  mostBodyBytes: number;
  mostBytes: number;
}

interface ProxyParts {
  /** Takes what is not forwarded, and the copies. */
  handle(request: RequestInHand, response: ServerResponse): void;
  operations: Operation[];
  /** Bounds what answers take that clients do not read. */
  responses: Responses;
  registry: Registry;
  log: Log;
}

/**
 * The thin proxy: every request goes to the upstream, whose answer the client gets, byte for byte. What changes users,
 * and was taken there, is carried out here as well, and how the two have judged it is counted and told. A request that the
 * upstream refused or did not answer is not: its client sends it again, or never.
 *
 * The client's answer waits for our copy, a second at most: trouble here is none of the client's.
 */
export async function createProxy(settings: ProxySettings, parts: ProxyParts) {
  const { upstream, patience, mostBodyBytes, mostBytes } = settings;
  const { handle, operations, responses, registry, log } = parts;
  const isSecure = upstream.protocol === 'https:';
  const agent: Agent = isSecure ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true });
  const copied = copiedOperations(operations);
  // Copies come in by a door of their own: requests like any other, with all that is checked of one.
  const door = createServer(serverOptions, handle);
  await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve));
  const { port } = door.address() as AddressInfo;
  const copies = createCopies({ port, mostBytes, registry, log });
  const bodies = createSmallBodies(mostBytes);
  let forwarding = 0;

  function take(request: RequestInHand, response: ServerResponse): void {
    // One host and one path, to the letter: no other is meant by the upstream than by us.
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

  /** What changed users there, and not here, is told: the copy lacks it. */
  function countForwarded(method: string, path: string, status: number): void {
    if (!mayChangeUsers(method, path)) copies.count('other', 'forwarded');
    else if (status >= 300) copies.count('other', refusedBy(status));
    else copies.tellNotCopied(method, path, status);
  }

  /** @throws {ApiError} when too many wait for the upstream already */
  async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (forwarding >= MOST_AT_ONCE) throw new ApiError('serverBusy');
    responses.requireRoom(UPSTREAM);
    forwarding++;
    try {
      return await work();
    } finally {
      forwarding--;
    }
  }

  /** Streams both ways: what is asked for is of any size. `heard`: the upstream has judged it, whoever reads on. */
  function forward(
    request: IncomingMessage,
    response: ServerResponse,
    heard: (status: number) => void,
  ): Promise<void> {
    return inTurn(async () => {
      const headers = endToEnd(request.headers);
      // Node frames a body of unknown length for some methods only; without a frame it would be a request of its own.
      if (request.headers['transfer-encoding'] !== undefined) headers['transfer-encoding'] = 'chunked';
      const { sent, answer: asked } = ask(request, headers);
      const [answer] = await Promise.all([asked, pipeline(request, sent)]);
      heard(answer.statusCode!);
      // From here on it is the client who may take its time.
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
    // What is announced and does not come takes nothing; past the bytes the oldest that is on its way goes.
    const counted = bodies.count(() => {
      isShed = true;
      request.destroy();
      refuse(response, { entry: 'serverBusy', headers: { 'Retry-After': '1', Connection: 'close' } });
    });
    try {
      const body = await readAll(request, mostBodyBytes, (bytes) => counted.grow(bytes));
      if (body === undefined)
        return refuse(response, { entry: 'bodyTooLarge', headers: { Connection: 'close' } });
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
    // As text: what it says is compared.
    const headers = { ...endToEnd(request.headers, body.length), 'accept-encoding': 'identity' };
    const { sent, answer } = ask(request, headers);
    sent.end(body);
    const silent = () => sent.destroy(new UpstreamSilent('the upstream has not answered in time'));
    const timer = setTimeout(silent, patience);
    const there = await answer.then(received).finally(() => clearTimeout(timer));
    // Whoever reads what was written finds it here as well.
    if (there.status < 300) {
      const copy = copies.keep(copied, there);
      await within(WAIT_MS, copy.done).catch(copy.isLate);
    } else copies.count(operation.id, refusedBy(there.status));
    response.writeHead(there.status, endToEnd(there.headers, there.body.length));
    responses.end(response, there.body, UPSTREAM);
  }

  /** A request to the upstream, whose body is still to be sent, and the answer to it. */
  function ask({ method, url }: IncomingMessage, headers: Headers) {
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
    // The client has left, whatever it was that it waited for.
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
  { entry, headers = {} }: { entry: ErrorName; headers?: Record<string, string> },
): void {
  const { status } = errors[entry];
  sendJson(response, { status, body: errorBodyOf(entry), headers }, { requestId: newId() });
}

/** Direct operations that change nothing but the workspace's data, and answer with no id of their own. */
const COPIED_DIRECT: ReadonlySet<string> = new Set(['sms.invalid_phone_numbers.remove']);

/** Operations of the other service that we may not have, and which of ours does the same with the same body. */
const SAME_AS: readonly { path: string; id: string; ours: string }[] = [
  { path: '/users/track/sync', id: 'users.track.sync', ours: 'users.track' },
];

/** Paths beneath which another service changes users, their addresses, numbers and states, or what people see of them. */
const CHANGING = /^\/(?:v\d+\/)?(?:users|sms|email|subscription|preference_center|scim|cdi)(?:\/|$)/;

/** Exports ask by POST, and change nobody. */
const EXPORTING = /^\/users\/export\//;

const READING: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

/** Operations that are carried out here as well: by method and path, to the letter. */
export function copiedOperations(operations: readonly Operation[]): ReadonlyMap<string, CopiedOperation> {
  const known = new Map<string, CopiedOperation>();
  for (const { kind, id, method, path } of operations)
    if (kind === 'queued' || COPIED_DIRECT.has(id)) known.set(`${method} ${path}`, { id, path });
  for (const { path, id, ours } of SAME_AS) {
    const same = operations.find((operation) => operation.id === ours);
    if (same && !known.has(`${same.method} ${path}`))
      known.set(`${same.method} ${path}`, { id, path: same.path });
  }
  return known;
}

/**
 * Whether a request that is only forwarded may have changed what the copy here has as well. The upstream may read a path
 * less strictly than we do: with other cases, escapes and slashes it is the same path.
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
