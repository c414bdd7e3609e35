import { crc32 } from 'node:zlib';
import { newId } from '../platform/ids.ts';

/** Where the version of a UUID stands in its text, and where its last four digits begin. */
const VERSION = 14;
const TAG = 32;

/** Of an envelope that holds objects of several workspaces. */
export const SHARED = '0000';

/**
 * An id for an envelope that tells whose it is: a UUIDv8 (RFC 9562, 5.8). It begins as `newId` does, so that ids of one
 * process are in the order in which they were made. It ends with a tag of the workspace. So a worker sees from the ids
 * of a lane alone what may overtake what (workers/lane/overtaking.ts). 40 random bits tell processes apart.
 *
 * @param workspaceIds of all of its requests
 */
export function envelopeId(workspaceIds: Iterable<string>): string {
  const [owner, ...others] = new Set(workspaceIds);
  const tag = owner === undefined || others.length > 0 ? SHARED : tagOf(owner);
  const id = newId();
  return `${id.slice(0, VERSION)}8${id.slice(VERSION + 1, TAG)}${tag}`;
}

/** Four hexadecimal digits, never those of `SHARED`. Two workspaces may have the same, and then wait for each other. */
export function tagOf(workspaceId: string): string {
  return ((crc32(workspaceId) % 65_535) + 1).toString(16).padStart(4, '0');
}

/** The tag of an envelope's id; undefined where the id tells nothing: that of a fence, a replay or an earlier release. */
export function tagIn(id: string): string | undefined {
  return id.length === TAG + 4 && id[VERSION] === '8' ? id.slice(TAG) : undefined;
}
