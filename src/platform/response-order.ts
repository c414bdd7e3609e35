import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ByteBudget, type Reservation } from './byte-budget.ts';
import type { Service } from './lifecycle.ts';

/** Approximate bytes that a waiting pipelined request holds: the request and response objects of Node. */
const WAITING_REQUEST = 4096;

/** Maximum bytes that Node has read of the body of a waiting request. */
const WAITING_BODY = 65_536;

/** Maximum bytes that all waiting pipelined requests may hold: 2,000 requests without a body. */
const MAX_WAITING_BYTES = 8_388_608;

/** Maximum number of pipelined requests, over all connections, that begin in one turn of the event loop. */
const MAX_STARTED_PER_TURN = 16;

/** Milliseconds between two checks of the connections. */
const CHECK_INTERVAL = 1000;

/** Minimum bytes that a receiver must read within a number of milliseconds. */
export interface MinimumRate {
  bytes: number;
  milliseconds: number;
}

/** Closes a connection whose receiver reads no byte for 30 s. */
const PROGRESS: MinimumRate = { bytes: 1, milliseconds: 30_000 };

interface Connection {
  /** The response that is being created or sent. */
  current: ServerResponse | undefined;
  /** Waiting pipelined requests, oldest first. */
  waiting: (() => void)[];
  /** Bytes that the waiting requests hold. */
  held: Reservation | undefined;
  /** Callback for the moment at which the receiver has read every response. */
  last: (() => void) | undefined;
  rate: MinimumRate;
  /**
   * Bytes that the receiver had read at the start of the current period, and the time at which the period
   * began.
   */
  taken: number;
  since: number;
}

type Handler<Request extends IncomingMessage> = (request: Request, response: ServerResponse) => void;

/**
 * Serves the requests of a connection one after the other, each after the receiver has read the previous
 * response, and closes a connection whose receiver reads nothing for 30 s. So a client that pipelines
 * requests and reads no response holds only one response in the memory of the process.
 */
export class ResponseOrder {
  readonly #connections = new Map<Socket, Connection>();
  /** Callbacks of connections whose next request may begin. */
  readonly #ready: (() => void)[] = [];
  readonly #waiting = new ByteBudget({ maxBytes: MAX_WAITING_BYTES });

  /** Watches the connections of a server, and closes those that make no progress. */
  watch(server: Server): Service {
    server.on('connection', (socket: Socket) => {
      const connection: Connection = {
        current: undefined,
        waiting: [],
        held: undefined,
        last: undefined,
        rate: PROGRESS,
        taken: 0,
        since: 0,
      };
      this.#connections.set(socket, connection);
      socket.once('close', () => {
        this.#connections.delete(socket);
        dropWaiting(connection);
      });
      // Other code also resumes a socket, for example Node after a response has been sent.
      socket.on('resume', () => {
        if (connection.waiting.length > 0) socket.pause();
      });
    });
    const timer = setInterval(() => this.runOnce(performance.now()), CHECK_INTERVAL).unref();
    return { name: 'responses', stop: async () => clearInterval(timer) };
  }

  /**
   * Wraps a handler so that a pipelined request begins after the previous response was read. Until then the
   * connection is paused, and requests that were already read from it wait. If the waiting requests exceed
   * their byte limit, the connection with most of them is closed.
   */
  inOrder<Request extends IncomingMessage>(handle: Handler<Request>): Handler<Request> {
    return (request, response) => {
      const connection = this.#connections.get(request.socket);
      if (!connection || (connection.waiting.length === 0 && isTaken(connection.current))) {
        if (connection) holdUntilClosed(connection, response);
        return handle(request, response);
      }
      const { socket } = request;
      socket.pause();
      const begin = () => {
        holdUntilClosed(connection, response);
        handle(request, response);
      };
      connection.held ??= this.#waiting.count(0);
      if (connection.waiting.push(begin) === 1) this.#whenTaken(socket, connection);
      while (!connection.held?.grow(weightOf(request))) {
        const fullest = this.#fullest();
        fullest.socket.destroy();
        dropWaiting(fullest.connection);
        if (fullest.connection === connection) return;
      }
    };
  }

