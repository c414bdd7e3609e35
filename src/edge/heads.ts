import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type ErrorName, errorBodyOf, errors } from '../errors.ts';
import { newId } from '../platform/ids.ts';
import type { Service } from '../platform/lifecycle.ts';
import { closeLingering } from '../platform/listen.ts';
import type { StrangersLog } from '../platform/log.ts';
import type { ResponseOrder } from '../platform/response-order.ts';
import { hasBody, type RequestInHand } from './request.ts';

/** Maximum bytes of a head, unless its operation takes a list in the query; the default of Node. */
const ORDINARY = 16_384;

/** A request with more header fields is refused. Node silently drops fields above `maxHeadersCount`. */
const MAX_HEADERS = 1000;

/** Milliseconds between two checks of received bytes: normally, and while connections or heads arrive. */
const LOOK = { atRest: 100, busy: 20 };

/**
 * Number of connections up to which periodic checks suffice. With more, a process that was blocked could read all
 * their heads before the next check. Their chunks are then counted as they are read, which costs a call for each.
 */
const FEW_CONNECTIONS = 500;

/**
 * Connections, if there are many, that are read from in one turn of the event loop: new ones, and those with an
 * incomplete head. Until then their data waits in the kernel, and excess connections are closed before the next ones
 * are read.
 */
const READ_IN_A_TURN = 32;

/** Maximum number of connections that get an answer at the same time before they are closed. */
const MAX_ANSWERED_CLOSES = 50;

/** Milliseconds of silence after which a head is no longer counted: Node has closed the connection by then. */
const SILENCE = 15_000;

interface Connection {
  /** Bytes of the requests that have been received completely. */
  whole: number;
  /** Number of requests whose bodies are arriving. */
  bodies: number;
  /** Whether each chunk is counted as it is read. */
  isCounted: boolean;
  /** Bytes read at the last check. */
  read: number;
  /** When `read` changed, and when the arriving head began; epoch milliseconds. */
  changedAt: number;
  since: number;
}

/** Error code that makes `answerBrokenRequests` close a connection with 503. */
const HEAD_SHED = 'PENSTOCK_HEAD_SHED';

/**
 * Bounds the memory of all request heads together. Arriving heads are only visible to Node, which keeps them for 10 s.
 * The rest are long heads of requests that are being answered. Above the bound, the heads that began first are dropped,
 * because a legitimate head arrives at once.
 */
export function createHeads(maxBytes: number) {
  const connections = new Map<Socket, Connection>();
  let held = 0;
  /** Bytes of heads at the last check, plus what may have arrived since. */
  let seen = 0;

  function watch(server: Server): Service {
    server.maxHeadersCount = MAX_HEADERS;
    let isBusy = false;
    let closing = 0;
    /** Connections that wait for their turn to be read. */
    const unread: Socket[] = [];
    server.on('connection', (socket: Socket) => {
      isBusy = true;
      connections.set(socket, {
        whole: 0,
        bodies: 0,
        isCounted: false,
        read: 0,
        changedAt: 0,
        since: 0,
      });
      socket.once('close', () => connections.delete(socket));
      if (connections.size > FEW_CONNECTIONS) {
        countAll(socket);
        readInTurn(socket);
      }
    });
    /** Whether arriving heads use more than an eighth of the bound. */
    function areMany(): boolean {
      return seen > maxBytes / 8;
    }
    function readInTurn(socket: Socket): void {
      socket.pause();
      if (unread.push(socket) === 1) setImmediate(readOn);
    }
    function readOn(): void {
      for (const socket of unread.splice(0, READ_IN_A_TURN)) socket.resume();
      if (unread.length > 0) setImmediate(readOn);
    }
    // Not a poller, because the interval is shorter while much is arriving.
    let timer = setTimeout(checkRegularly, LOOK.atRest).unref();
    function checkRegularly(): void {
      check();
      isBusy ||= areMany();
      timer = setTimeout(checkRegularly, isBusy ? LOOK.busy : LOOK.atRest).unref();
      isBusy = false;
    }
    function check(): void {
      const { sum, excess } = arrived(Date.now());
      seen = sum;
      for (const socket of excess) {
        connections.delete(socket);
        if (closing < MAX_ANSWERED_CLOSES) answerAndClose(socket);
        else socket.destroy();
      }
    }
    /**
     * Answers and closes a connection. Data that it sends until it is closed is still read, so only a few are
     * answered at a time.
     */
    function answerAndClose(socket: Socket): void {
      closing++;
      socket.once('close', () => closing--);
      server.emit('clientError', Object.assign(new Error('head shed'), { code: HEAD_SHED }), socket);
    }
    /** Counts the chunks of this connection, and of all others if it is the first above the limit. */
    function countAll(socket: Socket): void {
      if (connections.size === FEW_CONNECTIONS + 1) for (const one of connections.keys()) count(one);
      else count(socket);
    }
    function count(socket: Socket): void {
      const connection = connections.get(socket)!;
      if (connection.isCounted) return;
      connection.isCounted = true;
      socket.on('data', (chunk: Buffer) => {
        if (connection.bodies > 0) return;
        seen += chunk.length;
        if (seen > maxBytes) check();
        // The parser has processed the chunk already. Bytes beyond complete requests belong to an unfinished head.
        if (socket.bytesRead > connection.whole && !socket.destroyed) readInTurn(socket);
      });
    }
    return { name: 'request heads', stop: async () => clearTimeout(timer) };
  }

  /** Sums the bytes of heads, and finds the connections to close. */
  function arrived(now: number): { sum: number; excess: Socket[] } {
    let sum = held;
    const arriving: { socket: Socket; bytes: number; since: number }[] = [];
    for (const [socket, connection] of connections) {
      const { bytesRead } = socket;
      if (bytesRead !== connection.read) Object.assign(connection, { read: bytesRead, changedAt: now });
      else if (now - connection.changedAt > SILENCE && connection.bodies === 0) connection.whole = bytesRead;
      // After an answer that closes its connection, all further data is discarded.
      const isHead = connection.bodies === 0 && !socket.writableEnded;
      const bytes = isHead ? bytesRead - connection.whole : 0;
      if (bytes <= 0) connection.since = 0;
      else {
        connection.since ||= now;
        sum += bytes;
        arriving.push({ socket, bytes, since: connection.since });
      }
    }
    if (sum <= maxBytes) return { sum, excess: [] };
    arriving.sort((one, other) => one.since - other.since);
    // Reduce to a fraction of the bound, so that a burst costs one check per fraction and not one per chunk.
    const last = arriving.findIndex(({ bytes }) => {
      sum -= bytes;
      return sum <= 0.75 * maxBytes;
    });
    const gone = arriving.slice(0, last < 0 ? undefined : last + 1);
    return { sum, excess: gone.map(({ socket }) => socket) };
  }

  /**
   * Counts the head of a received request.
   *
   * @param mayBeLong whether the operation takes a list in its query
   * @returns the error if the request is refused
   */
  function admit(
    request: IncomingMessage,
    response: ServerResponse,
    mayBeLong: () => boolean,
  ): ErrorName | undefined {
    const { socket, url = '', rawHeaders } = request;
    let headers = 0;
    for (const text of rawHeaders) headers += text.length + 2;
    const bytes = (request.method?.length ?? 0) + url.length + 12 + headers + 2;
    const connection = connections.get(socket);
    if (connection) follow(connection, request, bytes);
    if (rawHeaders.length >= 2 * MAX_HEADERS) return 'headersTooLarge';
    if (bytes <= ORDINARY) return undefined;
    if (headers > ORDINARY || !mayBeLong()) return 'headersTooLarge';
    if (held + bytes > maxBytes) return 'tooManyHeaderBytes';
    held += bytes;
    response.once('close', () => {
      held -= bytes;
    });
    return undefined;
  }

  return { watch, admit };
}

