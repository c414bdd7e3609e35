import { Decompress } from 'fzstd';
import { snappyUncompressor } from 'hysnappy';

/**
 * Thrown for Zstandard data that cannot be decompressed. The message does not contain the name of the file.
 */
export class BrokenZstd extends Error {
  override name = 'BrokenZstd';
}

/** Maximum bytes of the decompression window: the largest window that programs use by default. */
const MAX_WINDOW_BYTES = 33_554_432;

/**
 * Compressed bytes per step, and the maximum bytes that a step may decompress to: a few bytes can expand to
 * very many.
 */
const STEP_BYTES = 65_536;
const MAX_STEP_OUTPUT_BYTES = 33_554_432;

/**
 * Decompresses Zstandard. Checksums, if there are any, are not verified.
 * @throws {BrokenZstd}
 */
export async function* unzstd(packed: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let unpacked: Buffer[] = [];
  let bytes = 0;
  const decompress = new Decompress((chunk) => {
    bytes += chunk.length;
    if (bytes > MAX_STEP_OUTPUT_BYTES)
      throw new BrokenZstd(
        `${STEP_BYTES} bytes of it decompress to more than ${MAX_STEP_OUTPUT_BYTES} bytes, which is the limit`,
      );
    // The decompressor reuses the memory of its output.
    if (chunk.length > 0) unpacked.push(Buffer.from(chunk));
  });
  function push(step: Uint8Array, isLast: boolean): Buffer[] {
    unpacked = [];
    bytes = 0;
    try {
      decompress.push(step, isLast);
    } catch (error) {
      if (error instanceof BrokenZstd) throw error;
      throw new BrokenZstd(`it cannot be decompressed: ${(error as Error).message}`, { cause: error });
    }
    return unpacked;
  }

  const follow = followFrames();
  for await (const chunk of packed) {
    follow(chunk);
    for (let at = 0; at < chunk.length; at += STEP_BYTES)
      yield* push(chunk.subarray(at, at + STEP_BYTES), false);
  }
  yield* push(new Uint8Array(0), true);
}

const FRAME = 0xfd2fb528;
/** Magic number of skippable frames, without its last four bits. */
const SKIPPABLE = 0x184d2a5;

/**
 * Follows the frames by the sizes of their blocks and checks each frame header before the frame is
 * decompressed, because the header declares the memory that decompression takes (RFC 8878, 3.1.1).
 */
function followFrames(): (chunk: Buffer) => void {
  /** Bytes to skip before the next header. */
  let skip = 0;
  let held: Buffer = Buffer.alloc(0);
  let state: 'frame' | 'block' | 'broken' = 'frame';
  let hasSum = false;

  /** Reads a frame header. Returns its length, or undefined if it is incomplete. */
  function readFrameHeader(at: number): number | undefined {
    const head = held.subarray(at);
    if (head.length < 5) return undefined;
    const magic = head.readUInt32LE(0);
    if (magic >>> 4 === SKIPPABLE) {
      if (head.length < 8) return undefined;
      skip = head.readUInt32LE(4);
      return 8;
    }
    if (magic !== FRAME) {
      // The decompressor reports the error.
      state = 'broken';
      return undefined;
    }
    const descriptor = head[4]!;
    const isSingle = (descriptor & 0x20) !== 0;
    const dictionaryBytes = [0, 1, 2, 4][descriptor & 3]!;
    const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][descriptor >> 6]!;
    const sizeAt = 5 + (isSingle ? 0 : 1) + dictionaryBytes;
    if (head.length < sizeAt + sizeBytes) return undefined;
    // A single segment is decompressed as a whole, so its size is its window.
    requireWindow(isSingle ? contentSize(head, sizeAt, sizeBytes) : windowOf(head[5]!));
    hasSum = (descriptor & 4) !== 0;
    state = 'block';
    return sizeAt + sizeBytes;
  }

  function readBlockHeader(at: number): number | undefined {
    if (held.length < at + 3) return undefined;
    const head = held.readUIntLE(at, 3);
    const isRunLength = ((head >> 1) & 3) === 1;
    skip = isRunLength ? 1 : head >> 3;
    if ((head & 1) === 1) {
      skip += hasSum ? 4 : 0;
      state = 'frame';
    }
    return 3;
  }

  return (chunk) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    let at = 0;
    while (state !== 'broken') {
      const passed = Math.min(skip, held.length - at);
      at += passed;
      skip -= passed;
      if (skip > 0 || at >= held.length) break;
      const taken = state === 'frame' ? readFrameHeader(at) : readBlockHeader(at);
      if (taken === undefined) break;
      at += taken;
    }
    held = state === 'broken' ? Buffer.alloc(0) : Buffer.from(held.subarray(Math.min(at, held.length)));
  };
}

function windowOf(descriptor: number): number {
  return 2 ** (10 + (descriptor >> 3)) * (1 + (descriptor & 7) / 8);
}

function contentSize(head: Buffer, at: number, bytes: number): number {
  if (bytes === 8) return Number(head.readBigUInt64LE(at));
  return bytes === 2 ? head.readUInt16LE(at) + 256 : head.readUIntLE(at, bytes);
}

function requireWindow(window: number): void {
  if (window > MAX_WINDOW_BYTES)
    throw new BrokenZstd(
      `decompression takes more than ${MAX_WINDOW_BYTES} bytes of memory, which is the limit; write it without --long or --ultra`,
    );
}

/** Thrown for Snappy data that cannot be decompressed. The message does not contain the name of the file. */
class BrokenSnappy extends Error {
  override name = 'BrokenSnappy';
}

/**
 * Creates a function that decompresses blocks of Snappy (raw format, without frames). Its memory grows to the
 * largest block and is released with the function.
 * @param maxBytes maximum bytes of a block after decompression
 */
export function createUnsnappy(maxBytes: number): (packed: Buffer) => Buffer {
  const uncompress = snappyUncompressor();
  return (packed) => {
    const length = snappyLength(packed);
    if (length > maxBytes)
      throw new BrokenSnappy(`it has more than ${maxBytes} bytes after decompression, which is the limit`);
    const { buffer, byteOffset } = uncompress(packed, length);
    return Buffer.from(buffer, byteOffset, length);
  };
}

/** Reads the length after decompression from the start of a block, because hysnappy requires it. @throws {BrokenSnappy} */
function snappyLength(packed: Buffer): number {
  let length = 0;
  for (let at = 0; at < 5; at++) {
    const byte = packed[at];
    if (byte === undefined) break;
    length += (byte & 0x7f) * 2 ** (7 * at);
    if (byte < 0x80) return length;
  }
  throw new BrokenSnappy('its length is missing or not valid');
}
