/** What may stand between the values of a CSV file. */
export const DELIMITERS = [',', ';', '\t', '|'];

const QUOTE = 0x22;
const CR = 0x0d;
const LF = 0x0a;
const SPACE = 0x20;

/** Characters at the beginning of a file in which the delimiter is looked for. */
const MOST_HEADER = 65_536;

/** The line `sep=;` that Excel writes before the header: its delimiter, and its length with the line break. */
export function separatorLineOf(text: string): { delimiter: string; length: number } | undefined {
  const [line, delimiter] = /^"?sep=([^\w\s"]|\t)"?(?:\r\n|\r|\n|$)/i.exec(text.slice(0, MOST_HEADER)) ?? [];
  return line !== undefined && delimiter! < '\x80'
    ? { delimiter: delimiter!, length: line.length }
    : undefined;
}

/** The delimiter that occurs most often in the first line, outside quotes; a comma where none occurs. */
export function guessDelimiter(text: string): string {
  const start = text.slice(0, MOST_HEADER);
  const counts = countDelimiters(start, true) ?? countDelimiters(start, false)!;
  return DELIMITERS[counts.indexOf(Math.max(...counts))]!;
}

/** Undefined when a quote is open at the end: then quotes are no signs of CSV here. */
function countDelimiters(text: string, isQuoting: boolean): number[] | undefined {
  const counts = DELIMITERS.map(() => 0);
  let isQuoted = false;
  for (const character of text) {
    if (isQuoting && character === '"') isQuoted = !isQuoted;
    else if (!isQuoted && (character === '\n' || character === '\r')) return counts;
    else if (!isQuoted && DELIMITERS.includes(character)) counts[DELIMITERS.indexOf(character)]! += 1;
  }
  return isQuoted ? undefined : counts;
}

/**
 * Finds where the records of a CSV file end, whose values may hold line breaks. Outside quotes each CR LF, LF and CR
 * ends a record, so that a stray CR never becomes part of a value.
 *
 * @param delimiter absent: quotes mean nothing, and every line break ends a record
 */
export function createRecordScanner(delimiter?: string) {
  const separator = delimiter?.charCodeAt(0);
  let passed = 0;
  let openedAt: number | undefined;
  /** The last byte is a quote within quotes: it closes them, unless a second one follows. */
  let pending = false;
  /** Of a broken value, the line is given up. */
  let skipping = false;
  /** The last byte is a CR that ends a record. An LF that follows belongs to the same line break. */
  let isAfterCr = false;
  /** Last byte but for spaces, which may stand around quotes. */
  let last = LF;

  return {
    /**
     * @param onEnd gets the place within the chunk behind each line break that ends a record, in their order
     */
    scan(chunk: Buffer, onEnd: (end: number) => void): void {
      let at = 0;
      if (isAfterCr && chunk.length > 0) {
        isAfterCr = false;
        at = chunk[0] === LF ? 1 : 0;
        onEnd(at);
      }
      let quote = separator === undefined ? -1 : chunk.indexOf(QUOTE);
      let lf = chunk.indexOf(LF);
      let cr = chunk.indexOf(CR);
      while (at < chunk.length) {
        if (pending) {
          const next = chunk[at]!;
          if (next === SPACE) {
            at += 1;
            continue;
          }
          pending = false;
          if (next === QUOTE) at += 1;
          else {
            openedAt = undefined;
            skipping = next !== separator && next !== LF && next !== CR;
          }
          continue;
        }
        if (quote !== -1 && quote < at) quote = chunk.indexOf(QUOTE, at);
        if (openedAt !== undefined) {
          if (quote === -1) break;
          pending = true;
          at = quote + 1;
          continue;
        }
        // Asked again only behind the last answer: else each quote of a long line reads to the chunk's end.
        if (lf !== -1 && lf < at) lf = chunk.indexOf(LF, at);
        if (cr !== -1 && cr < at) cr = chunk.indexOf(CR, at);
        const end = cr === -1 || (lf !== -1 && lf < cr) ? lf : cr;
        if (end !== -1 && (skipping || quote === -1 || end < quote)) {
          skipping = false;
          at = end === cr && lf === cr + 1 ? end + 2 : end + 1;
          isAfterCr = end === cr && at === chunk.length && lf !== cr + 1;
          if (!isAfterCr) onEnd(at);
          continue;
        }
        if (skipping || quote === -1) break;
        const before = lastBut(SPACE, chunk.subarray(0, quote)) ?? last;
        // Anywhere else in a value without quotes it is a character as any other.
        if (before === separator || before === LF || before === CR) openedAt = passed + quote;
        at = quote + 1;
      }
      last = lastBut(SPACE, chunk) ?? last;
      passed += chunk.length;
    },

    /** The byte at which a quote has opened that is not closed, if there is one. */
    open: () => (pending ? undefined : openedAt),
  };
}

function lastBut(byte: number, bytes: Buffer): number | undefined {
  let at = bytes.length - 1;
  while (at >= 0 && bytes[at] === byte) at -= 1;
  return bytes[at];
}
