import { createHash } from 'node:crypto';
import { ApiError } from '../errors.ts';
import type { Operation } from '../operations/operation.ts';
import type { Json } from '../profile/json.ts';
import type { Key } from '../store/idempotency/key.ts';
import { canonicalPieces } from './canonical-json.ts';

/** A key as the specification of structured headers writes a string. */
const QUOTED = /^"((?:[^"\\]|\\["\\])*)"$/;
/** A few milliseconds' work. */
const PIECES_IN_A_ROW = 4;
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
export async function readIdempotencyKey(
  header: string | string[] | undefined,
  { ownerId, operation, params, query, body }: Asked,
): Promise<Key | undefined> {
  if (header === undefined || operation.method !== 'POST') return undefined;
  const sent = String(header).trim();
  const key = QUOTED.exec(sent)?.[1]?.replace(/\\(["\\])/g, '$1') ?? sent;
  if (!VISIBLE.test(key)) throw new ApiError('invalidIdempotencyKey');
  const fingerprint = createHash('sha256');
  let pieces = 0;
  for (const piece of canonicalPieces([params, query, body])) {
    fingerprint.update(piece);
    // Others get their turn while a large body is read.
    if (++pieces % PIECES_IN_A_ROW === 0) await new Promise(setImmediate);
  }
  return {
    ownerId,
    operation: operation.id,
    hash: createHash('sha256').update(key).digest(),
    fingerprint: fingerprint.digest(),
  };
}
