import { createHash } from 'node:crypto';
import { ApiError } from '../errors.ts';
import type { Operation } from '../operations/operation.ts';
import { canonicalPieces, type Json } from '../profile/json.ts';
import type { Key } from '../store/idempotency-keys.ts';

/** A string in the syntax of structured headers (RFC 8941). */
const QUOTED = /^"((?:[^"\\]|\\["\\])*)"$/;
/** Pieces hashed before other requests get a turn: a few milliseconds of work. */
const PIECES_IN_A_ROW = 4;
const VISIBLE = /^[!-~]{1,255}$/;

/** The parts of a request that must be equal in all requests with one key. */
interface KeyedRequest {
  /** The workspace, or the company of a SCIM token. */
  ownerId: string;
  operation: Operation;
  params: Record<string, string>;
  query: Record<string, Json>;
  body: Record<string, Json>;
}

/**
 * Reads the `Idempotency-Key` of a request; undefined if it has none or its method is not POST. Two bodies are equal
 * if their values are equal: whitespace and the order of members do not matter, because clients may serialize a body
 * again.
 *
 * @param header value as sent, quoted or not
 * @throws {ApiError} 400 if it is not a valid key
 */
export async function readIdempotencyKey(
  header: string | string[] | undefined,
  { ownerId, operation, params, query, body }: KeyedRequest,
): Promise<Key | undefined> {
  if (header === undefined || operation.method !== 'POST') return undefined;
  const sent = String(header).trim();
  const key = QUOTED.exec(sent)?.[1]?.replace(/\\(["\\])/g, '$1') ?? sent;
  if (!VISIBLE.test(key)) throw new ApiError('invalidIdempotencyKey');
  const fingerprint = createHash('sha256');
  let pieces = 0;
  for (const piece of canonicalPieces([params, query, body])) {
    fingerprint.update(piece);
    // Yield to other requests while a large body is hashed.
    if (++pieces % PIECES_IN_A_ROW === 0) await new Promise(setImmediate);
  }
  return {
    ownerId,
    operation: operation.id,
    hash: createHash('sha256').update(key).digest(),
    fingerprint: fingerprint.digest(),
  };
}
