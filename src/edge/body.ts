import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { gunzip, inflate } from 'node:zlib';
import { ApiError } from '../errors.ts';
import type { AcceptedObject } from '../jobs/envelope.ts';
import { createSemaphore, type SemaphoreSettings } from '../platform/semaphore.ts';
import { type Json, jsonBytesAtLeast } from '../profile/json.ts';
import { isRecord, Unread } from '../profile/values.ts';
import { hasBody, receive } from './arriving-body.ts';
import { SMALL_BODY } from './reading.ts';
import type { BodyRules, RequestInHand } from './request.ts';
import { isTooComplex, outlineOf, type Piece } from './structure.ts';

/** Milliseconds of work in a row; then others get their turn. */
const SLICE = 10;

/** To be awaited between two steps of work that may be long. */
export function createSlices(): () => Promise<void> | undefined {
  let from = performance.now();
  return () => {
    if (performance.now() - from < SLICE) return undefined;
    return new Promise((resolve) => {
      setImmediate(() => {
        from = performance.now();
        resolve();
      });
    });
  };
}

/**
 * Parses a body object by object, and lets others have their turn in between. An object that must not be parsed is
 * an `Unread` in its place, which whoever judges it refuses by its rule.
 *
 * @param pieces the objects of the body, in their order
 * @throws {SyntaxError} when it is no JSON
 */
export async function parsePieces(raw: Buffer, pieces: Piece[]): Promise<Json> {
  const yieldIfLong = createSlices();
  const values: Json[] = [];
  /** The body with the number of each object in its place; no other object is left there. */
  const rest: string[] = [];
  let from = 0;
  for (const { start, end, rule } of pieces) {
    rest.push(raw.toString('utf8', from, start), `{"":${values.length}}`);
    from = end;
    values.push(
      rule === undefined
        ? JSON.parse(raw.toString('utf8', start, end))
        : (new Unread(rule, digestOf(raw.subarray(start, end))) as unknown as Json),
    );
    await yieldIfLong();
  }
  rest.push(raw.toString('utf8', from));
  const body: Json = JSON.parse(rest.join(''));
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return body;
  const filled = (member: Json) => (isRecord(member) ? values[member[''] as number]! : member);
  return Object.fromEntries(
    Object.entries(body).map(([name, member]) => [
      name,
      Array.isArray(member) ? member.map(filled) : filled(member),
    ]),
  );
}

/** Two bodies that differ in what is not read differ. */
function digestOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('base64');
}

/** Not `br`: the Brotli decoder of many releases of Node writes where it must not (CVE-2026-111497). */
const decoders = { gzip: promisify(gunzip), deflate: promisify(inflate) } as const;

/** What unpacking takes at most, in bodies: what has come out already, and that as one piece. */
const UNPACKING = 2;

/** Bytes that one decoder takes while it works, about. */
const DECODER = 49_152;

/**
 * `application/json`, `application/scim+json` and their like, in UTF-8. A parameter is a `;` and what follows it up to
 * the next. There is one way to read a type, so that a hostile one costs no more than an honest one.
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
 * @throws {ApiError} 400 malformed or too complex, 408 incomplete, 413 over the limit, 415 an encoding that we do not
 *   read, 503 no room for a large one
 */
export async function readJsonObject(
  request: RequestInHand,
  rules: BodyRules,
): Promise<Record<string, Json>> {
  const raw = await readBody(request, rules);
  if (raw.length === 0) return {};
  // Invalid UTF-8 would silently become replacement characters.
  if (!isUtf8(raw)) throw new ApiError('malformedBody');
  // A byte order mark is no JSON, but some editors leave one.
  const text = raw[0] === 0xef && raw[1] === 0xbb ? raw.subarray(3) : raw;
  const outline = rules.byObject ? outlineOf(text) : isTooComplex(text) ? 'too complex' : 'whole';
  if (outline === 'too complex') throw new ApiError('bodyTooComplex');
  if (outline === 'malformed') throw new ApiError('malformedBody');
  let value: Json;
  try {
    value = outline === 'whole' ? JSON.parse(text.toString('utf8')) : await parsePieces(text, outline);
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
export async function readBody(request: RequestInHand, rules: BodyRules): Promise<Buffer> {
  const { limit, reading } = rules;
  const length = Number(request.headers['content-length'] ?? 0);
  if (length > limit) throw new ApiError('bodyTooLarge');
  const decode = decoderOf(request.headers['content-encoding']?.toLowerCase());
  if (!hasBody(request)) return Buffer.alloc(0);
  const arriving = request.arriving ?? receive(request, request.res!, reading.small);
  const room = decode ? UNPACKING * limit : length || limit;
  if (length > SMALL_BODY) await reading.take(request, room);
  const raw = await arriving.read(rules, room, length);
  if (decode) arriving.grow(DECODER);
  const body = decode ? await unpack({ raw, decode }, request, rules) : raw;
  if (body.length > SMALL_BODY) reading.shrink(request, body.length);
  else if (decode) arriving.grow(body.length - DECODER);
  return body;
}

type Decode = (typeof decoders)[keyof typeof decoders];

function decoderOf(encoding: string | undefined): Decode | undefined {
  if (encoding === undefined || encoding === 'identity') return undefined;
  if (!Object.hasOwn(decoders, encoding)) throw new ApiError('unsupportedMediaType');
  return decoders[encoding as keyof typeof decoders];
}

/** A body as it was sent, and what unpacks it. */
interface Packed {
  raw: Buffer;
  decode: Decode;
}

/** How much comes out is known when it is out: a little is tried first, and thrown away where there is more. */
async function unpack(packed: Packed, request: RequestInHand, rules: BodyRules): Promise<Buffer> {
  const { limit, reading } = rules;
  const bound = reading.holds(request) ? limit : Math.min(limit, SMALL_BODY);
  try {
    return await packed.decode(packed.raw, { maxOutputLength: bound });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_BUFFER_TOO_LARGE') throw new ApiError('malformedBody');
  }
  if (bound === limit) throw new ApiError('bodyTooLarge');
  await reading.take(request, UNPACKING * limit);
  return unpack(packed, request, rules);
}

/**
 * Bytes of the JSON text of a request's accepted objects, about: the length of its body, which costs a look at
 * a header. A compressed body, or one without a length, says nothing of them, and they are measured.
 */
export function bytesOf({ headers }: IncomingMessage, objects: AcceptedObject[]): number {
  if (headers['content-length'] !== undefined && headers['content-encoding'] === undefined) {
    return Number(headers['content-length']);
  }
  return objects.reduce((bytes, object) => bytes + jsonBytesAtLeast(object as unknown as Json), 0);
}

export type RequestSemaphoreSettings = Omit<SemaphoreSettings, 'refusal' | 'isHeavy' | 'isExcused'>;

/**
 * The semaphore of requests that share a few connections: whoever is in gets through, instead of all getting through a
 * step at a time and none in time. Refuses with 503.
 */
export function createRequestSemaphore(settings: RequestSemaphoreSettings) {
  return createSemaphore({
    ...settings,
    refusal: () => new ApiError('unavailable', undefined, { 'Retry-After': '1' }),
  });
}
