import { createHmac, timingSafeEqual } from 'node:crypto';
import { parse } from 'uuid';

/** What a link says: whose page it opens, and how long. All ids are random or serial numbers, none is a person's. */
export interface Link {
  workspaceId: string;
  centerId: string;
  profileId: string;
  /** Epoch milliseconds. */
  madeAt: number;
  /** Epoch milliseconds. */
  expiresAt: number;
}

/** Bytes of HMAC-SHA-256. */
const SIGNATURE = 32;

/**
 * Tokens that are signed with a workspace's key, with a content of one length.
 *
 * @param bytes of the content; with the signature a multiple of three, so that no bit is spare and each token has one
 * spelling
 * @param kind one key signs several kinds of tokens: no signature of one kind is one of another
 */
export function signedTokens({ bytes, kind = '' }: { bytes: number; kind?: string }) {
  const form = new RegExp(`^[A-Za-z0-9_-]{${((bytes + SIGNATURE) / 3) * 4}}$`);
  const signatureOf = (content: Uint8Array, secret: Uint8Array) =>
    createHmac('sha256', secret).update(kind).update(content).digest();

  return {
    sign: (content: Uint8Array, secret: Uint8Array): string =>
      Buffer.concat([content, signatureOf(content, secret)]).toString('base64url'),

    /** What a token says, before anyone knows whether it is true; undefined when it is none. */
    read: (token: string): Buffer | undefined =>
      form.test(token) ? Buffer.from(token, 'base64url').subarray(0, bytes) : undefined,

    /** Whether a token that can be read was signed with this key; it takes as long for one that is nearly right. */
    isSigned(token: string, secret: Uint8Array): boolean {
      const whole = Buffer.from(token, 'base64url');
      return timingSafeEqual(whole.subarray(bytes), signatureOf(whole.subarray(0, bytes), secret));
    },
  };
}

/** Another form of the content would have another number. */
const VERSION = 1;

const CONTENT = 1 + 3 * 16 + 2 * 6;
const tokens = signedTokens({ bytes: CONTENT });

/** The last part of a link's path, signed with the workspace's key. */
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

/** What a token says, before anyone knows whether it is true; undefined when it says nothing. */
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

/** Without the check of `uuid`'s own, which refuses versions that there are not: any sixteen bytes may come here. */
function hex(bytes: Uint8Array): string {
  const text = Buffer.from(bytes).toString('hex');
  return text.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
