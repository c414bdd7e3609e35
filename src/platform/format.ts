/**
 * A whole number with commas between its thousands, as the texts of this service write it. `toLocaleString` would load
 * tables of all languages at the start of each process.
 */
export function grouped(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** As `0-7, 9`: numbers in order, those that follow each other as a range. */
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

/** A text, or so many characters of its beginning: the words of somebody else's server may have any length. */
export const shortened = (text: string, most: number): string =>
  text.length > most ? `${text.slice(0, most)}…` : text;

/** The one line that says what went wrong, without a stack. */
export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Prisma puts the call, its source and blank lines before the reason; the reason stands last.
  const lines = error.message.split('\n').map((line) => line.trim());
  return lines.findLast((line) => line !== '') ?? codeOf(error) ?? error.name;
}

/** The code that Node, Postgres or Prisma gave the error. */
export function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}
