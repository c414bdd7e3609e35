import { randomBytes } from 'node:crypto';
import { MAX, NIL } from 'uuid';
import { now } from './clock.ts';

/** Every other UUID lies between these two: RFC 9562, 5.9 and 5.10. */
export const NIL_UUID: string = NIL;
export const MAX_UUID: string = MAX;

/** Ids of one millisecond: 16 bits count them. */
const MOST_IN_A_MILLISECOND = 65_536;

/** Of each digit. */
const HEX = Buffer.from('0123456789abcdef');

let last = 0;
let count = 0;
/** The id that was made last: those of a millisecond have its time and 56 random bits in common. */
const id = Buffer.from('00000000-0000-7000-8000-000000000000');
/** Where the digits of the counter stand, between which there are those of the version and the variant. */
const COUNTER = [15, 16, 17, 20] as const;
const RANDOM = 21;

/**
 * A new UUIDv7 whose random bits begin with a counter (RFC 9562, 6.2): those of one process are in the order in which
 * they were made, also within a millisecond. Processes tell theirs of one millisecond apart by 56 random bits, which
 * are drawn once for it. An id of its own would cost an object more than reading its time does.
 */
export function newId(): string {
  // A clock that is set back must not turn the order round.
  const time = now();
  if (time > last) open(time);
  else if (++count === MOST_IN_A_MILLISECOND) open(last + 1);
  id[COUNTER[0]] = HEX[count >> 12]!;
  id[COUNTER[1]] = HEX[(count >> 8) & 15]!;
  id[COUNTER[2]] = HEX[(count >> 4) & 15]!;
  id[COUNTER[3]] = HEX[count & 15]!;
  // One text, and not some that are joined: those take seven times the memory, and are joined when they are first read.
  return id.toString('latin1');
}

function open(millisecond: number): void {
  last = millisecond;
  count = 0;
  const random = nextRandom();
  id.write(timeDigits(millisecond));
  id.write(`${random.slice(0, 2)}-${random.slice(2)}`, RANDOM);
}

/** Bytes of a millisecond, and milliseconds whose bytes are drawn at once: a busy process opens each, and a draw is a call. */
const BYTES = 7;
const DRAWN = 128;

let drawn = '';
let used = 0;

/** 56 bits that nobody has had, as hexadecimal digits. */
function nextRandom(): string {
  if (used === drawn.length) {
    drawn = randomBytes(BYTES * DRAWN).toString('hex');
    used = 0;
  }
  used += 2 * BYTES;
  return drawn.slice(used - 2 * BYTES, used);
}

/** Lets the next id have an earlier time than the last one, after the clock was set back. */
export function restartIds(): void {
  last = 0;
}

/** The first twelve digits of an id, which say when it was made. */
function timeDigits(milliseconds: number): string {
  const hex = milliseconds.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}`;
}

/** The moment with which a UUIDv7 begins, in epoch milliseconds. */
export function millisecondsOf(id: string): number {
  return Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16);
}

/** As `uuid_v7_floor` of Postgres: ids of that millisecond and of later ones are behind it; none is it, since an id has random bits. */
export function floorOf(milliseconds: number): string {
  return `${timeDigits(milliseconds)}-7000-8000-000000000000`;
}

/** The first and the last id that there could be in the time, both ends included, of whatever version. */
export function idsBetween(from: number, to: number): [string, string] {
  const bound = (milliseconds: number, digit: string) => {
    const [a, b, c] = [4, 4, 12].map((length) => digit.repeat(length));
    return `${timeDigits(Math.min(milliseconds, LAST_MS))}-${a}-${b}-${c}`;
  };
  return [bound(from, '0'), bound(to, 'f')];
}

/** The last moment that an id can begin with: it has 48 bits. */
const LAST_MS = 2 ** 48 - 1;
