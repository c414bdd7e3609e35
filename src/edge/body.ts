import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { gunzip, inflate } from 'node:zlib';
import { ApiError } from '../errors.ts';
import type { Json } from '../profile/json.ts';
import type { RequestInHand } from './broken-requests.ts';
import { type Reading, SMALL_BODY } from './reading.ts';
import { isTooComplex } from './structure.ts';

/** Not `br`: the Brotli decoder of many releases of Node writes where it must not (CVE-2026-111497). */
const decoders = { gzip: promisify(gunzip), deflate: promisify(inflate) } as const;

/** What unpacking takes at most, in bodies: what has come out already, and that as one piece. */
const UNPACKING = 2;

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

/** How much of a body is read, and when. */
export interface BodyRules {
  /** Bytes, of the body as sent and as unpacked. */
  limit: number;
  /** Lets large bodies in; small ones pass it by. */
  reading: Reading;
}

/**
 * Reads and parses a JSON object. An empty body is an empty object.
 *
 * @throws {ApiError} 400 malformed or too complex, 408 incomplete, 413 over the limit, 415 an encoding that we do not
 *   read, 503 no room for a large one
 */
export async function readJsonObject(
  request: IncomingMessage,
  rules: BodyRules,
): Promise<Record<string, Json>> {
  const raw = await readBody(request, rules);
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
 * @throws {ApiError} 400 cannot be unpacked, 408 incomplete, 413 over the limit, 415 an encoding that we do not read,
 *   503 no room for a large one
 */
export async function readBody(request: IncomingMessage, rules: BodyRules): Promise<Buffer> {
  const { limit, reading } = rules;
  const length = Number(request.headers['content-length'] ?? 0);
  if (length > limit) throw new ApiError('bodyTooLarge');
  const decode = decoderOf(request.headers['content-encoding']?.toLowerCase());
  const room = decode ? UNPACKING * limit : length || limit;
  if (length > SMALL_BODY) await reading.take(request, room);
  // One piece from the start: chunks that are joined at the end would take as much once more.
  const whole = length > SMALL_BODY ? Buffer.allocUnsafeSlow(length) : undefined;
  const raw = await collect(request, rules, room, whole);
  const body = decode ? await unpack(request, rules, raw, decode) : raw;
  if (body.length > SMALL_BODY) reading.shrink(request, body.length);
  return body;
}

type Decode = (typeof decoders)[keyof typeof decoders];

function decoderOf(encoding: string | undefined): Decode | undefined {
  if (encoding === undefined || encoding === 'identity') return undefined;
  if (!Object.hasOwn(decoders, encoding)) throw new ApiError('unsupportedMediaType');
  return decoders[encoding as keyof typeof decoders];
}

/** How much comes out is known when it is out: a little is tried first, and thrown away where there is more. */
async function unpack(
  request: IncomingMessage,
  rules: BodyRules,
  raw: Buffer,
  decode: Decode,
): Promise<Buffer> {
  const { limit, reading } = rules;
  const bound = reading.holds(request) ? limit : Math.min(limit, SMALL_BODY);
  try {
    return await decode(raw, { maxOutputLength: bound });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_BUFFER_TOO_LARGE') throw new ApiError('malformedBody');
  }
  if (bound === limit) throw new ApiError('bodyTooLarge');
  await reading.take(request, UNPACKING * limit);
  return unpack(request, rules, raw, decode);
}

/**
 * Listeners instead of an async iterator: half the cost for the usual body of one chunk.
 *
 * @param room bytes that the body takes when it turns out to be large; nothing is read until there is that much
 * @param into what a body of known length is read into
 */
function collect(
  request: RequestInHand,
  { limit, reading }: BodyRules,
  room: number,
  into?: Buffer,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    // The rest did not come in time, or its sender is gone. Nothing more comes then, not even what has arrived.
    let whole = false;
    const incomplete = () => {
      if (!whole) reject(new ApiError(request.broken ?? 'bodyTooSlow'));
    };
    if (request.destroyed) return incomplete();
    let chunks: Buffer[] = [];
    let size = 0;
    let bound = reading.holds(request) ? limit : Math.min(limit, SMALL_BODY);
    const refuse = (error: unknown) => {
      chunks = [];
      size = 0;
      request.removeAllListeners('data');
      request.resume();
      reject(error);
    };
    request.on('data', (chunk: Buffer) => {
      if (into) chunk.copy(into, size);
      else chunks.push(chunk);
      size += chunk.length;
      if (size <= bound) return;
      if (size > limit) return refuse(new ApiError('bodyTooLarge'));
      bound = limit;
      request.pause();
      reading.take(request, room).then(() => request.resume(), refuse);
    });
    request.on('end', () => {
      // Every request closes some time, and an error costs a stack.
      whole = true;
      resolve(into?.subarray(0, size) ?? (chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, size)));
    });
    request.on('error', incomplete);
    request.on('close', incomplete);
  });
}
