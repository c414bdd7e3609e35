/** Delimiters that are detected in CSV files. */
export const DELIMITERS = [',', ';', '\t', '|'];

const QUOTE = 0x22;
const CR = 0x0d;
const LF = 0x0a;
const SPACE = 0x20;

/**
 * Maximum bytes of a CSV header in a sync. The delimiter is searched in as many characters from the beginning of a
 * file.
 */
export const MAX_HEADER_BYTES = 65_536;

/**
 * Maximum bytes of a row: the largest payload, if each of its characters is a quote and doubled, and the other columns.
 */
export const MAX_ROW_BYTES = 4_194_304;

/**
 * Parses the line `sep=;` that Excel writes before the header. Returns the delimiter and the length of the
 * line with its line break.
 */
export function separatorLineOf(text: string): { delimiter: string; length: number } | undefined {
  const [line, delimiter] =
    /^"?sep=([^\w\s"]|\t)"?(?:\r\n|\r|\n|$)/i.exec(text.slice(0, MAX_HEADER_BYTES)) ?? [];
  return line !== undefined && delimiter! < '\x80'
    ? { delimiter: delimiter!, length: line.length }
    : undefined;
}

/**
 * Returns the delimiter that occurs most often in the first line outside quotes, or a comma if none occurs.
 */
export function guessDelimiter(text: string): string {
  const start = text.slice(0, MAX_HEADER_BYTES);
  const counts = countDelimiters(start, true) ?? countDelimiters(start, false)!;
  return DELIMITERS[counts.indexOf(Math.max(...counts))]!;
}

/**
 * Counts delimiters in the first line. Returns undefined if a quote is still open at the end, which shows
 * that quotes have no special meaning in this file.
 */
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
 * Creates a scanner for the ends of CSV records, whose values may contain line breaks. Outside quotes, each
 * CR LF, LF and CR ends a record, so that a stray CR never becomes part of a value.
 *
 * @param delimiter if absent, quotes have no meaning and every line break ends a record
 */
export function createRecordScanner(delimiter?: string) {
  const separator = delimiter?.charCodeAt(0);
  let passed = 0;
  let openedAt: number | undefined;
  /** Whether the last byte is a quote inside quotes. It closes them unless another quote follows. */
  let pending = false;
  /** Whether the rest of the line is skipped, because text follows a closing quote. */
  let skipping = false;
  /** Whether the last byte is a CR that ends a record. A following LF belongs to the same line break. */
  let isAfterCr = false;
  /** Last byte other than a space. Spaces may surround quotes. */
  let last = LF;

  return {
    /** @param onEnd called with the offset in the chunk after each line break that ends a record, in order */
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
        // Search again only after the last result; otherwise each quote of a long line would search to the
        // end of the chunk.
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
        const before = lastExcept(SPACE, chunk.subarray(0, quote)) ?? last;
        // A quote in the middle of an unquoted value is an ordinary character.
        if (before === separator || before === LF || before === CR) openedAt = passed + quote;
        at = quote + 1;
      }
      last = lastExcept(SPACE, chunk) ?? last;
      passed += chunk.length;
    },

    /** Returns the offset of a quote that is not closed, if there is one. */
    open: () => (pending ? undefined : openedAt),
  };
}

function lastExcept(byte: number, bytes: Buffer): number | undefined {
  let at = bytes.length - 1;
  while (at >= 0 && bytes[at] === byte) at -= 1;
  return bytes[at];
}
