import { createHmac, timingSafeEqual } from 'node:crypto';
import { parse } from 'uuid';

/**
 * The content of a link: the page, the user and the lifetime. The ids are random or serial, so a link contains no
 * personal data.
 */
export interface Link {
  workspaceId: string;
  centerId: string;
  profileId: string;
  /** Creation time in epoch milliseconds. */
  madeAt: number;
  /** Expiry time in epoch milliseconds. */
  expiresAt: number;
}

/** Length of an HMAC-SHA-256 in bytes. */
const SIGNATURE = 32;

/**
 * Creates functions for tokens that are signed with the key of a workspace. The content has a fixed length.
 *
 * @param bytes length of the content. Content and signature together must be a multiple of three bytes, so that no bit
 * is unused and each token has only one spelling
 * @param kind kind of token. One key signs several kinds, and a signature is valid for one kind only
 */
export function signedTokens({ bytes, kind = '' }: { bytes: number; kind?: string }) {
  const form = new RegExp(`^[A-Za-z0-9_-]{${((bytes + SIGNATURE) / 3) * 4}}$`);
  const signatureOf = (content: Uint8Array, secret: Uint8Array) =>
    createHmac('sha256', secret).update(kind).update(content).digest();

  return {
    sign: (content: Uint8Array, secret: Uint8Array): string =>
      Buffer.concat([content, signatureOf(content, secret)]).toString('base64url'),

    /** Decodes a token without verifying its signature. Returns undefined if the text is not a token. */
    read: (token: string): Buffer | undefined =>
      form.test(token) ? Buffer.from(token, 'base64url').subarray(0, bytes) : undefined,

    /** Returns whether a decoded token was signed with this key. The comparison takes constant time. */
    isSigned(token: string, secret: Uint8Array): boolean {
      const whole = Buffer.from(token, 'base64url');
      return timingSafeEqual(whole.subarray(bytes), signatureOf(whole.subarray(0, bytes), secret));
    },
  };
}

/** Version of the format of the content. Increase it when the format changes. */
const VERSION = 1;

const CONTENT = 1 + 3 * 16 + 2 * 6;
const tokens = signedTokens({ bytes: CONTENT });

/** Returns the last part of the link's path, signed with the key of the workspace. */
export function signLink(link: Link, secret: Uint8Array): string {
  const content = Buffer.alloc(CONTENT);
  content[0] = VERSION;
  for (const [index, id] of [link.workspaceId, link.centerId, link.profileId].entries()) {
    content.set(parse(id), 1 + 16 * index);
  }
  content.writeUIntBE(link.madeAt, 49, 6);
  content.writeUIntBE(link.expiresAt, 55, 6);
  return tokens.sign(content, secret);
}

/** Decodes a token without verifying its signature. Returns undefined if it is not a token of a link. */
export function readLink(token: string): Link | undefined {
  const bytes = tokens.read(token);
  if (bytes?.[0] !== VERSION) return undefined;
  const [workspaceId, centerId, profileId] = [0, 1, 2].map((index) => {
    return hex(bytes.subarray(1 + 16 * index, 17 + 16 * index));
  }) as [string, string, string];
  return {
    workspaceId,
    centerId,
    profileId,
    madeAt: bytes.readUIntBE(49, 6),
    expiresAt: bytes.readUIntBE(55, 6),
  };
}

export const isSigned = tokens.isSigned;

/**
 * Formats 16 bytes as a UUID. In contrast to the package `uuid`, it does not check the version, because the bytes may
 * be arbitrary.
 */
function hex(bytes: Uint8Array): string {
  const text = Buffer.from(bytes).toString('hex');
  return text.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
