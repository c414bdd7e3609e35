import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError } from '../errors.ts';
import { SMALL_BODY, type SmallBodies } from './reading.ts';
import type { ArrivingBody, BodyRules, RequestInHand } from './request.ts';

/** Bytes that are taken from a sender before anybody has asked for them: one read of a socket. */
const UNASKED = 65_536;

/** Bytes that a body of several chunks begins with. */
const FIRST_PIECE = 1024;

const NOTHING = Buffer.alloc(0);

/** Whether a request has a body, or says so. */
export function hasBody({ headers }: IncomingMessage): boolean {
  const length = headers['content-length'];
  return (length !== undefined && length !== '0') || headers['transfer-encoding'] !== undefined;
}

/**
 * Takes what comes of a body from the start, a little of it before anybody asks. Each chunk that Node would keep takes
 * hundreds of bytes, however small it is, and here they become one piece. Let go of with the answer.
 */
export function receive(
  request: RequestInHand,
  response: ServerResponse,
  smallBodies: SmallBodies,
): ArrivingBody {
  const counted = smallBodies.count(() => fail(shed()));
  let bytes: Buffer = NOTHING;
  let size = 0;
  let bound = UNASKED;
  let ended = false;
  let failure: unknown;
  let asked: { over(): void; resolve(body: Buffer): void; reject(error: unknown): void } | undefined;

  request.on('data', append);
  request.on('end', () => {
    // Every request closes some time, and an error costs a stack.
    ended = true;
    counted.complete();
    asked?.resolve(body());
  });
  request.on('error', incomplete);
  request.on('close', incomplete);
  response.once('close', () => {
    counted.release();
    if (!ended) drop();
  });
  if (request.destroyed) incomplete();

  function append(chunk: Buffer): void {
    if (size === 0 && bytes.length === 0) {
      bytes = chunk;
      counted.grow(chunk.length);
    } else {
      const needed = size + chunk.length;
      // No more than it may have: while it grows, the piece before is there as well.
      if (needed > bytes.length) enlarge(Math.max(needed, Math.min(2 * bytes.length, bound), FIRST_PIECE));
      // It may just have been shed.
      if (failure === undefined) chunk.copy(bytes, size);
    }
    size += chunk.length;
    if (size <= bound || failure !== undefined) return;
    if (asked) asked.over();
    else pause();
  }

  function enlarge(to: number): void {
    counted.grow(to - bytes.length);
    if (failure !== undefined) return;
    const larger = Buffer.allocUnsafeSlow(to);
    bytes.copy(larger, 0, 0, size);
    bytes = larger;
  }

  const body = () => (size === bytes.length ? bytes : bytes.subarray(0, size));

  /** The socket as well: Node would go on to read from it, and keep the chunks. */
  function pause(): void {
    request.pause();
    request.socket.pause();
  }

  function resume(): void {
    request.socket.resume();
    request.resume();
  }

  /** The rest did not come in time, or its sender is gone. */
  function incomplete(): void {
    if (!ended) fail(new ApiError(request.broken ?? 'bodyTooSlow'));
  }

  function fail(error: unknown): void {
    if (failure !== undefined) return;
    failure = error;
    counted.release();
    drop();
    asked?.reject(error);
  }

  /** The rest is read and thrown away, so that the connection goes on. */
  function drop(): void {
    bytes = NOTHING;
    size = 0;
    request.off('data', append);
    if (!request.destroyed) resume();
  }

  async function read({ limit, reading }: BodyRules, room: number, length: number): Promise<Buffer> {
    if (failure !== undefined) throw failure;
    const mayBeLarge = () => {
      counted.release();
      bound = limit;
    };
    bound = Math.min(limit, SMALL_BODY);
    if (reading.holds(request)) {
      mayBeLarge();
      // One piece from the start: chunks that are joined at the end would take as much once more.
      if (length > bytes.length) enlarge(length);
    }
    return new Promise((resolve, reject) => {
      asked = {
        resolve,
        reject,
        over() {
          if (size > limit) return fail(new ApiError('bodyTooLarge'));
          pause();
          reading.take(request, room).then(() => {
            mayBeLarge();
            resume();
          }, fail);
        },
      };
      if (size > bound) asked.over();
      else if (ended) resolve(body());
      else resume();
    });
  }

  function grow(by: number): void {
    counted.grow(by);
    if (failure !== undefined) throw failure;
  }

  return { know: counted.know, read, grow };
}

function shed(): ApiError {
  return new ApiError('unavailable', undefined, { 'Retry-After': '1', Connection: 'close' });
}
