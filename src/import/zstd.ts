import { Decompress } from 'fzstd';

/** What cannot be unpacked; the message has no name of the file. */
export class BrokenZstd extends Error {
  override name = 'BrokenZstd';
}

/** Bytes that unpacking may look back: what programs use unless told to take more memory. */
const MOST_WINDOW_BYTES = 33_554_432;

/** Packed bytes at a time, and what may come of them: a few bytes may stand for very many. */
const STEP_BYTES = 65_536;
const MOST_OF_STEP_BYTES = 33_554_432;

/**
 * Unpacks Zstandard. Its sums are not compared, as far as there are any.
 * @throws {BrokenZstd}
 */
export async function* unzstd(packed: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let unpacked: Buffer[] = [];
  let bytes = 0;
  const decompress = new Decompress((chunk) => {
    bytes += chunk.length;
    if (bytes > MOST_OF_STEP_BYTES)
      throw new BrokenZstd(
        `it is not read: ${STEP_BYTES} bytes of it are more than ${MOST_OF_STEP_BYTES} unpacked`,
      );
    // What it gives out is its own memory.
    if (chunk.length > 0) unpacked.push(Buffer.from(chunk));
  });
  function push(step: Uint8Array, isLast: boolean): Buffer[] {
    unpacked = [];
    bytes = 0;
    try {
      decompress.push(step, isLast);
    } catch (error) {
      if (error instanceof BrokenZstd) throw error;
      throw new BrokenZstd(`it cannot be unpacked: ${(error as Error).message}`, { cause: error });
    }
    return unpacked;
  }

  let isFirst = true;
  for await (const chunk of packed) {
    if (isFirst) requireWindow(chunk);
    isFirst = false;
    for (let at = 0; at < chunk.length; at += STEP_BYTES)
      yield* push(chunk.subarray(at, at + STEP_BYTES), false);
  }
  yield* push(new Uint8Array(0), true);
}

/** The head of a frame says how much memory it takes (RFC 8878, 3.1.1.1). */
function requireWindow(head: Buffer): void {
  const descriptor = head[4] ?? 0;
  const isSingle = (descriptor & 0x20) !== 0;
  const [exponent, mantissa] = [(head[5] ?? 0) >> 3, (head[5] ?? 0) & 7];
  const window = 2 ** (10 + exponent) * (1 + mantissa / 8);
  if (!isSingle && window > MOST_WINDOW_BYTES)
    throw new BrokenZstd(
      `it is not read: unpacking it takes more than ${MOST_WINDOW_BYTES} bytes (write it without --long or --ultra)`,
    );
}
