import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import type { ErrorName } from '../errors.ts';
import type { AboutRequest } from '../operations/operation.ts';
import type { Config } from '../platform/config.ts';
import type { Span } from '../platform/tracing.ts';
import type { Json } from '../profile/json.ts';
import type { Reading } from './reading.ts';

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
  request: IncomingMessage;
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
}

/** A request that an operation has in hand. */
export interface RequestInHand extends IncomingMessage {
  requestId?: string;
  /** Absent: nothing is traced. */
  span?: Span;
  /** Its answer, under Express's name. */
  res?: ServerResponse;
  /** Set when the rest of it cannot be read: what it was answered with. */
  broken?: ErrorName;
  /** Its body, if it has one. */
  arriving?: ArrivingBody;
}

/** A body on its way. */
export interface ArrivingBody {
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
