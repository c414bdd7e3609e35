import { createHash } from 'node:crypto';
import { ApiError } from '../errors.ts';
import type { Operation } from '../operations/operation.ts';
import type { Json } from '../profile/json.ts';
import type { Key } from '../store/idempotency/key.ts';
import { canonicalPieces } from './canonical-json.ts';

/** A key as the specification of structured headers writes a string. */
const QUOTED = /^"((?:[^"\\]|\\["\\])*)"$/;
const VISIBLE = /^[!-~]{1,255}$/;

/** What the key of a request has to mean one request of. */
export interface Asked {
  /** The workspace, or the company of a SCIM token. */
  ownerId: string;
  operation: Operation;
  params: Record<string, string>;
  query: Record<string, Json>;
  body: Record<string, Json>;
}

/**
 * What a request's `Idempotency-Key` means; undefined: it has none, or its method needs none. Bodies are the same
 * when they say the same: space and the order of members make no difference, since clients make the text anew.
 *
 * @param header as it was sent, quoted or not
 * @throws {ApiError} 400 when it can be no key
 */
export function readIdempotencyKey(
  header: string | string[] | undefined,
  { ownerId, operation, params, query, body }: Asked,
): Key | undefined {
  if (header === undefined || operation.method !== 'POST') return undefined;
  const sent = String(header).trim();
  const key = QUOTED.exec(sent)?.[1]?.replace(/\\(["\\])/g, '$1') ?? sent;
  if (!VISIBLE.test(key)) throw new ApiError('invalidIdempotencyKey');
  const fingerprint = createHash('sha256');
  for (const piece of canonicalPieces([params, query, body])) fingerprint.update(piece);
  return {
    ownerId,
    operation: operation.id,
    hash: createHash('sha256').update(key).digest(),
    fingerprint: fingerprint.digest(),
  };
}
