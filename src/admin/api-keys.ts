import { createHash, randomBytes } from 'node:crypto';

export interface ApiKeySecret {
  /** What the client sends: `pk_` and 32 random bytes in base64url. Shown once, stored nowhere. */
  secret: string;
  /** The first 8 characters of the secret, by which a person can tell keys apart. */
  identifier: string;
  /** `hashApiKey(secret)`, the only form that is stored. */
  hash: Buffer;
}

/** Makes a new random key; it opens nothing until its hash is stored. */
export function newApiKey(): ApiKeySecret {
  return describeApiKey(`pk_${randomBytes(32).toString('base64url')}`);
}

/** The stored forms of a key that someone else chose, for instance `BOOTSTRAP_API_KEY`. */
export function describeApiKey(secret: string): ApiKeySecret {
  return { secret, identifier: secret.slice(0, 8), hash: hashApiKey(secret) };
}

/** The SHA-256 digest, 32 bytes: enough for a secret of 256 random bits, and quick to look up. */
export function hashApiKey(secret: string): Buffer {
  return createHash('sha256').update(secret, 'utf8').digest();
}
