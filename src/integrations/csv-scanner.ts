/** What may stand between the values of a CSV file. */
export const DELIMITERS = [',', ';', '\t', '|'];

const QUOTE = 0x22;
const CR = 0x0d;
const LF = 0x0a;
const SPACE = 0x20;

/** Finds where the records of a CSV file end, whose values may hold line breaks. Lines end in LF or CR LF. */
export function createRecordScanner(delimiter: string) {
  const separator = delimiter.charCodeAt(0);
  let passed = 0;
  let openedAt: number | undefined;
  /** The last byte is a quote within quotes: it closes them, unless a second one follows. */
  let pending = false;
  /** Of a broken value, the line is given up. */
  let skipping = false;
  /** Last byte but for spaces, which may stand around quotes. */
  let last = LF;

  return {
    /**
     * @param onEnd gets the place within the chunk behind each line break that ends a record, in their order
     */
    scan(chunk: Buffer, onEnd: (end: number) => void): void {
      let at = 0;
      let quote = chunk.indexOf(QUOTE);
      let end = chunk.indexOf(LF);
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
        if (end !== -1 && end < at) end = chunk.indexOf(LF, at);
        if (end !== -1 && (skipping || quote === -1 || end < quote)) {
          skipping = false;
          at = end + 1;
          onEnd(at);
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
