import { IncomingMessage, type ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import { ApiError, type ErrorName } from '../errors.ts';
import type { AboutRequest } from '../operations/operation.ts';
import type { ByteBudget } from '../platform/byte-budget.ts';
import type { Config } from '../platform/config.ts';
import type { Span } from '../platform/tracing.ts';
import type { Json } from '../profile/json.ts';
import { type Reading, SMALL_BODY } from './reading.ts';

/** Suffix of a parameter name that marks a list: `external_id[]`, `external_id[7]`. */
const LIST = /\[\d*\]$/;

/**
 * Parses a query string. A parameter that is repeated or named as a list becomes an array in the order of the text;
 * deeper structures are not supported. Express's own parser turns a list of more than 20 elements into an object.
 *
 * @param text without the question mark; null if there is no query string
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

/** A host with an optional port. Any other value of the header must not appear in links. */
const HOST = /^[\w.:[\]-]{1,255}$/;

/** Settings from which the base URL of a request follows. */
export type UrlSettings = Pick<Config, 'PUBLIC_URL' | 'TRUST_PROXY_HOPS'>;

/**
 * The base URL of the request, and its conditional headers. The base URL is PUBLIC_URL if it is set. Otherwise it
 * uses the requested host, and the scheme that a trusted proxy reports, because TLS ends at the proxy.
 */
export function aboutRequest(
  { headers }: IncomingMessage,
  { PUBLIC_URL: publicUrl, TRUST_PROXY_HOPS: hops }: UrlSettings,
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

/** Some proxies add the port of the client: `192.0.2.1:443`, `[2001:db8::1]:443`. */
const WITH_PORT = /^(?:\[([0-9a-f:.]+)\]|(\d+\.\d+\.\d+\.\d+))(?::\d+)?$/i;

/**
 * The address of the client: the address of the socket, or, with `hops` trusted proxies, the X-Forwarded-For entry
 * that the outermost of them wrote. Entries further left can be forged by the client.
 *
 * @returns undefined if there are fewer entries than proxies, or if the entry is not an address
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

/** A request with a matching operation. */
export interface Exchange {
  request: RequestInHand;
  response: ServerResponse;
  /** Path parameters. */
  params: Record<string, string>;
  /** Parsed query string. */
  query: Record<string, Json>;
}

/** Limits for reading a body. */
export interface BodyRules {
  /** Maximum bytes of the body, both as sent and as unpacked. */
  limit: number;
  /** Admits large bodies; small ones do not need it. */
  reading: Reading;
  /** Objects are validated individually: one that must not be parsed does not affect the others. */
  byObject?: boolean;
  /** The error for a larger body. */
  tooLarge?: ErrorName | undefined;
}

/**
 * A request with the data that Penstock keeps about it. Error handlers that only have the connection find this data
 * as well.
 */
export class RequestInHand extends IncomingMessage {
  /** Set when an operation begins to process it. */
  requestId?: string;
  /** Absent if the request is not traced. */
  span?: Span;
  /** Response of the request, under Express's name. */
  res?: ServerResponse | undefined;
  /** Set if the rest cannot be read: the error that it was answered with. */
  broken?: ErrorName;
  /** Body of the request; absent without a body. */
  arriving?: ArrivingBody;
}

/** A body that is arriving. */
interface ArrivingBody {
  /** Marks its sender as having a valid key. */
  know(): void;
  /**
   * Reads the whole body.
   *
   * @param room bytes to reserve if the body turns out to be large; reading waits until there is so much room
   * @param length of the body in bytes; 0 if unknown
   * @throws {ApiError} 408 incomplete, 413 over the limit, 503 no room for it
   */
  read(rules: BodyRules, room: number, length: number): Promise<Buffer>;
  /**
   * Counts additional bytes of memory, or fewer if negative.
   * @throws {ApiError} 503 no room for them
   */
  grow(bytes: number): void;
}

/** Bytes that are accepted before the body is requested: one read of a socket. */
const UNASKED = 65_536;

/** Initial bytes of the buffer for a body of several chunks. */
const FIRST_PIECE = 1024;

const NOTHING = Buffer.alloc(0);

/** Whether the headers of a request announce a body. */
export function hasBody({ headers }: IncomingMessage): boolean {
  const length = headers['content-length'];
  return (length !== undefined && length !== '0') || headers['transfer-encoding'] !== undefined;
}

/**
 * Receives a body from the start, a little of it before it is requested. Node needs hundreds of bytes per chunk,
 * however small the chunk, so the chunks are joined into one buffer. It is released with the answer.
 */
export function receive(
  request: RequestInHand,
  response: ServerResponse,
  smallBodies: ByteBudget,
): ArrivingBody {
  const counted = smallBodies.receive(() => fail(shed()));
  let bytes: Buffer = NOTHING;
  let size = 0;
  let bound = UNASKED;
  let ended = false;
  let failure: unknown;
  let reader: { over(): void; resolve(body: Buffer): void; reject(error: unknown): void } | undefined;

  request.on('data', append);
  request.on('end', () => {
    // Set first: every request emits `close` later, and creating an error costs a stack trace.
    ended = true;
    counted.complete();
    reader?.resolve(body());
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
      // Limited to what it may have, because the old buffer still exists while the new one is filled.
      if (needed > bytes.length) enlarge(Math.max(needed, Math.min(2 * bytes.length, bound), FIRST_PIECE));
      // The body may just have been dropped.
      if (failure === undefined) chunk.copy(bytes, size);
    }
    size += chunk.length;
    if (size <= bound || failure !== undefined) return;
    if (reader) reader.over();
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

  /** Pauses the socket too: Node would otherwise continue to read and keep the chunks. */
  function pause(): void {
    request.pause();
    request.socket.pause();
  }

  function resume(): void {
    request.socket.resume();
    request.resume();
  }

  /** The rest did not arrive in time, or the sender has disconnected. */
  function incomplete(): void {
    if (!ended) fail(new ApiError(request.broken ?? 'bodyTooSlow'));
  }

  function fail(error: unknown): void {
    if (failure !== undefined) return;
    failure = error;
    counted.release();
    drop();
    reader?.reject(error);
  }

  /** Reads and discards the rest, so that the connection can be used again. */
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
      // Allocate one buffer at once: joining chunks at the end would take the same amount again.
      if (length > bytes.length) enlarge(length);
    }
    return new Promise((resolve, reject) => {
      reader = {
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
      if (size > bound) reader.over();
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

/** @param length of the body in bytes, if it is known */
export function tooLarge(
  { limit, tooLarge: entry = 'bodyTooLarge' }: Pick<BodyRules, 'limit' | 'tooLarge'>,
  length?: number,
): ApiError {
  const shownLength = length === undefined ? `more than ${limit}` : String(length);
  return new ApiError(entry, { fact: `The body has ${shownLength} bytes; the limit is ${limit} bytes.` });
}
