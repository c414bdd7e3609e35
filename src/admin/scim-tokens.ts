import { randomBytes } from 'node:crypto';
import { type ApiKeySecret, hashApiKey } from './api-keys.ts';

/** Characters of a token that are kept to tell tokens apart, its prefix among them; of a short one, half. */
const IDENTIFIER = 11;

/** Makes a new random token, `scim_` and 32 random bytes in base64url; it opens nothing until its hash is stored. */
export function newScimToken(): ApiKeySecret {
  return describeScimToken(`scim_${randomBytes(32).toString('base64url')}`);
}

/** The stored forms of a token that someone else chose: `BOOTSTRAP_SCIM_TOKEN`. */
export function describeScimToken(secret: string): ApiKeySecret {
  return {
    secret,
    identifier: secret.slice(0, Math.min(IDENTIFIER, Math.floor(secret.length / 2))),
    hash: hashApiKey(secret),
  };
}