  /**
   * Calls back when every complete request of a connection has been answered, or immediately if that is
   * already so. The connection is paused until then.
   */
  afterLast(socket: Socket, callback: () => void): void {
    const connection = this.#connections.get(socket);
    if (!connection?.current?.req.complete || isTaken(connection.current)) {
      callback();
      return;
    }
    socket.pause();
    const isNew = connection.last === undefined;
    connection.last = callback;
    if (isNew && connection.waiting.length === 0) this.#whenTaken(socket, connection);
  }

  /** Returns the response that is being created or sent on a connection. */
  responseOn(socket: Socket): ServerResponse | undefined {
    const current = this.#connections.get(socket)?.current;
    return isTaken(current) ? undefined : current;
  }

  /** Sets the minimum rate at which the receiver must read this response. */
  requireRate({ socket }: ServerResponse, rate: MinimumRate): void {
    const connection = socket && this.#connections.get(socket);
    if (!connection) return;
    Object.assign(connection, { rate, since: 0 });
  }

  #whenTaken(socket: Socket, connection: Connection): void {
    const { current } = connection;
    const next = () => {
      if (this.#ready.push(() => this.#beginNext(socket, connection)) === 1) setImmediate(this.#beginReady);
    };
    if (!current || isTaken(current)) next();
    else current.once('close', next);
  }

  readonly #beginReady = (): void => {
    for (const begin of this.#ready.splice(0, MAX_STARTED_PER_TURN)) begin();
    // Let other connections have a turn in between.
    if (this.#ready.length > 0) setImmediate(this.#beginReady);
  };

  #beginNext(socket: Socket, connection: Connection): void {
    // No other response can be sent after one that closes the connection.
    if (socket.destroyed || socket.writableEnded) {
      dropWaiting(connection);
      return;
    }
    const begin = connection.waiting.shift();
    if (!begin) {
      const { last } = connection;
      connection.last = undefined;
      last?.();
      return;
    }
    begin();
    if (connection.waiting.length > 0 || connection.last) this.#whenTaken(socket, connection);
    if (connection.waiting.length > 0) return;
    connection.held?.release();
    connection.held = undefined;
    if (!connection.last) socket.resume();
  }

  #fullest(): { socket: Socket; connection: Connection } {
    let fullest: { socket: Socket; connection: Connection } | undefined;
    for (const [socket, connection] of this.#connections)
      if (!fullest || connection.waiting.length > fullest.connection.waiting.length)
        fullest = { socket, connection };
    return fullest!;
  }

  /** Closes the connections whose receivers have read too little. `now` is a time of `performance.now()`. */
  runOnce(now: number): void {
    for (const [socket, connection] of this.#connections) {
      const { rate } = connection;
      if (socket.writableLength === 0) {
        connection.since = 0;
        if (isTaken(connection.current)) connection.rate = PROGRESS;
        continue;
      }
      const taken = socket.bytesWritten - socket.writableLength;
      if (connection.since === 0 || taken - connection.taken >= rate.bytes) {
        connection.taken = taken;
        connection.since = now;
      } else if (now - connection.since >= rate.milliseconds) socket.destroy();
    }
  }
}

/** Returns whether a response has been sent completely or can no longer be sent. */
function isTaken(response: ServerResponse | undefined): boolean {
  return response === undefined || response.writableFinished || response.destroyed;
}

/**
 * Returns the bytes on the connection of a response that the receiver, or the kernel on its behalf, has
 * accepted.
 */
export function takenBy({ socket }: ServerResponse): number {
  return socket ? socket.bytesWritten - socket.writableLength : 0;
}

function weightOf({ headers }: IncomingMessage): number {
  const length = headers['content-length'];
  const isChunked = headers['transfer-encoding'] !== undefined;
  return WAITING_REQUEST + (isChunked ? WAITING_BODY : Math.min(Number(length ?? 0), WAITING_BODY));
}

/**
 * Makes a response the current one of its connection. The connection forgets it when it is closed, because an idle
 * connection would otherwise hold the body of its last request.
 */
function holdUntilClosed(connection: Connection, response: ServerResponse): void {
  connection.current = response;
  response.once('close', () => {
    if (connection.current === response) connection.current = undefined;
  });
}

function dropWaiting(connection: Connection): void {
  connection.waiting = [];
  connection.held?.release();
  connection.held = undefined;
}
