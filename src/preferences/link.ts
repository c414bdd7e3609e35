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

/** Another form of the content would have another number. */
const VERSION = 1;

const CONTENT = 1 + 3 * 16 + 2 * 6;
const SIGNATURE = 32;

/** Base64url of 93 bytes has no spare bits: each token has one spelling. */
const TOKEN = /^[A-Za-z0-9_-]{124}$/;

/** The last part of a link's path, signed with the workspace's key. */
export function signLink(link: Link, secret: Uint8Array): string {
  const content = Buffer.alloc(CONTENT);
  content[0] = VERSION;
  for (const [index, id] of [link.workspaceId, link.centerId, link.profileId].entries()) {
    content.set(parse(id), 1 + 16 * index);
  }
  content.writeUIntBE(link.madeAt, 49, 6);
  content.writeUIntBE(link.expiresAt, 55, 6);
  return Buffer.concat([content, signatureOf(content, secret)]).toString('base64url');
}

/** What a token says, before anyone knows whether it is true; undefined when it says nothing. */
export function readLink(token: string): Link | undefined {
  if (!TOKEN.test(token)) return undefined;
  const bytes = Buffer.from(token, 'base64url');
  if (bytes[0] !== VERSION) return undefined;
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

/** Whether a token that can be read was signed with this key. */
export function isSigned(token: string, secret: Uint8Array): boolean {
  const bytes = Buffer.from(token, 'base64url');
  return timingSafeEqual(bytes.subarray(CONTENT), signatureOf(bytes.subarray(0, CONTENT), secret));
}

/** Without the check of `uuid`'s own, which refuses versions that there are not: any sixteen bytes may come here. */
function hex(bytes: Uint8Array): string {
  const text = Buffer.from(bytes).toString('hex');
  return text.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

function signatureOf(content: Uint8Array, secret: Uint8Array): Buffer {
  return createHmac('sha256', secret).update(content).digest().subarray(0, SIGNATURE);
}
