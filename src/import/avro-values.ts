import type { Json } from '../profile/json.ts';
import { put } from '../profile/values.ts';

/** Thrown for an Avro file that cannot be read. The message does not contain the name of the file. */
export class BrokenAvro extends Error {
  override name = 'BrokenAvro';
}

/** Primitive types. */
export const plain = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'] as const;

/** Logical type of an integer or of bytes. */
export type LogicalType = 'date' | 'millis' | 'micros' | { scale: number };

/** A parsed type of a schema. */
export type AvroType =
  | { kind: (typeof plain)[number]; meaning?: LogicalType | undefined }
  | { kind: 'record'; fields: { name: string; type: AvroType }[] }
  | { kind: 'enum'; symbols: string[] }
  | { kind: 'array' | 'map'; items: AvroType }
  | { kind: 'union'; branches: AvroType[] }
  | { kind: 'fixed'; bytes: number; meaning?: LogicalType | undefined };

/** Maximum depth of nested values. A recursive type allows any depth. */
const MAX_DEPTH = 64;

/**
 * Maximum number of values per byte of a block: some values have no bytes, and a schema may have thousands of
 * such fields.
 */
const MAX_VALUES_PER_BYTE = 16;
const ALWAYS_ALLOWED_VALUES = 10_000;

/** Reads the values of one block from its first byte on. */
interface AvroValues {
  /**
   * Reads the next value as JSON.
   * @param maxBytes approximate maximum bytes of the value as text; a longer value is skipped
   * @returns undefined if the value is longer
   * @throws {BrokenAvro}
   */
  next(type: AvroType, maxBytes: number): Json | undefined;
  isAtEnd(): boolean;
}

/** Error messages for bytes that end too early, a number with too many bits, and an invalid length. */
interface ErrorMessages {
  cut: string;
  long: string;
  length: string;
}

/** Creates a cursor that reads one value after the other from bytes. */
export function createCursor(bytes: Buffer, wrong: ErrorMessages) {
  let at = 0;

  /** Skips bytes. @returns their offset */
  function take(length: number): number {
    if (length < 0 || length > bytes.length - at) throw new BrokenAvro(wrong.cut);
    at += length;
    return at - length;
  }

  function long(): number | bigint {
    let low = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = bytes[take(1)]!;
      low += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return low % 2 === 0 ? low / 2 : -(low + 1) / 2;
    }
    let all = BigInt(low);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      const byte = bytes[take(1)]!;
      all |= BigInt(byte & 0x7f) << shift;
      if (byte >= 0x80) continue;
      const value = (all & 1n) === 0n ? all >> 1n : -((all + 1n) >> 1n);
      return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
    }
    throw new BrokenAvro(wrong.long);
  }

  /** Reads a number of bytes, a number of items, or the index of a branch. */
  function count(): number {
    const value = long();
    if (typeof value === 'bigint') throw new BrokenAvro(wrong.length);
    return value;
  }

  return { take, long, count, at: () => at, left: () => bytes.length - at };
}

