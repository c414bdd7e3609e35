import type { ServerResponse } from 'node:http';
import { ApiError } from '../errors.ts';
import { ByteBudget, type Reservation } from '../platform/byte-budget.ts';
import { ResponseOrder } from '../platform/response-order.ts';
import type { Json } from '../profile/json.ts';
import { createSlices } from './body.ts';

/** Minimum bytes of a response that is written in pieces, and bytes of one piece. */
const PIECE = 65_536;
const MEGABYTE = 1_048_576;

/**
 * Bounds the memory of responses that clients do not read. Connections have an order and a minimum progress, and unsent
 * bytes of all responses are counted, by workspace: above the limit new work is refused with 503.
 */
export class Responses {
  /** Order and progress of the connections. */
  readonly order = new ResponseOrder();
  /** Owners whose last large response had no room, with the bytes held then: their own and all. */
  readonly #refused = new Map<string, { own: number; all: number }>();
  readonly #large: ByteBudget;
  readonly #small: ByteBudget;
  readonly #discard: (bytes: number) => void;

  /**
   * @param maxBytes bytes of unsent responses over 64 KiB; smaller responses may take another quarter of it
   * @param discard counts bytes that have become garbage
   */
  constructor(maxBytes: number, discard: (bytes: number) => void = () => {}) {
    this.#discard = discard;
    this.#large = new ByteBudget({ maxBytes, maxPerOwner: maxBytes / 2, maxAnonymous: maxBytes / 8 });
    const maxSmall = maxBytes / 4;
    this.#small = new ByteBudget({
      maxBytes: maxSmall,
      maxPerOwner: maxSmall / 2,
      maxAnonymous: maxSmall / 4,
    });
  }

  /** Unsent bytes of large responses. */
  readonly held = (): number => this.#large.held;

  /**
   * @param owner id of the workspace or company; absent for a caller without a key
   * @throws {ApiError} 503 if responses that have not been read hold too much memory
   */
  requireRoom(owner?: string): void {
    if (!this.#small.hasRoom(0, owner)) throw busy();
  }

  /**
   * Call this before the work for a large response.
   * @throws {ApiError} 503 if large responses hold too much memory, or at least as much as when the last one had no
   * room
   */
  requireLargeRoom(owner: string): void {
    const refused = this.#refused.get(owner);
    if (refused && this.#large.heldBy(owner) >= refused.own && this.#large.held >= refused.all) throw busy();
    this.#refused.delete(owner);
    if (!this.#large.hasRoom(PIECE, owner)) throw busy();
  }

  /**
   * Serializes the answer of an operation that only reads.
   * @param body the body, or the parts of its text
   * @returns the text, or its pieces if it is large
   * @throws {ApiError} 503 if a large answer has no room
   */
  async encode(
    body: Json | AsyncIterable<string>,
    { owner, isLarge }: { owner: string; isLarge: boolean },
  ): Promise<string | Pieces> {
    const isText = isAsyncIterable(body);
    if (!isLarge && !isText) {
      const text = JSON.stringify(body);
      if (text.length < PIECE) return text;
    }
    const { pieces, bytes } = await encodePieces(isText ? body : partsOf(body), this.#discard);
    if (bytes < PIECE) return Buffer.concat(pieces).toString();
    const reservation = this.#large.reserve(bytes, owner);
    if (!reservation) {
      this.#refused.set(owner, { own: this.#large.heldBy(owner), all: this.#large.held });
      throw busy();
    }
    return { bytes, pieces, reservation };
  }

  /** Sends a response that has its headers, and counts the bytes that its receiver does not read at once. */
  end(response: ServerResponse, body: string | Buffer, owner?: string): void {
    response.end(body);
    const unsent = response.socket?.writableLength ?? 0;
    if (unsent > 0 && !response.destroyed) {
      const { release } = this.#small.count(unsent, owner);
      response.once('close', release);
    }
  }

  /**
   * Sends a page whose text was created for this response only. All its headers except the length must be set.
   * @throws {ApiError} 503 if there is no room for it
   */
  sendPage(response: ServerResponse, text: string, owner?: string): void {
    const body = Buffer.from(text);
    if (!this.#small.hasRoom(body.length, owner)) throw busy();
    response.setHeader('Content-Length', body.length);
    this.end(response, body, owner);
  }

  /**
   * Sends a large response piece by piece, as fast as its receiver reads. Each piece is released once it was read.
   */
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
}

/** The text of a large response, and its reserved memory. */
export interface Pieces {
  bytes: number;
  pieces: Buffer[];
  reservation: Reservation;
}

function busy(): ApiError {
  return new ApiError('tooManyUnreadResponses', { headers: { 'Retry-After': '1' } });
}

function isAsyncIterable(body: Json | AsyncIterable<string>): body is AsyncIterable<string> {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
}

/**
 * Encodes the JSON text of a large answer in pieces, and yields to other requests in between.
 *
 * @param discard called for each megabyte whose rows and objects are garbage now
 */
async function encodePieces(
  parts: Iterable<string> | AsyncIterable<string>,
  discard: (bytes: number) => void,
): Promise<{ pieces: Buffer[]; bytes: number }> {
  const yieldIfLong = createSlices();
  const pieces: Buffer[] = [];
  let bytes = 0;
  let discarded = 0;
  let text = '';
  const flush = () => {
    const piece = Buffer.from(text);
    for (let start = 0; start < piece.length; start += PIECE)
      pieces.push(piece.subarray(start, start + PIECE));
    bytes += piece.length;
    text = '';
  };
  for await (const part of parts) {
    text += part;
    if (text.length >= PIECE) {
      flush();
      if (bytes - discarded >= MEGABYTE) {
        discard(bytes - discarded);
        discarded = bytes;
      }
      await yieldIfLong();
    }
  }
  flush();
  return { pieces, bytes };
}

/** Generates the JSON text of a value. Arrays that are members of an object are generated element by element. */
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
      // The element is not needed again, and its text takes as much memory.
      member[index] = null;
    }
    yield ']';
  }
  yield separator === '{' ? '{}' : '}';
}
