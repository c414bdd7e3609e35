import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import fc from 'fast-check';

/** A body with the headers that describe it. */
export interface Load {
  bytes: Buffer;
  headers: string[];
  chunked?: boolean;
  alone?: boolean;
  /** The body ends before its declared length. */
  cut?: boolean;
}

/** 60 MB of spaces in about 60 KB, created once. */
const bombs = {
  gzip: gzipSync(Buffer.alloc(60_000_000, ' ')),
  br: brotliCompressSync(Buffer.alloc(60_000_000, ' ')),
};

const as = (bytes: Buffer, type: string, ...headers: string[]): Load => ({
  bytes,
  headers: [`Content-Type: ${type}`, ...headers],
});

export type Wrap = (bytes: Buffer, type: string) => Load;

/** Sends a body unchanged, and in every way in which it can be compressed, truncated or mislabelled. */
export const wrapping: fc.Arbitrary<Wrap> = fc.oneof(
  { weight: 30, arbitrary: fc.constant<Wrap>((bytes, type) => as(bytes, type)) },
  {
    weight: 6,
    arbitrary: fc.constantFrom<Wrap>(
      (bytes, type) => as(gzipSync(bytes), type, 'Content-Encoding: gzip'),
      (bytes, type) => as(deflateSync(bytes), type, 'Content-Encoding: deflate'),
      (bytes, type) => as(bytes, type, 'Content-Encoding: gzip'),
      (bytes, type) => as(gzipSync(bytes).subarray(0, -5), type, 'Content-Encoding: gzip'),
      (bytes, type) => as(bytes, type, 'Content-Encoding: __proto__'),
      (bytes, type) => as(bytes, type, 'Content-Encoding: gzip, gzip'),
      (bytes, type) => ({ ...as(bytes, type), chunked: true }),
      (bytes, type) => as(Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), bytes]), type),
      (bytes, type) => as(Buffer.from(bytes.toString(), 'utf16le'), `${type}; charset=utf-16`),
      (bytes, type) => as(Buffer.from(bytes.toString(), 'utf16le'), type),
      (bytes, type) => as(Buffer.from(bytes.toString(), 'latin1'), type),
      (bytes) => as(bytes, 'text/plain'),
      (bytes) => as(bytes, `application/json${'; a=b'.repeat(200)}`),
      (bytes, type) => as(bytes.subarray(0, bytes.length >> 1), type),
      (bytes, type) => ({ ...as(bytes, type), alone: true, cut: true }),
      (bytes, type) => as(Buffer.concat([bytes, bytes]), type),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.oneof(
      fc.uint8Array({ maxLength: 500 }).map(
        (noise): Wrap =>
          (_, type) =>
            as(Buffer.from(noise), type),
      ),
      fc.constantFrom<Wrap>((_, type) => as(bombs.gzip, type, 'Content-Encoding: gzip')),
      fc.constantFrom<Wrap>((_, type) => as(bombs.br, type, 'Content-Encoding: br')),
    ),
  },
);

/** A body for a request that expects none. */
export const anyLoad = fc
  .tuple(wrapping, fc.constantFrom('{}', '[]', '{"a":1}', 'null', ''))
  .map(([wrap, text]) => wrap(Buffer.from(text), 'application/json'));
