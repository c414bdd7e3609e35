import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError } from '../errors.ts';
import type { Service } from '../platform/lifecycle.ts';
import type { Json } from '../profile/json.ts';
import { createSlices } from './body.ts';
import { ByteBudget, type Reservation } from './byte-budget.ts';

/** Bytes from which on a response is written in pieces, and of one piece. */
const PIECE = 65_536;

/** Bytes that a pipelined request takes while it waits, about: Node's request and response objects. */
const WAITING_REQUEST = 4096;

/** Bytes of a waiting request's body that Node has read, at most. */
const WAITING_BODY = 65_536;

/** Bytes of all pipelined requests that wait: 2,000 without a body. */
const MAX_WAITING_BYTES = 8_388_608;

/** Pipelined requests that begin in one turn of the event loop, those of all connections together. */
const BEGUN_IN_A_TURN = 16;

/** Milliseconds between two checks of the connections. */
const CHECK_INTERVAL = 1000;

/** A receiver has to take this much within this time, in bytes and milliseconds. */
export interface MinimumRate {
  bytes: number;
  within: number;
}

/** A connection is closed if its receiver takes nothing for 30 s. */
const PROGRESS: MinimumRate = { bytes: 1, within: 30_000 };

interface Connection {
  /** The response that is being made or sent. */
  current: ServerResponse | undefined;
  /** Pipelined requests behind it, oldest first. */
  waiting: (() => void)[];
  /** What the waiting requests hold. */
  held: Reservation | undefined;
  /** To be called once every response has been taken. */
  last: (() => void) | undefined;
  rate: MinimumRate;
  /** Bytes that the receiver had taken at the start of the present period, and when the period began. */
  taken: number;
  since: number;
}

export type Handler<Request extends IncomingMessage> = (request: Request, response: ServerResponse) => void;

/**
 * Bounds the memory of responses that clients do not read:
 *
 * - Requests of one connection are handled one after the other, each after the previous response was taken.
 * - Unsent bytes of all responses are counted, by workspace. Above the limit new work is refused with 503.
 * - A connection whose receiver takes nothing for 30 s is closed.
 */
