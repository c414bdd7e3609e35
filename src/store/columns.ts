import { JsonText } from '../profile/json.ts';
import { readUsual } from '../profile/time.ts';
import { codeAt } from '../profile/values.ts';
import { writeUuid } from './write-uuid.ts';

/**
 * Columns of sets on their way to Postgres. Each is one array in the format of its wire protocol (`array_recv`). That
 * is made in less time than the array's text is, and read in a fraction of it. A value becomes bytes when it is added,
 * so that one pass over the rows makes all of their columns. `pg` sends a Buffer as it is.
 *
 * https://www.postgresql.org/docs/18/protocol-overview.html#PROTOCOL-FORMAT-CODES
 */

/** Object ids of the types, which are the same in every Postgres (`pg_type.dat`). */
const OID = { bool: 16, int4: 23, text: 25, timestamptz: 1184, uuid: 2950, jsonb: 3802 } as const;

/** Dimensions, a flag for nulls, type, length, and the index of the first element. */
const HEADER = 20;
/** Elements with the four bytes of their length. */
const UUID_ELEMENT = 20;
const UUID_WORDS = 5;
const INTEGER_ELEMENT = 8;
const BOOLEAN_ELEMENT = 5;
const TIME_ELEMENT = 12;
/** Bytes that a text or `jsonb` has about, with its length: more room is made where that is too little. */
const TYPICAL_BYTES = 48;

const WORD = 4;
const NULL_LENGTH = -1;

/** The version that a `jsonb` begins with. */
const JSONB_VERSION = 1;

/** Milliseconds from 1970 to 2000, where Postgres begins to count. */
export const POSTGRES_EPOCH = 946_684_800_000;

/** Characters from which on it pays to count a string's bytes instead of making room for the most it may have. */
const LONG = 4096;

/**
 * A column of any type. All of them are one class, so that the engine knows where their members lie: what is added to a
 * column is the busiest loop of a worker.
 */
class Column {
  #bytes: Buffer;
  /** The same memory. A view has to begin at a multiple of its words, as what Node hands out does. */
  #words: Int32Array;
  #at = HEADER;
  #length = 0;
  /** The value before, where it was a UUID. */
  #last: string | undefined;

  constructor(oid: number, bytes: number) {
    this.#bytes = Buffer.allocUnsafe(HEADER + bytes + (-bytes & 7));
    this.#words = wordsOf(this.#bytes);
    this.#bytes.writeInt32BE(1, 0);
    // Only a hint: Postgres looks for itself.
    this.#bytes.writeInt32BE(1, 4);
    this.#bytes.writeInt32BE(oid, 8);
    this.#bytes.writeInt32BE(1, 16);
  }

