import { JsonText } from '../profile/json.ts';

/**
 * Whole sets travel to Postgres as one array per column, in the format of its wire protocol (`array_recv`): it is made
 * in less time than the array's text is, and read in a fraction of it. `pg` sends a Buffer as it is.
 *
 * https://www.postgresql.org/docs/18/protocol-overview.html#PROTOCOL-FORMAT-CODES
 */

/** Object ids of the types, which are the same in every Postgres (`pg_type.dat`). */
const OID = { int4: 23, text: 25, timestamptz: 1184, uuid: 2950, jsonb: 3802 } as const;

/** Dimensions, a flag for nulls, type, length, and the index of the first element. */
const HEADER = 20;
/** A UUID with its length. */
const UUID_ELEMENT = 20;
const WORD = 4;
const NULL_LENGTH = -1;

function begin(oid: number, length: number, bytes: number): Buffer {
  const array = Buffer.allocUnsafe(HEADER + bytes);
  array.writeInt32BE(1, 0);
  // Only a hint: Postgres looks for itself.
  array.writeInt32BE(1, 4);
  array.writeInt32BE(oid, 8);
  array.writeInt32BE(length, 12);
  array.writeInt32BE(1, 16);
  return array;
}

/** `uuid[]`. @throws {RangeError} for what is none in its usual form */
export function uuidArray<Row>(rows: Row[], value: (row: Row) => string): Buffer {
  const array = begin(OID.uuid, rows.length, UUID_ELEMENT * rows.length);
  // A view has to begin at a multiple of its words: Node's pool of small buffers hands them out at multiples of eight.
  const words = new Int32Array(array.buffer, array.byteOffset, array.length / WORD);
  let at = HEADER;
  let last: string | undefined;
  for (const row of rows) {
    const uuid = value(row);
    // A batch often has one workspace, and a call of a native function for each row would cost more than the loop.
    if (uuid === last)
      for (let word = at / WORD; word < (at + UUID_ELEMENT) / WORD; word++)
        words[word] = words[word - UUID_ELEMENT / WORD]!;
    else writeUuid(array, at, uuid);
    last = uuid;
    at += UUID_ELEMENT;
  }
  return array;
}

/** `integer[]`, of 32 bits. @throws {RangeError} for what is none */
export function integerArray<Row>(rows: Row[], value: (row: Row) => number): Buffer {
  const array = begin(OID.int4, rows.length, 8 * rows.length);
  let at = HEADER;
  for (const row of rows) {
    const integer = value(row);
    if (integer !== (integer | 0)) throw new RangeError(`${integer} is no integer of 32 bits`);
    array.writeInt32BE(4, at);
    array.writeInt32BE(integer, at + 4);
    at += 8;
  }
  return array;
}

/** Milliseconds from 1970 to 2000, where Postgres begins to count. */
const POSTGRES_EPOCH = 946_684_800_000;

/** `timestamptz[]` of ISO 8601 times, to the millisecond. @throws {RangeError} for what is none */
export function timeArray<Row>(rows: Row[], value: (row: Row) => string): Buffer {
  const array = begin(OID.timestamptz, rows.length, 12 * rows.length);
  let at = HEADER;
  for (const row of rows) {
    const milliseconds = Date.parse(value(row)) - POSTGRES_EPOCH;
    if (Number.isNaN(milliseconds)) throw new RangeError(`${value(row)} is no time`);
    array.writeInt32BE(8, at);
    // Microseconds, which a number does not hold exactly beyond the year 2285.
    const microseconds = milliseconds * 1000;
    if (Number.isSafeInteger(microseconds)) writeMicroseconds(array, at + 4, microseconds);
    else array.writeBigInt64BE(BigInt(milliseconds) * 1000n, at + 4);
    at += 12;
  }
  return array;
}

/** Milliseconds with their digits, and what may stand behind them: microseconds, of which a Date knows nothing. */
const FINE = /^(.*\.\d{3})(\d{3})?Z$/;

/**
 * `timestamptz[]` of times that lie some microseconds behind `start`.
 * @param start ISO 8601 in UTC with milliseconds or microseconds, as the store tells its clock
 * @throws {RangeError} for what is none
 */
export function laterArray<Row>(start: string, rows: Row[], microseconds: (row: Row) => number): Buffer {
  const [, coarse, rest = 0] = FINE.exec(start) ?? [];
  const milliseconds = Date.parse(`${coarse}Z`) - POSTGRES_EPOCH;
  if (Number.isNaN(milliseconds)) throw new RangeError(`${start} is no time`);
  const first = milliseconds * 1000 + Number(rest);
  const array = begin(OID.timestamptz, rows.length, 12 * rows.length);
  let at = HEADER;
  for (const row of rows) {
    array.writeInt32BE(8, at);
    writeMicroseconds(array, at + 4, first + microseconds(row));
    at += 12;
  }
  return array;
}

