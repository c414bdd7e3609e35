import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import { ApiError } from '../errors.ts';
import type { Json } from '../profile/json.ts';
import type { RequestInHand } from './broken-requests.ts';
import { isTooComplex } from './structure.ts';
import { createTurns } from './turns.ts';

const decoders = {
  gzip: promisify(gunzip),
  deflate: promisify(inflate),
  br: promisify(brotliDecompress),
} as const;

/** Few: each holds up to a whole body twice, and many at a time would be no faster. */
const unpackInTurn = createTurns({ atOnce: 2, mostWaiting: 1000, patience: 10_000 });

/**
 * `application/json`, `application/scim+json` and their like, in UTF-8. A parameter is a `;` and what follows
 * it up to the next: there is one way to read a type, so that a hostile one costs no more than an honest one.
 */
const JSON_TYPE =
  /^application\/(?:[\w.-]+\+)?json\s*(?:;(?!\s*charset\b)[^;]*)*(?:;\s*charset\s*=\s*"?utf-?8"?\s*(?:;(?!\s*charset\b)[^;]*)*)?$/i;

/** The types that passed, so that the usual one costs a look-up. Bounded: only the accepted ones enter. */
const accepted = new Set(['application/json']);

/** @throws {ApiError} 415 unless the request says that it carries JSON */
export function requireJson(request: IncomingMessage): void {
  const type = request.headers['content-type'];
  if (type !== undefined && accepted.has(type)) return;
  if (type === undefined || type.length > 200 || !JSON_TYPE.test(type))
    throw new ApiError('unsupportedMediaType');
  if (accepted.size < 100) accepted.add(type);
}

/**
 * Reads and parses a JSON object. An empty body is an empty object.
 *
 * @param limit bytes, of the body as sent and as decompressed
 * @throws {ApiError} 400 malformed or too complex, 408 incomplete, 413 over the limit, 415 an encoding that we do not read
 */
export async function readJsonObject(request: IncomingMessage, limit: number): Promise<Record<string, Json>> {
  const raw = await readBody(request, limit);
  if (raw.length === 0) return {};
  // Invalid UTF-8 would silently become replacement characters.
  if (!isUtf8(raw)) throw new ApiError('malformedBody');
  if (isTooComplex(raw)) throw new ApiError('bodyTooComplex');
  let value: Json;
  try {
    // A byte order mark is no JSON, but some editors leave one.
    value = JSON.parse(raw[0] === 0xef && raw[1] === 0xbb ? raw.toString('utf8', 3) : raw.toString('utf8'));
  } catch {
    throw new ApiError('malformedBody');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ApiError('bodyNotObject');
  return value;
}

/**
 * Reads a body, and unpacks it.
 *
 * @param limit bytes, of the body as sent and as decompressed
 * @throws {ApiError} 400 cannot be unpacked, 408 incomplete, 413 over the limit, 415 an encoding that we do not read
 */
export async function readBody(request: IncomingMessage, limit: number): Promise<Buffer> {
  if (Number(request.headers['content-length'] ?? 0) > limit) throw new ApiError('bodyTooLarge');
  const raw = await collect(request, limit);
  const encoding = request.headers['content-encoding']?.toLowerCase();
  if (encoding === undefined || encoding === 'identity') return raw;
  if (!Object.hasOwn(decoders, encoding)) throw new ApiError('unsupportedMediaType');
  try {
    return await unpackInTurn(() =>
      decoders[encoding as keyof typeof decoders](raw, { maxOutputLength: limit }),
    );
  } catch (error) {
    throw new ApiError(
      (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE' ? 'bodyTooLarge' : 'malformedBody',
    );
  }
}

/** Listeners instead of an async iterator: half the cost for the usual body of one chunk. */
function collect(request: RequestInHand, limit: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    // The rest did not come in time, or its sender is gone. Nothing more comes then, not even what has arrived.
    let whole = false;
    const incomplete = () => {
      if (!whole) reject(new ApiError(request.broken ?? 'bodyTooSlow'));
    };
    if (request.destroyed) return incomplete();
    const chunks: Buffer[] = [];
    let size = 0;
    request.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > limit) {
        request.removeAllListeners('data');
        request.resume();
        reject(new ApiError('bodyTooLarge'));
        return;
      }
      chunks.push(chunk);
    });
    request.on('end', () => {
      // Every request closes some time, and an error costs a stack.
      whole = true;
      resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, size));
    });
    request.on('error', incomplete);
    request.on('close', incomplete);
  });
}
