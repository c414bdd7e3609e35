import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type ErrorName, errorBodyOf, errors } from '../errors.ts';
import { newId } from '../platform/ids.ts';
import type { Service } from '../platform/lifecycle.ts';
import { closeLingering } from '../platform/listen.ts';
import type { StrangersLog } from '../platform/log.ts';
import type { ResponseOrder } from '../platform/response-order.ts';
import { hasBody, type RequestInHand } from './request.ts';

/** Bytes of the longest that is not such a list, as in Node by itself. */
const ORDINARY = 16_384;

/** Header fields of a request from which on it is refused. Node drops those above `maxHeadersCount` silently. */
export const MAX_HEADERS = 1000;

/** Milliseconds between two looks at what has come: at rest, and while connections or heads arrive. */
const LOOK = { atRest: 100, busy: 20 };

/**
 * Connections up to which a look now and then is enough: of more, a process that stood still could read all their heads
 * before the next look. Each chunk of theirs is counted as it is read, which costs a call for each.
 */
const FEW_CONNECTIONS = 500;

/**
 * Connections, of many, that are read from in one turn of the event loop: the new ones, and those whose head has not ended.
 * What they send waits in the kernel until then, and what is too much has been cut off before the next come.
 */
const READ_IN_A_TURN = 32;

/**
 * Bytes of buffers in the process from which on such a turn waits for the garbage collector, so many milliseconds at
 * most, while heads are many. What was read of those that are cut off is memory until then. Bodies are no reason to
 * wait.
 */
const UNCOLLECTED = 64 * 1024 * 1024;
const COLLECTING = { look: 5, most: 50 };

/** Connections that are answered at a time before they are cut off. */
const MOST_FAREWELLS = 50;

/** Milliseconds of silence after which nothing is left of a head: Node has cut it off by then. */
const SILENCE = 15_000;

interface Connection {
  /** Bytes of the requests that have come whole. */
  whole: number;
  /** Requests whose bodies are on their way. */
  bodies: number;
  /** Whether each chunk is counted as it is read. */
  isCounted: boolean;
  /** At the last look. */
  read: number;
  /** When that changed, and when the head that is on its way began; epoch milliseconds. */
  changedAt: number;
  since: number;
}

/** Ends a connection with 503; for `answerBrokenRequests`. */
const HEAD_SHED = 'PENSTOCK_HEAD_SHED';

/**
 * Bounds what heads of requests take together. Those on their way nobody but Node sees, which keeps them for 10 s. The
 * others are the long ones that are being answered. Past it those that began first are cut off: an honest head comes at
 * once.
 */
