import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ErrorName } from '../errors.ts';
import type { Json } from '../profile/json.ts';
import type { Reading } from './reading.ts';

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