export class Responses {
  readonly #connections = new Map<Socket, Connection>();
  /** Connections whose next request may begin. */
  readonly #ready: (() => void)[] = [];
  /** Owners that had no room for a large response, and what was held then. */
  readonly #refused = new Map<string, { own: number; all: number }>();
  readonly #large: ByteBudget;
  readonly #small: ByteBudget;
  readonly #waiting = new ByteBudget({
    mostBytes: MAX_WAITING_BYTES,
    mostOfOne: MAX_WAITING_BYTES,
    mostOfStrangers: MAX_WAITING_BYTES,
  });

  readonly #discard: (bytes: number) => void;

  /**
   * @param mostBytes bytes of unsent responses over 64 KiB; all others may take a quarter as much on top
   * @param discard notes bytes that were used and are garbage now
   */
  constructor(mostBytes: number, discard: (bytes: number) => void = () => {}) {
    this.#discard = discard;
    this.#large = new ByteBudget({ mostBytes, mostOfOne: mostBytes / 2, mostOfStrangers: mostBytes / 8 });
    const mostSmall = mostBytes / 4;
    this.#small = new ByteBudget({
      mostBytes: mostSmall,
      mostOfOne: mostSmall / 2,
      mostOfStrangers: mostSmall / 4,
    });
  }

  /** Unsent bytes of large responses. */
  readonly held = (): number => this.#large.held;

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
      // Others resume a socket as well, for example Node once a response has been taken.
      socket.on('resume', () => {
        if (connection.waiting.length > 0) socket.pause();
      });
    });
    const timer = setInterval(() => this.runOnce(performance.now()), CHECK_INTERVAL).unref();
    return { name: 'responses', stop: async () => clearInterval(timer) };
  }

  /**
   * Wraps a handler so that a pipelined request begins after the response before it was taken. Meanwhile the connection is
   * not read. Requests of the chunk that has been read wait; past their limit the connection with most of them is closed.
   */
  inOrder<Request extends IncomingMessage>(handle: Handler<Request>): Handler<Request> {
    return (request, response) => {
      const connection = this.#connections.get(request.socket);
      if (!connection || (connection.waiting.length === 0 && isTaken(connection.current))) {
        if (connection) connection.current = response;
        return handle(request, response);
      }
      const { socket } = request;
      socket.pause();
      const begin = () => {
        connection.current = response;
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
   * Calls back once every complete request of a connection has been answered; at once if it has been already. The
   * connection is not read meanwhile.
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

  /** Sets how much the receiver of a response has to take in which time. */
  requireRate({ socket }: ServerResponse, rate: MinimumRate): void {
    const connection = socket && this.#connections.get(socket);
    if (!connection) return;
    Object.assign(connection, { rate, since: 0 });
  }

  /**
   * @param owner id of the workspace or company; absent for a caller without a key
   * @throws {ApiError} 503 if responses that have not been read hold too much memory
   */
  requireRoom(owner?: string): void {
    if (!this.#small.hasRoom(0, owner)) throw busy();
  }

  /**
   * To be called before the work for a large response.
   * @throws {ApiError} 503 if large responses hold too much memory, or no less than when there was no room for the last one
   */
  requireLargeRoom(owner: string): void {
    const refused = this.#refused.get(owner);
    if (refused && this.#large.heldBy(owner) >= refused.own && this.#large.held >= refused.all) throw busy();
    this.#refused.delete(owner);
    if (!this.#large.hasRoom(PIECE, owner)) throw busy();
  }

  /**
   * Makes the JSON text of an answer that only reads.
   * @returns the text, or its pieces if it is large
   * @throws {ApiError} 503 if there is no room for a large one
   */
  async encode(
    body: Json,
    { owner, isLarge }: { owner: string; isLarge: boolean },
  ): Promise<string | Pieces> {
    if (!isLarge) {
      const text = JSON.stringify(body);
      if (text.length < PIECE) return text;
    }
    const { pieces, bytes } = await encodePieces(body);
    // The rows and objects that it was made of took several times as much.
    setImmediate(this.#discard, bytes);
    if (bytes < PIECE) return Buffer.concat(pieces).toString();
    const reservation = this.#large.reserve(bytes, owner);
    if (!reservation) {
      this.#refused.set(owner, { own: this.#large.heldBy(owner), all: this.#large.held });
      throw busy();
    }
    return { bytes, pieces, reservation };
  }

  /** Sends a response that has its headers, and counts what its receiver does not take at once. */
  end(response: ServerResponse, body: string | Buffer, owner?: string): void {
    response.end(body);
    const unsent = response.socket?.writableLength ?? 0;
    if (unsent > 0 && !response.destroyed) {
      const { release } = this.#small.count(unsent, owner);
      response.once('close', release);
    }
  }

  /**
   * Sends a page whose text is made for this response alone, and has all its headers but the length.
   * @throws {ApiError} 503 if there is no room for it
   */
  sendPage(response: ServerResponse, text: string, owner?: string): void {
    const body = Buffer.from(text);
    if (!this.#small.hasRoom(body.length, owner)) throw busy();
    response.setHeader('Content-Length', body.length);
    this.end(response, body, owner);
  }

  /** Sends a large response piece by piece, as fast as its receiver takes it; each piece is released once it was taken. */
  sendPieces(response: ServerResponse, { pieces, reservation }: Pieces): void {
    const drop = () => {
      reservation.release();
      pieces.length = 0;
    };
    if (response.destroyed) {
      drop();
      return;
    }
    response.once('close', drop);
    pieces.reverse();
    const writeOn = () => {
      for (let piece = pieces.pop(); piece !== undefined; piece = pieces.pop()) {
        const { length } = piece;
        if (response.write(piece)) reservation.grow(-length);
        else {
          response.once('drain', () => {
            reservation.grow(-length);
            writeOn();
          });
          return;
        }
      }
      response.end();
    };
    writeOn();
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
    for (const begin of this.#ready.splice(0, BEGUN_IN_A_TURN)) begin();
    // Other connections have their turn in between.
    if (this.#ready.length > 0) setImmediate(this.#beginReady);
  };

  #beginNext(socket: Socket, connection: Connection): void {
    // After a response that closes the connection no other can be sent.
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

  /** Closes the connections whose receivers have not taken enough, at a time of `performance.now()`. */
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
      } else if (now - connection.since >= rate.within) socket.destroy();
    }
  }
}

/** The text of a large response, and the room that it has. */
export interface Pieces {
  bytes: number;
  pieces: Buffer[];
  reservation: Reservation;
}

/** Whether nothing of a response is left to be sent. */
function isTaken(response: ServerResponse | undefined): boolean {
  return response === undefined || response.writableFinished || response.destroyed;
}

/** Bytes of the connection of a response that the receiver, or the kernel for it, has taken. */
export function takenBy({ socket }: ServerResponse): number {
  return socket ? socket.bytesWritten - socket.writableLength : 0;
}

function weightOf({ headers }: IncomingMessage): number {
  const length = headers['content-length'];
  const isChunked = headers['transfer-encoding'] !== undefined;
  return WAITING_REQUEST + (isChunked ? WAITING_BODY : Math.min(Number(length ?? 0), WAITING_BODY));
}

function dropWaiting(connection: Connection): void {
  connection.waiting = [];
  connection.held?.release();
  connection.held = undefined;
}

function busy(): ApiError {
  return new ApiError('unavailable', undefined, { 'Retry-After': '1' });
}

/** Makes the JSON text of a large answer, in pieces, element by element; others get their turn in between. */
async function encodePieces(body: Json): Promise<{ pieces: Buffer[]; bytes: number }> {
  const yieldIfLong = createSlices();
  const pieces: Buffer[] = [];
  let bytes = 0;
  let text = '';
  const flush = () => {
    const piece = Buffer.from(text);
    for (let start = 0; start < piece.length; start += PIECE)
      pieces.push(piece.subarray(start, start + PIECE));
    bytes += piece.length;
    text = '';
  };
  for (const part of partsOf(body)) {
    text += part;
    if (text.length >= PIECE) {
      flush();
      await yieldIfLong();
    }
  }
  flush();
  return { pieces, bytes };
}

/** The JSON text of a value; of an object with arrays, element by element. */
function* partsOf(body: Json): Generator<string> {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    yield JSON.stringify(body);
    return;
  }
  let separator = '{';
  for (const [name, member] of Object.entries(body)) {
    if (member === undefined) continue;
    yield `${separator}${JSON.stringify(name)}:`;
    separator = ',';
    if (!Array.isArray(member) || member.length === 0) {
      yield JSON.stringify(member);
      continue;
    }
    for (let index = 0; index < member.length; index++) {
      yield `${index === 0 ? '[' : ','}${JSON.stringify(member[index]) ?? 'null'}`;
      // Nobody reads it again, and its text takes as much.
      member[index] = null;
    }
    yield ']';
  }
  yield separator === '{' ? '{}' : '}';
}
