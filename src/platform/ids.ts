import { randomBytes } from 'node:crypto';
import { MAX, NIL } from 'uuid';
import { now } from './clock.ts';

/** The smallest and the largest UUID (RFC 9562, 5.9 and 5.10). */
export const NIL_UUID: string = NIL;
export const MAX_UUID: string = MAX;

/** Maximum number of ids with the time of one millisecond: the counter has 16 bits. */
const MAX_PER_MILLISECOND = 65_536;

/** ASCII codes of the hexadecimal digits. */
const HEX = Buffer.from('0123456789abcdef');

let last = 0;
let count = 0;
/** The last id that was created. Ids of one millisecond share its time and 56 random bits. */
const id = Buffer.from('00000000-0000-7000-8000-000000000000');
/** Offsets of the digits of the counter in the id. Digits of the version and the variant are between them. */
const COUNTER = [15, 16, 17, 20] as const;
const RANDOM = 21;

/**
 * Returns a new UUIDv7 whose random bits begin with a counter (RFC 9562, 6.2), so the ids of one process are
 * ordered by creation, also within a millisecond. The ids of two processes in the same millisecond differ in
 * 56 random bits, which are drawn once per millisecond, because drawing bits for each id takes longer than
 * reading the time.
 */
export function newId(): string {
  // When the clock is set back, keep the later time so that ids stay in order.
  const time = now();
  if (time > last) open(time);
  else if (++count === MAX_PER_MILLISECOND) open(last + 1);
  id[COUNTER[0]] = HEX[count >> 12]!;
  id[COUNTER[1]] = HEX[(count >> 8) & 15]!;
  id[COUNTER[2]] = HEX[(count >> 4) & 15]!;
  id[COUNTER[3]] = HEX[count & 15]!;
  // `toString` creates one flat string. Concatenated strings take seven times the memory and are flattened at
  // the first read.
  return id.toString('latin1');
}

function open(millisecond: number): void {
  last = millisecond;
  count = 0;
  const random = nextRandom();
  id.write(timeDigits(millisecond));
  id.write(`${random.slice(0, 2)}-${random.slice(2)}`, RANDOM);
}

/**
 * Random bytes for one millisecond, and the number of milliseconds whose bytes are drawn together. A busy
 * process needs new bytes each millisecond, and each draw is a system call.
 */
const BYTES = 7;
const DRAWN = 128;

let drawn = '';
let used = 0;

/** Returns 56 unused random bits as hexadecimal digits. */
function nextRandom(): string {
  if (used === drawn.length) {
    drawn = randomBytes(BYTES * DRAWN).toString('hex');
    used = 0;
  }
  used += 2 * BYTES;
  return drawn.slice(used - 2 * BYTES, used);
}

/** Allows the next id to have an earlier time than the last one. Call it after the clock was set back. */
export function restartIds(): void {
  last = 0;
}

/** Returns the first twelve digits of an id, which encode its time. */
function timeDigits(milliseconds: number): string {
  const hex = milliseconds.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}`;
}

/** Returns the time of a UUIDv7 in epoch milliseconds. */
export function millisecondsOf(id: string): number {
  return Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16);
}

/**
 * Returns the lower bound of the ids of a millisecond and all later ones, like `uuid_v7_floor` in Postgres.
 * No id equals it, because ids have random bits.
 */
export function floorOf(milliseconds: number): string {
  return `${timeDigits(milliseconds)}-7000-8000-000000000000`;
}

/**
 * Returns the smallest and the largest possible UUID, of any version, for a time range. Both ends are
 * included.
 */
export function idsBetween(from: number, to: number): [string, string] {
  const bound = (milliseconds: number, digit: string) => {
    const [a, b, c] = [4, 4, 12].map((length) => digit.repeat(length));
    return `${timeDigits(Math.min(milliseconds, LAST_MS))}-${a}-${b}-${c}`;
  };
  return [bound(from, '0'), bound(to, 'f')];
}

/** The last time that an id can encode: it has 48 bits. */
const LAST_MS = 2 ** 48 - 1;
