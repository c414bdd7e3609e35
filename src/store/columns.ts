import { JsonText } from '../profile/json.ts';
import { readUsual } from '../profile/time.ts';
import { codeAt } from '../profile/values.ts';
import { writeUuid } from './write-uuid.ts';

/**
 * Array parameters of set-based statements, each as one array in the binary wire format (`array_recv`).
 * Encoding takes less time than creating the array's text, and Postgres parses it in a fraction of the time.
 * A value is encoded when it is added, so that one pass over the rows builds all columns. `pg` sends a Buffer
 * unchanged.
 *
 * https://www.postgresql.org/docs/18/protocol-overview.html#PROTOCOL-FORMAT-CODES
 */

/** Object ids of the types, which are the same in every Postgres (`pg_type.dat`). */
const OID = { bool: 16, int4: 23, text: 25, timestamptz: 1184, uuid: 2950, jsonb: 3802 } as const;

/** Bytes of the array header: dimensions, null flag, type, length, and index of the first element. */
const HEADER = 20;
/** Bytes of an element, including the four bytes of its length. */
const UUID_ELEMENT = 20;
const UUID_WORDS = 5;
const INTEGER_ELEMENT = 8;
const BOOLEAN_ELEMENT = 5;
const TIME_ELEMENT = 12;
/** Typical size of a text or `jsonb` element with its length. The buffer grows if it is too small. */
const TYPICAL_BYTES = 48;

const WORD = 4;
const NULL_LENGTH = -1;

/** Version byte at the start of a `jsonb`. */
const JSONB_VERSION = 1;

/** Milliseconds from 1970 to 2000, the start of Postgres's time scale. */
export const POSTGRES_EPOCH = 946_684_800_000;

/** Number of characters from which counting a string's bytes is cheaper than reserving the maximum. */
const LONG = 4096;

/**
 * A column of any type. A single class, so that the engine can optimize access to its members: adding values
 * is the hottest loop of a worker.
 */
class Column {
  #bytes: Buffer;
  /** View of the same memory. It must begin at a multiple of the word size, as Node's buffers do. */
  #words: Int32Array;
  #at = HEADER;
  #length = 0;
  /** Previous value, if it was a UUID. */
  #last: string | undefined;

  constructor(oid: number, bytes: number) {
    this.#bytes = Buffer.allocUnsafe(HEADER + bytes + (-bytes & 7));
    this.#words = wordsOf(this.#bytes);
    this.#bytes.writeInt32BE(1, 0);
    // Only a hint; Postgres checks for nulls itself.
    this.#bytes.writeInt32BE(1, 4);
    this.#bytes.writeInt32BE(oid, 8);
    this.#bytes.writeInt32BE(1, 16);
  }

  /** Adds a UUID. @throws {RangeError} for a value that is not a UUID in its usual form */
  addUuid(uuid: string): void {
    const at = this.#at;
    this.#ensureRoom(UUID_ELEMENT);
    // Many batches have one workspace. Copying the previous words is cheaper than a native call per row.
    if (uuid === this.#last) {
      const words = this.#words;
      const word = at / WORD;
      words[word] = words[word - 5]!;
      words[word + 1] = words[word - 4]!;
      words[word + 2] = words[word - 3]!;
      words[word + 3] = words[word - 2]!;
      words[word + 4] = words[word - 1]!;
    } else writeUuid(this.#bytes, at, uuid);
    this.#last = uuid;
    this.#at = at + UUID_ELEMENT;
    this.#length++;
  }

  /**
   * Adds an element of an existing `uuid[]`. Its text does not have to be parsed again, which would have left
   * the caches by then.
   */
  addElement(elements: UuidElements, index: number): void {
    this.#ensureRoom(UUID_ELEMENT);
    const words = this.#words;
    const from = HEADER / WORD + index * UUID_WORDS;
    const to = this.#at / WORD;
    words[to] = elements[from]!;
    words[to + 1] = elements[from + 1]!;
    words[to + 2] = elements[from + 2]!;
    words[to + 3] = elements[from + 3]!;
    words[to + 4] = elements[from + 4]!;
    this.#last = undefined;
    this.#at += UUID_ELEMENT;
    this.#length++;
  }

  /** Adds all values of a column of the same type. */
  addAll(other: { toParameter(): Buffer }): void {
    const array = other.toParameter();
    this.#ensureRoom(array.length - HEADER);
    this.#at += array.copy(this.#bytes, this.#at, HEADER);
    this.#length += array.readInt32BE(12);
    this.#last = undefined;
  }

  /** Adds a 32-bit integer. @throws {RangeError} for any other value */
  addInteger(integer: number): void {
    if (integer !== (integer | 0)) throw new RangeError(`${integer} is not an integer of 32 bits`);
    this.#ensureRoom(INTEGER_ELEMENT);
    this.#bytes.writeInt32BE(4, this.#at);
    this.#bytes.writeInt32BE(integer, this.#at + 4);
    this.#at += INTEGER_ELEMENT;
    this.#length++;
  }

  addBoolean(boolean: boolean): void {
    this.#ensureRoom(BOOLEAN_ELEMENT);
    this.#bytes.writeInt32BE(1, this.#at);
    this.#bytes[this.#at + WORD] = boolean ? 1 : 0;
    this.#at += BOOLEAN_ELEMENT;
    this.#length++;
  }

  /** Adds a time. @param time ISO 8601, with milliseconds @throws {RangeError} for an invalid time */
  addTime(time: string): void {
    const milliseconds = (readUsual(time) ?? Date.parse(time)) - POSTGRES_EPOCH;
    if (Number.isNaN(milliseconds)) throw new RangeError(`${time} is no time`);
    // Microseconds since 2000 exceed the exact range of a number after the year 2285.
    const microseconds = milliseconds * 1000;
    if (Number.isSafeInteger(microseconds)) this.addMicroseconds(microseconds);
    else {
      this.#ensureRoom(TIME_ELEMENT);
      this.#bytes.writeInt32BE(8, this.#at);
      this.#bytes.writeBigInt64BE(BigInt(milliseconds) * 1000n, this.#at + 4);
      this.#at += TIME_ELEMENT;
      this.#length++;
    }
  }

  /** Adds a time. @param microseconds microseconds since 2000; exact up to the year 2285 */
  addMicroseconds(microseconds: number): void {
    this.#ensureRoom(TIME_ELEMENT);
    const high = Math.floor(microseconds / 2 ** 32);
    this.#bytes.writeInt32BE(8, this.#at);
    this.#bytes.writeInt32BE(high, this.#at + 4);
    this.#bytes.writeUInt32BE(microseconds - high * 2 ** 32, this.#at + 8);
    this.#at += TIME_ELEMENT;
    this.#length++;
  }

  /** Adds a text. Undefined and null become NULL. */
  addText(text: string | null | undefined): void {
    if (text == null) this.#addNull();
    else this.#addString(text, 0);
  }

  /** Adds a JSON value. Undefined becomes NULL. */
  addJson(value: object | undefined): void {
    if (value === undefined) this.#addNull();
    else this.#addString(value instanceof JsonText ? value.text : JSON.stringify(value), 1);
  }

  /** Returns the column as a parameter. Values must not be added afterwards. */
  toParameter(): Buffer {
    this.#bytes.writeInt32BE(this.#length, 12);
    return this.#bytes.subarray(0, this.#at);
  }

  #addNull(): void {
    this.#ensureRoom(WORD);
    this.#bytes.writeInt32BE(NULL_LENGTH, this.#at);
    this.#at += WORD;
    this.#length++;
  }

