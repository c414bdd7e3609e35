let second = Number.NaN;
let untilSecond = '';

/**
 * As `new Date(now).toISOString()`, which takes five times as long, and whose first 20 characters are the same for a second.
 *
 * @param now epoch milliseconds, whole ones, since 1970
 */
export function isoTime(now: number): string {
  const milliseconds = now % 1000;
  if (now - milliseconds !== second) {
    second = now - milliseconds;
    untilSecond = new Date(second).toISOString().slice(0, 20);
  }
  return `${untilSecond}${milliseconds < 100 ? String(milliseconds).padStart(3, '0') : milliseconds}Z`;
}
