import { createHmac, timingSafeEqual } from 'node:crypto';
import { parse, stringify } from 'uuid';

/** What a link to a download says: which export. When it opens and until when stands in the store. */
export interface DownloadLink {
  workspaceId: string;
  exportId: string;
}

/** Another form of the content would have another number. */
const VERSION = 1;

const CONTENT = 2 + 2 * 16;

/** Base64url of 66 bytes has no spare bits: each token has one spelling. */
const TOKEN = /^[A-Za-z0-9_-]{88}$/;

/** The key signs links to preference centers as well: no signature of one kind is one of the other. */
const KIND = 'segment-export ';

/** The last part of a link's path, signed with the workspace's key. */
export function signDownload({ workspaceId, exportId }: DownloadLink, secret: Uint8Array): string {
  const content = Buffer.alloc(CONTENT);
  content.writeUInt16BE(VERSION, 0);
  content.set(parse(workspaceId), 2);
  content.set(parse(exportId), 18);
  return Buffer.concat([content, signatureOf(content, secret)]).toString('base64url');
}

/** What a token says, before anyone knows whether it is true; undefined when it says nothing. */
export function readDownload(token: string): DownloadLink | undefined {
  if (!TOKEN.test(token)) return undefined;
  const bytes = Buffer.from(token, 'base64url');
  if (bytes.readUInt16BE(0) !== VERSION) return undefined;
  try {
    return { workspaceId: stringify(bytes, 2), exportId: stringify(bytes, 18) };
  } catch {
    // What is no UUID of any version names nothing.
    return undefined;
  }
}

/** Whether a token that can be read was signed with this key; it takes as long for one that is nearly right. */
export function isSignedDownload(token: string, secret: Uint8Array): boolean {
  const bytes = Buffer.from(token, 'base64url');
  return timingSafeEqual(bytes.subarray(CONTENT), signatureOf(bytes.subarray(0, CONTENT), secret));
}

function signatureOf(content: Uint8Array, secret: Uint8Array): Buffer {
  return createHmac('sha256', secret).update(KIND).update(content).digest();
}