export function readValues(block: Buffer): AvroValues {
  const {
    take,
    long,
    count,
    left: bytesLeft,
  } = createCursor(block, {
    cut: 'a block ends within a row',
    long: 'a number has more than 64 bits',
    length: 'a length is not valid',
  });
  let values = 0;
  const maxValues = ALWAYS_ALLOWED_VALUES + MAX_VALUES_PER_BYTE * block.length;
  /** Bytes that the current value may still have; negative if it is too long. */
  let room = 0;

  function* items(): Generator<void> {
    for (;;) {
      let left = count();
      if (left === 0) return;
      if (left < 0) {
        left = -left;
        // Skip the number of bytes of the items, which only readers that skip the items need.
        count();
      }
      // An item without bytes could otherwise occur any number of times.
      if (left > bytesLeft()) throw new BrokenAvro('a list has more values than the block has bytes');
      for (; left > 0; left--) yield;
    }
  }

  function text(): string {
    const bytes = count();
    const from = take(bytes);
    room -= bytes;
    return room < 0 ? '' : block.toString('utf8', from, from + bytes);
  }

  function bytesOf(length: number, meaning: LogicalType | undefined): string {
    const from = take(length);
    room -= length;
    if (room < 0) return '';
    const bytes = block.subarray(from, from + length);
    return typeof meaning === 'object' ? decimal(bytes, meaning.scale) : bytes.toString('base64');
  }

  function read(type: AvroType, depth: number): Json {
    values += 1;
    if (values > maxValues) throw new BrokenAvro('a block has far more values than bytes');
    if (depth > MAX_DEPTH) throw new BrokenAvro(`a row is nested deeper than ${MAX_DEPTH}`);
    room -= 2;
    switch (type.kind) {
      case 'null':
        return null;
      case 'boolean':
        return block[take(1)] !== 0;
      case 'int':
      case 'long':
        return wholeNumber(long(), type.meaning);
      case 'float':
        return finite(block.readFloatLE(take(4)));
      case 'double':
        return finite(block.readDoubleLE(take(8)));
      case 'string':
        return text();
      case 'bytes':
        return bytesOf(count(), type.meaning);
      case 'fixed':
        return bytesOf(type.bytes, type.meaning);
      case 'enum': {
        const symbol = type.symbols[count()];
        if (symbol === undefined) throw new BrokenAvro('a row has a symbol that is not in its schema');
        room -= symbol.length;
        return symbol;
      }
      case 'union': {
        const branch = type.branches[count()];
        if (!branch) throw new BrokenAvro('a row has a union branch that is not in its schema');
        return read(branch, depth + 1);
      }
      case 'array': {
        const list: Json[] = [];
        for (const _ of items()) {
          const value = read(type.items, depth + 1);
          if (room >= 0) list.push(value);
        }
        return list;
      }
      case 'map': {
        const members: Record<string, Json> = {};
        for (const _ of items()) {
          const name = text();
          const value = read(type.items, depth + 1);
          if (room >= 0) put(members, name, value);
        }
        return members;
      }
      case 'record': {
        const members: Record<string, Json> = {};
        for (const field of type.fields) {
          room -= field.name.length;
          const value = read(field.type, depth + 1);
          if (room >= 0) put(members, field.name, value);
        }
        return members;
      }
    }
  }

  return {
    next(type, maxBytes) {
      room = maxBytes;
      const value = read(type, 0);
      return room < 0 ? undefined : value;
    },
    isAtEnd: () => bytesLeft() === 0,
  };
}

/** JSON has no NaN and no infinity. */
const finite = (value: number): number | null => (Number.isFinite(value) ? value : null);

const DAY_MS = 86_400_000;
const MAX_TIME_MS = 8.64e15;

/** Converts an integer to JSON. An integer that a double cannot represent becomes text. */
function wholeNumber(value: number | bigint, meaning: LogicalType | undefined): Json {
  if (meaning === undefined || typeof meaning === 'object')
    return typeof value === 'bigint' ? String(value) : value;
  const number = Number(value);
  const time = meaning === 'date' ? number * DAY_MS : meaning === 'micros' ? number / 1000 : number;
  if (Math.abs(time) > MAX_TIME_MS) return String(value);
  const iso = new Date(time).toISOString();
  return meaning === 'date' ? iso.slice(0, iso.indexOf('T')) : iso;
}

/** Maximum bytes of a decimal. The time to convert a number grows with the square of its digits. */
const MAX_DECIMAL_BYTES = 64;

function decimal(bytes: Buffer, scale: number): string {
  if (bytes.length === 0 || bytes.length > MAX_DECIMAL_BYTES) return bytes.toString('base64');
  const value = BigInt.asIntN(bytes.length * 8, BigInt(`0x${bytes.toString('hex')}`));
  const digits = String(value < 0n ? -value : value).padStart(scale + 1, '0');
  const point = digits.length - scale;
  return `${value < 0n ? '-' : ''}${digits.slice(0, point)}${scale > 0 ? `.${digits.slice(point)}` : ''}`;
}
