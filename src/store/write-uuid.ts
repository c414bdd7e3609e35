import { codeAt } from '../profile/values.ts';

/** UUIDs as elements of an array in Postgres's wire protocol: see `src/store/columns.ts`. */

/**
 * Value of each hexadecimal digit by its character code. Other characters have NO_DIGIT, which is larger than
 * a byte.
 */
const NO_DIGIT = 0x100;
const digits = new Uint16Array(0x10000).fill(NO_DIGIT);
for (let value = 0; value < 16; value++) {
  digits[value.toString(16).charCodeAt(0)] = value;
  digits[value.toString(16).toUpperCase().charCodeAt(0)] = value;
}

const HYPHEN = '-'.charCodeAt(0);
/** Bytes of the length before each element. */
const LENGTH_BYTES = 4;
const UUID_BYTES = 16;
const UUID_LENGTH = 36;
const LARGEST_BYTE = 0xff;

/** Returns the byte of two digits. Without two digits, the result is larger than a byte. */
function byteAt(uuid: string, index: number): number {
  return (digits[codeAt(uuid, index)]! << 4) | digits[codeAt(uuid, index + 1)]!;
}

/**
 * Writes a UUID after the four bytes of its length. Unrolled, because a loop takes nearly twice as long, and
 * two or three UUIDs are written per object.
 *
 * @throws {RangeError} for a value that is not a UUID in its usual form
 */
export function writeUuid(into: Buffer, at: number, uuid: string): void {
  const bytes = at + LENGTH_BYTES;
  let all = 0;
  all |= into[bytes] = byteAt(uuid, 0);
  all |= into[bytes + 1] = byteAt(uuid, 2);
  all |= into[bytes + 2] = byteAt(uuid, 4);
  all |= into[bytes + 3] = byteAt(uuid, 6);
  all |= into[bytes + 4] = byteAt(uuid, 9);
  all |= into[bytes + 5] = byteAt(uuid, 11);
  all |= into[bytes + 6] = byteAt(uuid, 14);
  all |= into[bytes + 7] = byteAt(uuid, 16);
  all |= into[bytes + 8] = byteAt(uuid, 19);
  all |= into[bytes + 9] = byteAt(uuid, 21);
  all |= into[bytes + 10] = byteAt(uuid, 24);
  all |= into[bytes + 11] = byteAt(uuid, 26);
  all |= into[bytes + 12] = byteAt(uuid, 28);
  all |= into[bytes + 13] = byteAt(uuid, 30);
  all |= into[bytes + 14] = byteAt(uuid, 32);
  all |= into[bytes + 15] = byteAt(uuid, 34);
  into[at] = into[at + 1] = into[at + 2] = 0;
  into[at + 3] = UUID_BYTES;
  if (all > LARGEST_BYTE || uuid.length !== UUID_LENGTH || !hasHyphens(uuid))
    throw new RangeError(`${uuid} is not a UUID`);
}

function hasHyphens(uuid: string): boolean {
  return (
    codeAt(uuid, 8) === HYPHEN &&
    codeAt(uuid, 13) === HYPHEN &&
    codeAt(uuid, 18) === HYPHEN &&
    codeAt(uuid, 23) === HYPHEN
  );
}
