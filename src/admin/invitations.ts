import { randomBytes } from 'node:crypto';
import { hashApiKey } from './api-keys.ts';

/** How long an invitation can be used, in ms: three days. */
const LIFETIME = 3 * 86_400_000;

export interface Invitation {
  /** 32 random bytes in base64url; part of the link, stored nowhere. */
  secret: string;
  hash: Uint8Array<ArrayBuffer>;
  expiresAt: Date;
}

export function newInvitation(now: Date): Invitation {
  const secret = randomBytes(32).toString('base64url');
  return {
    secret,
    hash: new Uint8Array(hashApiKey(secret)),
    expiresAt: new Date(now.getTime() + LIFETIME),
  };
}
