import { crc32 } from 'node:zlib';
import type { WireEnvelope } from './wire.ts';

/**
 * The checksum of a job in Redis. Redis has checksums for its snapshots only: a flipped bit in a command of the
 * append-only file would be served. Earlier releases ignore the member. Postgres has checksums of its own
 * (`data_checksums`).
 */
const MEMBER = ',"checksum":';

/** Replaces an envelope whose text has changed since it was added. */
interface DamagedEnvelope {
  /** The changed text. */
  damaged: string;
}

/** Adds the checksum to the JSON text of an envelope, as its last member. */
export function seal(text: string): string {
  return `${text.slice(0, -1)}${MEMBER}${crc32(text)}}`;
}

/** Parses the text of a job. Jobs of earlier releases, and jobs added by hand, have no checksum. */
export function unseal(text: string): WireEnvelope | DamagedEnvelope {
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch {
    return damagedBy(text);
  }
  const at = text.lastIndexOf(MEMBER);
  if (at < 0) return data as WireEnvelope;
  return hasChecksum(data) ? check(data, `${text.slice(0, at)}}`, text) : (data as WireEnvelope);
}

/**
 * Checks a job that BullMQ has parsed. Writing it as JSON again gives the same text, because members keep their order.
 */
export function unsealParsed(data: WireEnvelope): WireEnvelope | DamagedEnvelope {
  if (!hasChecksum(data)) return data;
  const { checksum: _, ...rest } = data;
  const text = JSON.stringify(rest);
  return check(data, text, text);
}

interface Sealed {
  checksum?: number;
}

function hasChecksum(data: unknown): data is Sealed {
  return typeof (data as Sealed | null)?.checksum === 'number';
}

/** @param sealed the text that the checksum covers. @param text the text to keep if the checksum differs */
function check(data: Sealed, sealed: string, text: string): WireEnvelope | DamagedEnvelope {
  if (crc32(sealed) !== data.checksum) return damagedBy(text);
  delete data.checksum;
  return data as WireEnvelope;
}

/**
 * Wraps the text of a damaged envelope. Zero bytes, which a flipped bit may have made, are replaced, because Postgres
 * cannot store them in a text.
 */
export function damagedBy(text: string): DamagedEnvelope {
  return { damaged: text.replaceAll('\0', '\ufffd') };
}

/** Returns whether an envelope has changed since it was added. */
export function isDamaged(data: unknown): data is DamagedEnvelope {
  return typeof (data as DamagedEnvelope | null)?.damaged === 'string';
}
