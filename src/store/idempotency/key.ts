import type { Json } from '../../profile/json.ts';

/** What an Idempotency-Key means: one request of one operation of one owner. */
export interface Key {
  /** The workspace, or the company of a SCIM token. */
  ownerId: string;
  /** The operation's id. */
  operation: string;
  /** SHA-256 of the key. */
  hash: Buffer;
  /** SHA-256 of what was asked for. */
  fingerprint: Buffer;
}

/** An answer as it is kept. */
export interface KeptAnswer {
  status: number;
  body: Json | undefined;
  headers?: Record<string, string>;
}

/** What a request that is about to have an effect leaves behind first. */
export interface Beginning {
  /** The first request that came with the key. */
  requestId: string;
  /** Of a queued request: what the lanes may not have yet, and the answer once they have it. */
  staged?: { entries: unknown; answer: KeptAnswer };
}

/** What is known of a key. */
export interface FoundKey extends Beginning {
  fingerprint: Buffer;
  /** Absent: nobody has been told yet. */
  answer?: KeptAnswer;
  /** Somebody is at it. */
  leased: boolean;
}

/** How long a key is remembered. */
export const KEPT = "interval '24 hours'";

/** The primary key, as the first three parameters. */
export const isKey = `
  idempotency_keys.owner_id = $1::uuid
  and idempotency_keys.operation = $2::text
  and idempotency_keys.key_hash = $3::bytea`;

/** Whether the lanes, or the caller, still wait for something. */
export const isOpen = '(idempotency_keys.status is null or idempotency_keys.staged is not null)';

export const primaryKeyOf = ({ ownerId, operation, hash }: Key) => [ownerId, operation, hash];