export function createHeads(mostBytes: number) {
  const connections = new Map<Socket, Connection>();
  let held = 0;
  /** Bytes of heads at the last look, and what may have come to it since. */
  let seen = 0;

  function watch(server: Server): Service {
    server.maxHeadersCount = MAX_HEADERS;
    let isBusy = false;
    let farewells = 0;
    /** Connections that are not read from before their turn. */
    const unread: Socket[] = [];
    let waited = 0;
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
    /** Heads on their way. */
    function areMany(): boolean {
      return seen > mostBytes / 8;
    }
    function readInTurn(socket: Socket): void {
      socket.pause();
      if (unread.push(socket) === 1) setImmediate(readOn);
    }
    function readOn(): void {
      if (areMany() && waited < COLLECTING.most && process.memoryUsage().arrayBuffers > UNCOLLECTED) {
        waited += COLLECTING.look;
        setTimeout(readOn, COLLECTING.look).unref();
        return;
      }
      waited = 0;
      for (const socket of unread.splice(0, READ_IN_A_TURN)) socket.resume();
      if (unread.length > 0) setImmediate(readOn);
    }
    // No poller: it looks more often while much is on its way.
    let timer = setTimeout(lookAgain, LOOK.atRest).unref();
    function lookAgain(): void {
      look();
      isBusy ||= areMany();
      timer = setTimeout(lookAgain, isBusy ? LOOK.busy : LOOK.atRest).unref();
      isBusy = false;
    }
    function look(): void {
      const { sum, excess } = arrived(Date.now());
      seen = sum;
      for (const socket of excess) {
        connections.delete(socket);
        if (farewells < MOST_FAREWELLS) bidFarewell(socket);
        else socket.destroy();
      }
    }
    /** What it sends until it is gone is read as well; so only a few at a time are answered. */
    function bidFarewell(socket: Socket): void {
      farewells++;
      socket.once('close', () => farewells--);
      server.emit('clientError', Object.assign(new Error('head shed'), { code: HEAD_SHED }), socket);
      socket.destroySoon();
    }
    /** From here on, this connection; and all the others, when it is the first of too many. */
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
        if (seen > mostBytes) look();
        // The parser has had it before. What it has no use for yet is a head that goes on.
        if (socket.bytesRead > connection.whole && !socket.destroyed) readInTurn(socket);
      });
    }
    return { name: 'request heads', stop: async () => clearTimeout(timer) };
  }

  /** How much there is of heads, and the connections that have to go. */
  function arrived(now: number): { sum: number; excess: Socket[] } {
    let sum = held;
    const arriving: { socket: Socket; bytes: number; since: number }[] = [];
    for (const [socket, connection] of connections) {
      const { bytesRead } = socket;
      if (bytesRead !== connection.read) Object.assign(connection, { read: bytesRead, changedAt: now });
      else if (now - connection.changedAt > SILENCE && connection.bodies === 0) connection.whole = bytesRead;
      // Behind an answer that closes its connection all is thrown away.
      const isHead = connection.bodies === 0 && !socket.writableEnded;
      const bytes = isHead ? bytesRead - connection.whole : 0;
      if (bytes <= 0) connection.since = 0;
      else {
        connection.since ||= now;
        sum += bytes;
        arriving.push({ socket, bytes, since: connection.since });
      }
    }
    if (sum <= mostBytes) return { sum, excess: [] };
    arriving.sort((one, other) => one.since - other.since);
    // Down to a part of it, so that a flood costs a look for each such part and not for each chunk.
    const last = arriving.findIndex(({ bytes }) => {
      sum -= bytes;
      return sum <= 0.75 * mostBytes;
    });
    const gone = arriving.slice(0, last < 0 ? undefined : last + 1);
    return { sum, excess: gone.map(({ socket }) => socket) };
  }

  /**
   * Counts the head of a request that has come.
   *
   * @param mayBeLong whether its operation takes a list in its query
   * @returns why it is refused, if it is
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
    if (held + bytes > mostBytes) return 'tooManyHeaderBytes';
    held += bytes;
    response.once('close', () => {
      held -= bytes;
    });
    return undefined;
  }

  return { watch, admit };
}

export type Heads = ReturnType<typeof createHeads>;

/** What follows a request on its connection belongs to the next one. */
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

/** Node's codes of what never became a request; any other is malformed. */
const entries: Record<string, ErrorName> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'bodyTooSlow',
  HPE_HEADER_OVERFLOW: 'headersTooLarge',
  [HEAD_SHED]: 'tooManyHeaderBytes',
};

/** Milliseconds in which a client may read such an answer and close its side. */
const FAREWELL = 1000;

/**
 * Answers what is no HTTP, or takes too long to come, and closes its connection. The answer is JSON, with a request id
 * and a line in the log, as of every other request. Node alone would send a bare status line. A request that an
 * operation has in hand already keeps its id, and its line is the operation's.
 */
export function answerBrokenRequests(
  server: Server,
  strangers: StrangersLog,
  order?: Pick<ResponseOrder, 'afterLast'>,
): void {
  type HttpSocket = Socket & { _httpMessage?: ServerResponse<RequestInHand> };
  server.on('clientError', (error: NodeJS.ErrnoException, socket: HttpSocket) => {
    // What breaks off behind complete requests must not cost these their answers.
    if (!order || error.code === HEAD_SHED || error.code === 'ECONNRESET') answer(error, socket);
    else order.afterLast(socket, () => answer(error, socket));
  });

  function answer(error: NodeJS.ErrnoException, socket: HttpSocket): void {
    const response = socket._httpMessage;
    // Where an answer is under way already, a second one would be read as part of it.
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
    // A client that keeps its half open would keep what its request holds.
    setTimeout(() => socket.destroy(), FAREWELL).unref();
    socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
    // The parser would take what follows for more of the same, and the connection for broken once more.
    closeLingering(socket);
  }
}