  /** @throws {RangeError} for what is none in its usual form */
  addUuid(uuid: string): void {
    const at = this.#at;
    this.#room(UUID_ELEMENT);
    // A batch often has one workspace, and a call of a native function for each row would cost more than the words.
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

  /** An element of a `uuid[]` that was made: its text need not be read again, which has left the caches by then. */
  addElement(elements: UuidElements, place: number): void {
    this.#room(UUID_ELEMENT);
    const words = this.#words;
    const from = HEADER / WORD + place * UUID_WORDS;
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

  /** All values of a column of the same type. */
  addAll(other: { toParameter(): Buffer }): void {
    const array = other.toParameter();
    this.#room(array.length - HEADER);
    this.#at += array.copy(this.#bytes, this.#at, HEADER);
    this.#length += array.readInt32BE(12);
    this.#last = undefined;
  }

  /** Of 32 bits. @throws {RangeError} for what is none */
  addInteger(integer: number): void {
    if (integer !== (integer | 0)) throw new RangeError(`${integer} is not an integer of 32 bits`);
    this.#room(INTEGER_ELEMENT);
    this.#bytes.writeInt32BE(4, this.#at);
    this.#bytes.writeInt32BE(integer, this.#at + 4);
    this.#at += INTEGER_ELEMENT;
    this.#length++;
  }

  addBoolean(boolean: boolean): void {
    this.#room(BOOLEAN_ELEMENT);
    this.#bytes.writeInt32BE(1, this.#at);
    this.#bytes[this.#at + WORD] = boolean ? 1 : 0;
    this.#at += BOOLEAN_ELEMENT;
    this.#length++;
  }

  /** @param time ISO 8601, to the millisecond. @throws {RangeError} for what is none */
  addTime(time: string): void {
    const milliseconds = (readUsual(time) ?? Date.parse(time)) - POSTGRES_EPOCH;
    if (Number.isNaN(milliseconds)) throw new RangeError(`${time} is no time`);
    // Microseconds, which a number does not hold exactly beyond the year 2285.
    const microseconds = milliseconds * 1000;
    if (Number.isSafeInteger(microseconds)) this.addMicroseconds(microseconds);
    else {
      this.#room(TIME_ELEMENT);
      this.#bytes.writeInt32BE(8, this.#at);
      this.#bytes.writeBigInt64BE(BigInt(milliseconds) * 1000n, this.#at + 4);
      this.#at += TIME_ELEMENT;
      this.#length++;
    }
  }

  /** @param microseconds from 2000; exact, up to the year 2285 */
  addMicroseconds(microseconds: number): void {
    this.#room(TIME_ELEMENT);
    const high = Math.floor(microseconds / 2 ** 32);
    this.#bytes.writeInt32BE(8, this.#at);
    this.#bytes.writeInt32BE(high, this.#at + 4);
    this.#bytes.writeUInt32BE(microseconds - high * 2 ** 32, this.#at + 8);
    this.#at += TIME_ELEMENT;
    this.#length++;
  }

  /** Undefined and null become NULL. */
  addText(text: string | null | undefined): void {
    if (text == null) this.#addNull();
    else this.#addString(text, 0);
  }

  /** Undefined becomes NULL. */
  addJson(value: object | undefined): void {
    if (value === undefined) this.#addNull();
    else this.#addString(value instanceof JsonText ? value.text : JSON.stringify(value), 1);
  }

  /** The column as a parameter. Nothing is added to it after that. */
  toParameter(): Buffer {
    this.#bytes.writeInt32BE(this.#length, 12);
    return this.#bytes.subarray(0, this.#at);
  }

  #addNull(): void {
    this.#room(WORD);
    this.#bytes.writeInt32BE(NULL_LENGTH, this.#at);
    this.#at += WORD;
    this.#length++;
  }

  /** @param version bytes for the version that a `jsonb` begins with */
  #addString(text: string, version: 0 | 1): void {
    const { length } = text;
    const most = length > LONG ? Buffer.byteLength(text) : 3 * length;
    this.#room(WORD + version + most);
    const start = this.#at + WORD;
    if (version === 1) this.#bytes[start] = JSONB_VERSION;
    const bytes = version + writeText(this.#bytes, start + version, text);
    this.#bytes.writeInt32BE(bytes, this.#at);
    this.#at = start + bytes;
    this.#length++;
  }

  /** Makes room for so many bytes more. */
  #room(more: number): void {
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

/** Columns have room for about so many rows; more is made when there are more. */
export type UuidColumn = Pick<Column, 'addUuid' | 'addElement' | 'addAll' | 'toParameter'>;

/** Of a `uuid[]`, with its header. */
export type UuidElements = Int32Array;

export const elementsOf = (array: Buffer): UuidElements => wordsOf(array);

/** `uuid[]`. */
export function uuidColumn(rows: number): UuidColumn {
  return new Column(OID.uuid, UUID_ELEMENT * rows);
}

/** `integer[]`. */
export function integerColumn(rows: number): Pick<Column, 'addInteger' | 'toParameter'> {
  return new Column(OID.int4, INTEGER_ELEMENT * rows);
}

/** `boolean[]`. */
export function booleanColumn(rows: number): Pick<Column, 'addBoolean' | 'toParameter'> {
  return new Column(OID.bool, BOOLEAN_ELEMENT * rows);
}

/** `timestamptz[]`. */
export function timeColumn(rows: number): Pick<Column, 'addTime' | 'addMicroseconds' | 'toParameter'> {
  return new Column(OID.timestamptz, TIME_ELEMENT * rows);
}

/** `text[]`. */
export function textColumn(rows: number): Pick<Column, 'addText' | 'toParameter'> {
  return new Column(OID.text, TYPICAL_BYTES * rows);
}

/** `jsonb[]`. */
export function jsonColumn(rows: number): Pick<Column, 'addJson' | 'toParameter'> {
  return new Column(OID.jsonb, TYPICAL_BYTES * rows);
}

/** Characters up to which a loop is quicker than the call of a native function. */
const SHORT = 24;

/** @returns bytes */
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
