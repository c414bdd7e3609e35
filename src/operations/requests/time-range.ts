/**
 * Milliseconds between a request's id and those of its envelopes, at most: both are made by one process, which gives a
 * request 15 seconds to arrive and some more for the key, the limit and the flush before.
 */
export const FARTHEST = 60_000;

/** Nearly always they are within this time. */
export const NEAR = 2000;

/** The moment with which a UUIDv7 begins, in epoch milliseconds. */
export function millisecondsOf(id: string): number {
  return Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16);
}

/** ISO 8601. */
export function acceptedAt(requestId: string): string {
  return new Date(millisecondsOf(requestId)).toISOString();
}

/** The ids that are made in the time, both ends included; the first and the last that there could be. */
export function idsBetween(from: number, to: number): [string, string] {
  return [uuidOf(from, '0'), uuidOf(to, 'f')];
}

function uuidOf(milliseconds: number, fill: string): string {
  const time = Math.min(milliseconds, 2 ** 48 - 1)
    .toString(16)
    .padStart(12, '0');
  const [a, b, c] = [4, 4, 12].map((length) => fill.repeat(length));
  return `${time.slice(0, 8)}-${time.slice(8)}-${a}-${b}-${c}`;
}
