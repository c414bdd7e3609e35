import { IncomingMessage, type ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import { ApiError, type ErrorName } from '../errors.ts';
import type { AboutRequest } from '../operations/operation.ts';
import type { Config } from '../platform/config.ts';
import type { Span } from '../platform/tracing.ts';
import type { Json } from '../profile/json.ts';
import { type Reading, SMALL_BODY, type SmallBodies } from './reading.ts';

/** The end of a name that stands for a list: `external_id[]`, `external_id[7]`. */
const LIST = /\[\d*\]$/;

/**
 * A query string as an object. What is named twice, or as a list, becomes an array in the order of the text; there is
 * nothing deeper. Express's own parser makes an object of a list of more than 20.
 *
 * @param text without the question mark; null: there is none
 */
export function parseQuery(text: string | null): Record<string, string | string[]> {
  const lists = new Map<string, string[]>();
  const named = new Set<string>();
  for (const [sent, value] of new URLSearchParams(text ?? '')) {
    const name = sent.replace(LIST, '');
    if (name !== sent) named.add(name);
    const list = lists.get(name);
    if (list) list.push(value);
    else lists.set(name, [value]);
  }
  return Object.fromEntries(
    [...lists].map(([name, list]) => [name, list.length > 1 || named.has(name) ? list : list[0]!]),
  );
}

/** A host and a port; anything else in the header is no place to send a client to. */
const HOST = /^[\w.:[\]-]{1,255}$/;

/**
 * Where the request was sent, and what it makes its effect depend on. The world's address is PUBLIC_URL; without
 * one it is the host that was asked, and the scheme is the word of a trusted proxy, since TLS ends there.
 */
export function aboutRequest(
  { headers }: IncomingMessage,
  { PUBLIC_URL: publicUrl, TRUST_PROXY_HOPS: hops }: Pick<Config, 'PUBLIC_URL' | 'TRUST_PROXY_HOPS'>,
): AboutRequest {
  const forwarded = hops > 0 ? String(headers['x-forwarded-proto'] ?? '') : '';
  const scheme = forwarded.split(',').at(-hops)?.trim() === 'https' ? 'https' : 'http';
  const { host = '', 'if-match': ifMatch, 'if-none-match': ifNoneMatch } = headers;
  return {
    baseUrl: publicUrl ? publicUrl.replace(/\/+$/, '') : HOST.test(host) ? `${scheme}://${host}` : '',
    ...(ifMatch !== undefined && { ifMatch }),
    ...(ifNoneMatch !== undefined && { ifNoneMatch }),
  };
}

/** Some proxies write the port of whom they saw as well: `192.0.2.1:443`, `[2001:db8::1]:443`. */
const WITH_PORT = /^(?:\[([0-9a-f:.]+)\]|(\d+\.\d+\.\d+\.\d+))(?::\d+)?$/i;

/**
 * Where a request comes from: the socket's address, or, behind `hops` trusted proxies, the entry that the
 * outermost of them wrote into X-Forwarded-For. Entries further left are the client's own claim.
 *
 * @returns nothing where it cannot be known: fewer entries than proxies, or one that is no address
 */
export function clientAddress(request: IncomingMessage, hops: number): string | undefined {
  if (hops === 0) return request.socket.remoteAddress;
  const header = request.headers['x-forwarded-for'];
  const entries = (Array.isArray(header) ? header.join(',') : (header ?? '')).split(',');
  const entry = entries.at(-hops)?.trim() ?? '';
  const [, v6, v4] = WITH_PORT.exec(entry) ?? [];
  const address = v6 ?? v4 ?? entry;
  return isIP(address) > 0 ? address : undefined;
}

/** A request that has found its operation. */
export interface Exchange {
  request: RequestInHand;
  response: ServerResponse;
  /** Path parameters. */
  params: Record<string, string>;
  /** Parsed query string. */
  query: Record<string, Json>;
}

/** How much of a body is read, and when. */
export interface BodyRules {
  /** Bytes, of the body as sent and as unpacked. */
  limit: number;
  /** Lets large bodies in; small ones pass it by. */
  reading: Reading;
  /** What its objects are is judged one by one: one that must not be parsed does not cost the others. */
  byObject?: boolean;
  /** The error that a larger body ends with. */
  tooLarge?: ErrorName | undefined;
}

/**
 * A request as our server makes it: Node's own, with what is known of it on the way. Who only has the connection, as where
 * a request breaks off, finds it there as well.
 */
export class RequestInHand extends IncomingMessage {
  /** Once an operation has it in hand. */
  requestId?: string;
  /** Absent: nothing is traced. */
  span?: Span;
  /** Its answer, under Express's name. */
  res?: ServerResponse | undefined;
  /** Set when the rest of it cannot be read: what it was answered with. */
  broken?: ErrorName;
  /** Its body, if it has one. */
  arriving?: ArrivingBody;
}

/** A body on its way. */
interface ArrivingBody {
  /** Its sender has a key. */
  know(): void;
  /**
   * All of it.
   *
   * @param room bytes that it takes when it turns out to be large; no more is read until there is that much
   * @param length bytes, where they are known
   * @throws {ApiError} 408 incomplete, 413 over the limit, 503 no room for it
   */
  read(rules: BodyRules, room: number, length: number): Promise<Buffer>;
  /**
   * It takes so many bytes more than have come, or fewer.
   * @throws {ApiError} 503 no room for them
   */
  grow(bytes: number): void;
}

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

  async function read(rules: BodyRules, room: number, length: number): Promise<Buffer> {
    const { limit, reading } = rules;
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
          if (size > limit) return fail(tooLarge(rules));
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
  return new ApiError('tooManyBodyBytes', { headers: { 'Retry-After': '1', Connection: 'close' } });
}

/** @param length bytes of the body, if they are known */
export function tooLarge({ limit, tooLarge: entry = 'bodyTooLarge' }: BodyRules, length?: number): ApiError {
  const found = length === undefined ? `more than ${limit}` : String(length);
  return new ApiError(entry, { fact: `The body has ${found} bytes; the limit is ${limit} bytes.` });
}