/** @param microseconds exact, up to the year 2285 */
function writeMicroseconds(into: Buffer, at: number, microseconds: number): void {
  into.writeInt32BE(Math.floor(microseconds / 2 ** 32), at);
  into.writeUInt32BE(microseconds - Math.floor(microseconds / 2 ** 32) * 2 ** 32, at + 4);
}

/** `text[]`; undefined and null become NULL. */
export function textArray<Row>(rows: Row[], value: (row: Row) => string | null | undefined): Buffer {
  return stringArray(OID.text, rows, value);
}

/** `jsonb[]`; undefined becomes NULL. */
export function jsonArray<Row>(rows: Row[], value: (row: Row) => object | undefined): Buffer {
  return stringArray(OID.jsonb, rows, (row) => {
    const element = value(row);
    if (element === undefined) return undefined;
    return element instanceof JsonText ? element.text : JSON.stringify(element);
  });
}

/** The literal of a `numeric[]`, whose binary format is made of decimal digits as well. */
export function numericArray<Row>(rows: Row[], value: (row: Row) => number): string {
  return `{${rows.map(value).join(',')}}`;
}

/** The version that a `jsonb` begins with. */
const JSONB_VERSION = 1;

/** Bytes that an element has about, with its length: more room is made where that is too little. */
const TYPICAL_BYTES = 48;

/** Characters from which on it pays to count a string's bytes instead of making room for the most it may have. */
const LONG = 4096;

function stringArray<Row>(oid: number, rows: Row[], value: (row: Row) => string | null | undefined): Buffer {
  let array = begin(oid, rows.length, TYPICAL_BYTES * rows.length);
  let at = HEADER;
  for (const row of rows) {
    const text = value(row);
    const most = text == null ? 0 : text.length > LONG ? Buffer.byteLength(text) : 3 * text.length;
    if (array.length < at + 5 + most) array = grow(array, at, at + 5 + most);
    const start = at;
    at += 4;
    if (text == null) {
      array.writeInt32BE(NULL_LENGTH, start);
      continue;
    }
    if (oid === OID.jsonb) array[at++] = JSONB_VERSION;
    at += writeText(array, at, text);
    array.writeInt32BE(at - start - 4, start);
  }
  return array.subarray(0, at);
}

function grow(array: Buffer, used: number, needed: number): Buffer {
  const larger = Buffer.allocUnsafe(Math.max(needed, 2 * array.length));
  array.copy(larger, 0, 0, used);
  return larger;
}

/** Characters up to which a loop is quicker than the call of a native function. */
const SHORT = 24;

/** @returns bytes */
function writeText(into: Buffer, at: number, text: string): number {
  if (text.length > SHORT) return into.write(text, at);
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code > 0x7f) return into.write(text, at);
    into[at + index] = code;
  }
  return text.length;
}

/** The value of each hexadecimal digit by its character code; of any other character NO_DIGIT, larger than a byte. */
const NO_DIGIT = 0x100;
const digits = new Uint16Array(0x10000).fill(NO_DIGIT);
for (let value = 0; value < 16; value++) {
  digits[value.toString(16).charCodeAt(0)] = value;
  digits[value.toString(16).toUpperCase().charCodeAt(0)] = value;
}

const HYPHEN = '-'.charCodeAt(0);
const UUID_BYTES = 16;
const UUID_LENGTH = 36;
const LARGEST_BYTE = 0xff;

/** The byte of two digits; of what are none, a number larger than a byte. */
function byteAt(uuid: string, index: number): number {
  return (digits[uuid.charCodeAt(index)]! << 4) | digits[uuid.charCodeAt(index + 1)]!;
}

/** Without a loop, which takes nearly twice as long: two or three are written for each object. */
function writeUuid(into: Buffer, at: number, uuid: string): void {
  const bytes = at + WORD;
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
    throw new RangeError(`${uuid} is no UUID`);
}

function hasHyphens(uuid: string): boolean {
  return (
    uuid.charCodeAt(8) === HYPHEN &&
    uuid.charCodeAt(13) === HYPHEN &&
    uuid.charCodeAt(18) === HYPHEN &&
    uuid.charCodeAt(23) === HYPHEN
  );
}
