/**
 * Formats an integer with commas between the thousands. `toLocaleString` would load tables of all languages
 * when a process starts.
 */
export function grouped(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** Formats sorted numbers as ranges, for example `0-7, 9`. */
export function rangesOf(numbers: number[]): string {
  const ranges: [first: number, last: number][] = [];
  for (const number of numbers) {
    const range = ranges.at(-1);
    if (range && range[1] === number - 1) range[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(', ');
}

let second = Number.NaN;
let untilSecond = '';

const shortTime = new Intl.DateTimeFormat('en-US', {
  ...{ month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' },
  ...{ hourCycle: 'h23', timeZone: 'UTC' },
});

/** Formats a time in the coming weeks for a sentence, for example `Dec 1, 04:01 UTC`. */
export const shortUtc = (at: Date): string => `${shortTime.format(at)} UTC`;

/**
 * Returns `new Date(now).toISOString()` in a fifth of the time: the first 20 characters are cached for the
 * current second.
 *
 * @param now whole epoch milliseconds, not before 1970
 */
export function isoTime(now: number): string {
  const milliseconds = now % 1000;
  if (now - milliseconds !== second) {
    second = now - milliseconds;
    untilSecond = new Date(second).toISOString().slice(0, 20);
  }
  return `${untilSecond}${milliseconds < 100 ? String(milliseconds).padStart(3, '0') : milliseconds}Z`;
}

/**
 * Truncates a text to `maxLength` characters and an ellipsis. Use it for texts of other servers, which may have
 * any length.
 */
export const shortened = (text: string, maxLength: number): string =>
  text.length > maxLength ? `${text.slice(0, maxLength)}…` : text;

/** Returns one line that describes an error, without a stack. */
export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Prisma writes the call, its source and blank lines before the reason, so the last line is the reason.
  const lines = error.message.split('\n').map((line) => line.trim());
  return lines.findLast((line) => line !== '') ?? codeOf(error) ?? error.name;
}

/** Returns the code that Node, Postgres or Prisma set on the error. */
export function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** How long, in the two largest units: `3 d 4 h`, `12 min 5 s`, `0.4 s`. */
export function duration(seconds: number): string {
  if (seconds < 10) return `${Math.max(0, Math.round(seconds * 10) / 10)} s`;
  const whole = Math.round(seconds);
  const units: [string, number][] = [
    ['d', Math.floor(whole / 86_400)],
    ['h', Math.floor(whole / 3600) % 24],
    ['min', Math.floor(whole / 60) % 60],
    ['s', whole % 60],
  ];
  const first = units.findIndex(([, count]) => count > 0);
  return units
    .slice(first, first + 2)
    .filter(([, count]) => count > 0)
    .map(([unit, count]) => `${count} ${unit}`)
    .join(' ');
}

/** A number with its unit, which is left in the singular for one. */
export function count(number: number, unit: string, plural = `${unit}s`): string {
  return `${grouped(number)} ${number === 1 ? unit : plural}`;
}