  /** Adds a length-prefixed string. @param version number of version bytes before it, which a `jsonb` has */
  #addString(text: string, version: 0 | 1): void {
    const { length } = text;
    const maxBytes = length > LONG ? Buffer.byteLength(text) : 3 * length;
    this.#ensureRoom(WORD + version + maxBytes);
    const start = this.#at + WORD;
    if (version === 1) this.#bytes[start] = JSONB_VERSION;
    const bytes = version + writeText(this.#bytes, start + version, text);
    this.#bytes.writeInt32BE(bytes, this.#at);
    this.#at = start + bytes;
    this.#length++;
  }

  /** Grows the buffer if it has less than `more` bytes left. */
  #ensureRoom(more: number): void {
    const needed = this.#at + more;
    if (needed <= this.#bytes.length) return;
    const bytes = Math.max(needed, 2 * this.#bytes.length);
    const larger = Buffer.allocUnsafe(bytes + (-bytes & 7));
    this.#bytes.copy(larger, 0, 0, this.#at);
    this.#bytes = larger;
    this.#words = wordsOf(larger);
  }
}

function wordsOf(bytes: Buffer): Int32Array {
  return new Int32Array(bytes.buffer, bytes.byteOffset, Math.floor(bytes.length / WORD));
}

/** A column of UUIDs. The number of rows is an estimate; columns grow as needed. */
type UuidColumn = Pick<Column, 'addUuid' | 'addElement' | 'addAll' | 'toParameter'>;

/** Words of a `uuid[]`, including its header. */
export type UuidElements = Int32Array;

export const elementsOf = (array: Buffer): UuidElements => wordsOf(array);

/** Creates a `uuid[]` column. */
export function uuidColumn(rows: number): UuidColumn {
  return new Column(OID.uuid, UUID_ELEMENT * rows);
}

/** Creates an `integer[]` column. */
export function integerColumn(rows: number): Pick<Column, 'addInteger' | 'toParameter'> {
  return new Column(OID.int4, INTEGER_ELEMENT * rows);
}

/** Creates a `boolean[]` column. */
export function booleanColumn(rows: number): Pick<Column, 'addBoolean' | 'toParameter'> {
  return new Column(OID.bool, BOOLEAN_ELEMENT * rows);
}

/** Creates a `timestamptz[]` column. */
export function timeColumn(rows: number): Pick<Column, 'addTime' | 'addMicroseconds' | 'toParameter'> {
  return new Column(OID.timestamptz, TIME_ELEMENT * rows);
}

/** Creates a `text[]` column. */
export function textColumn(rows: number): Pick<Column, 'addText' | 'toParameter'> {
  return new Column(OID.text, TYPICAL_BYTES * rows);
}

/** Creates a `jsonb[]` column. */
export function jsonColumn(rows: number): Pick<Column, 'addJson' | 'toParameter'> {
  return new Column(OID.jsonb, TYPICAL_BYTES * rows);
}

/** Maximum number of characters for which a loop is faster than a native call. */
const SHORT = 24;

/** Writes a text in UTF-8. @returns the number of bytes */
function writeText(into: Buffer, at: number, text: string): number {
  const { length } = text;
  if (length > SHORT) return into.write(text, at);
  for (let index = 0; index < length; index++) {
    const code = codeAt(text, index);
    if (code > 0x7f) return into.write(text, at);
    into[at + index] = code;
  }
  return length;
}