export type Heads = ReturnType<typeof createHeads>;

/** Bytes after a request belong to the next request on its connection. */
function follow(connection: Connection, request: IncomingMessage, bytes: number): void {
  const { socket } = request;
  const end = connection.whole + bytes;
  connection.since = 0;
  if (!hasBody(request)) {
    connection.whole = Math.min(end, socket.bytesRead);
    return;
  }
  connection.bodies++;
  const length = request.headers['content-length'];
  request.once('close', () => {
    connection.bodies--;
    connection.whole =
      length === undefined ? socket.bytesRead : Math.min(end + Number(length), socket.bytesRead);
  });
}

/** Errors by Node's code for input that never became a request; any other code means malformed. */
const entries: Record<string, ErrorName> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'bodyTooSlow',
  HPE_HEADER_OVERFLOW: 'headersTooLarge',
  [HEAD_SHED]: 'tooManyHeaderBytes',
};

/** Milliseconds for a client to read such an answer and to close its side. */
const FAREWELL = 1000;

/**
 * Answers input that is not HTTP or arrives too slowly, and closes its connection. The answer is JSON with a request
 * id, and it is logged, like that of any other request. Node alone would send a bare status line. A request that an
 * operation is processing keeps its id, and the operation logs it.
 */
export function answerBrokenRequests(
  server: Server,
  strangers: StrangersLog,
  order: Pick<ResponseOrder, 'afterLast' | 'responseOn'>,
): void {
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    // A broken request must not cost earlier complete requests their answers.
    if (error.code === HEAD_SHED || error.code === 'ECONNRESET') answer(error, socket);
    else order.afterLast(socket, () => answer(error, socket));
  });

  function answer(error: NodeJS.ErrnoException, socket: Socket): void {
    const response = order.responseOn(socket) as ServerResponse<RequestInHand> | undefined;
    // If an answer has begun, the client would read a second one as part of it.
    if (!socket.writable || error.code === 'ECONNRESET' || response?.headersSent) {
      socket.destroy();
      return;
    }
    const entry = entries[error.code ?? ''] ?? 'malformedRequest';
    const { status } = errors[entry];
    const inHand = response?.req.requestId;
    const requestId = inHand ?? newId();
    if (inHand) response!.req.broken = entry;
    else strangers.line('info', { request_id: requestId, status, error: error.code }, 'request');
    const body = JSON.stringify(errorBodyOf(entry));
    const head = [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      'Content-Type: application/json; charset=utf-8',
      `Content-Length: ${Buffer.byteLength(body)}`,
      `X-Request-Id: ${requestId}`,
      ...['Limit', 'Remaining', 'Reset'].map((name) => `X-RateLimit-${name}: `),
      'X-Content-Type-Options: nosniff',
      ...(status === 503 ? ['Retry-After: 1'] : []),
      'Connection: close',
    ];
    // A client that keeps its side open would keep the memory of its request allocated.
    setTimeout(() => socket.destroy(), FAREWELL).unref();
    socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
    // The parser would treat further data as part of the request, and report the connection as broken again.
    closeLingering(socket);
  }
}
