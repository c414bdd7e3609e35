import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { gunzip, inflate } from 'node:zlib';
import { parse } from 'content-type';
import { ApiError } from '../errors.ts';
import { type Json, MAX_DEPTH } from '../profile/json.ts';
import { isRecord, Unread } from '../profile/values.ts';
import { findSyntaxError } from './json-position.ts';
import { SMALL_BODY } from './reading.ts';
import { type BodyRules, hasBody, type RequestInHand, receive, tooLarge } from './request.ts';

/** Milliseconds of continuous work before other requests get a turn. */
const SLICE = 10;

/** Returns a function to await between two steps of work that may take long. */
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
 * Parses a body object by object, and yields to other requests in between. An object that must not be parsed is
 * replaced by an `Unread`, which validation refuses by its rule.
 *
 * @param pieces the objects of the body, in their order
 * @throws {SyntaxError} if it is not JSON
 */
export async function parsePieces(raw: Buffer, pieces: Piece[]): Promise<Json> {
  const yieldIfLong = createSlices();
  const values: Json[] = [];
  /** The text of the body, with `{"":N}` in the place of object N. Apart from the body itself, it has no other objects. */
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

/** Two bodies that differ only in an unparsed object must still differ. */
function digestOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('base64');
}

/** Not `br`: the Brotli decoder of many releases of Node has an out-of-bounds write (CVE-2026-111497). */
const unpackGzip = promisify(gunzip);
/** `x-gzip` is an old name of gzip (RFC 9110, section 8.4.1.3). */
const decoders = { gzip: unpackGzip, 'x-gzip': unpackGzip, deflate: promisify(inflate) } as const;

/** Memory of unpacking in multiples of the limit: the output chunks, and their copy in one piece. */
const UNPACKING = 2;

/** Approximate bytes that one decoder takes while it works. */
const DECODER = 49_152;

/**
 * `application/json`, `application/scim+json` and similar types. Parameters have no effect: JSON has none, and its
 * text is always UTF-8 (RFC 8259, sections 8.1 and 11).
 */
const JSON_TYPE = /^application\/(?:[\w.-]+\+)?json$/;

/** Types that were accepted before, so that the usual one costs a look-up. Bounded at 100 entries. */
const accepted = new Set(['application/json']);

/** Returns the media type of a Content-Type in lower case, without its parameters. */
export function mediaTypeOf(contentType: string): string {
  return parse(contentType, { parameters: false }).type;
}

/** @throws {ApiError} 415 unless the Content-Type is JSON */
export function requireJson(request: IncomingMessage): void {
  const type = request.headers['content-type'];
  if (type !== undefined && accepted.has(type)) return;
  if (type === undefined || type.length > 200 || !JSON_TYPE.test(mediaTypeOf(type)))
    throw unsupported('Content-Type', type, 'application/json, application/scim+json');
  if (accepted.size < 100) accepted.add(type);
}

/** Maximum characters of a header's value that are repeated in an answer. */
const MAX_SHOWN = 100;

/** Names the header, its value and the supported values. */
function unsupported(header: string, value: string | undefined, supported: string): ApiError {
  const shown = value?.slice(0, MAX_SHOWN).replace(/[^\x20-\x7e]/g, '?');
  const problem = shown ? `is '${shown}'` : 'is missing';
  return new ApiError('unsupportedMediaType', { suffix: `${header} ${problem}. Supported: ${supported}` });
}

/** Names the line, the column and the object of the first syntax error, if it can be found. */
function malformed(text: string): ApiError {
  const position = findSyntaxError(text);
  if (!position) return new ApiError('malformedBody');
  const { line, column, object } = position;
  return new ApiError('malformedBody', {
    suffix: `line ${line}, column ${column}${object ? `, in ${object}` : ''}`,
  });
}

/**
 * Reads and parses a JSON object. An empty body is an empty object.
 *
 * @throws {ApiError} 400 malformed or too complex, 408 incomplete, 413 over the limit, 415 unsupported encoding, 503
 * no room for a large body
 */
export async function readJsonObject(
  request: RequestInHand,
  rules: BodyRules,
): Promise<Record<string, Json>> {
  const raw = await readBody(request, rules);
  if (raw.length === 0) return {};
  // Invalid UTF-8 would silently become replacement characters.
  if (!isUtf8(raw)) throw new ApiError('malformedBody', { suffix: 'the body is not UTF-8' });
  // A byte order mark is not valid JSON, but some editors write one.
  const text = raw[0] === 0xef && raw[1] === 0xbb ? raw.subarray(3) : raw;
  const outline = rules.byObject ? outlineOf(text) : isTooComplex(text) ? 'too complex' : 'whole';
  if (outline === 'too complex') throw new ApiError('bodyTooComplex');
  if (outline === 'malformed') throw malformed(text.toString('utf8'));
  let value: Json;
  try {
    value = outline === 'whole' ? JSON.parse(text.toString('utf8')) : await parsePieces(text, outline);
  } catch {
    throw malformed(text.toString('utf8'));
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ApiError('bodyNotObject');
  return value;
}

/**
 * Reads a body, and unpacks it.
 *
 * @throws {ApiError} 400 cannot be unpacked, 408 incomplete, 413 over the limit, 415 unsupported encoding, 503 no
 * room for a large body
 */
export async function readBody(request: RequestInHand, rules: BodyRules): Promise<Buffer> {
  const { limit, reading } = rules;
  const length = Number(request.headers['content-length'] ?? 0);
  if (length > limit) throw tooLarge(rules, length);
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
  if (!Object.hasOwn(decoders, encoding))
    throw unsupported('Content-Encoding', encoding, Object.keys(decoders).join(', '));
  return decoders[encoding as keyof typeof decoders];
}

/** A body as sent, and its decoder. */
interface Packed {
  raw: Buffer;
  decode: Decode;
}

/** Unpacks a body. Its size is not known before, so a small output is tried first, and discarded if there is more. */
async function unpack(packed: Packed, request: RequestInHand, rules: BodyRules): Promise<Buffer> {
  const { limit, reading } = rules;
  const bound = reading.holds(request) ? limit : Math.min(limit, SMALL_BODY);
  try {
    return await packed.decode(packed.raw, { maxOutputLength: bound });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_BUFFER_TOO_LARGE')
      throw new ApiError('malformedBody', { suffix: 'the body cannot be unpacked by its Content-Encoding' });
  }
  if (bound === limit) throw tooLarge(rules);
  await reading.take(request, UNPACKING * limit);
  return unpack(packed, request, rules);
}

/** Bytes up to which any structure parses quickly. The usual body is not scanned. */
const HARMLESS = 16_384;

/**
 * Limits of a body's structure. The largest body that fits every other rule stays far below them. Parsing 4 MB
 * usually takes 20 ms, but 500 ms if it consists of `[` only, and 100 to 200 ms if it consists of `{}` or of keys
 * that are all different. The process cannot serve other requests during that time.
 */
export const BODY_LIMITS = { depth: 1000, containers: 200_000, keys: 80_000, keysOfOne: 10_000 };

const [QUOTE, BACKSLASH, COLON, OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [
  0x22, 0x5c, 0x3a, 0x7b, 0x7d, 0x5b, 0x5d,
];

/**
 * Whether parsing this JSON text would block the process for too long. Scans each byte once and keeps a number per
 * level. Does not check the syntax; the parser does.
 */
export function isTooComplex(text: Uint8Array): boolean {
  if (text.length <= HARMLESS) return false;
  const keysAt = new Uint16Array(BODY_LIMITS.depth + 2);
  let depth = 0;
  let containers = 0;
  let keys = 0;
  for (let i = 0; i < text.length; i++) {
    const byte = text[i];
    if (byte === QUOTE) {
      for (i++; i < text.length && text[i] !== QUOTE; i++) if (text[i] === BACKSLASH) i++;
    } else if (byte === OPEN || byte === OPEN_LIST) {
      if (++depth > BODY_LIMITS.depth || ++containers > BODY_LIMITS.containers) return true;
      keysAt[depth] = 0;
    } else if (byte === CLOSE || byte === CLOSE_LIST) {
      if (depth > 0) depth--;
    } else if (byte === COLON) {
      if (++keys > BODY_LIMITS.keys || ++keysAt[depth]! > BODY_LIMITS.keysOfOne) return true;
    }
  }
  return false;
}

/** Limits for one object of a request, far above the rules for any kind of object. */
const OBJECT_LIMITS = { depth: BODY_LIMITS.depth, containers: 50_000, keys: 20_000 };

/** A range of bytes in the body. */
interface Piece {
  start: number;
  end: number;
  /** The rule that its structure breaks; it must not be parsed. */
  rule: string | undefined;
}

/**
 * Determines how a body of arrays of objects can be parsed without blocking others: whole, object by object, or not
 * at all. An object is an element of an array that is a member of the body, or is itself such a member. Scans each
 * byte once. Does not check the syntax; the parser does.
 */
export function outlineOf(text: Uint8Array): 'whole' | 'too complex' | 'malformed' | Piece[] {
  if (text.length <= HARMLESS) return 'whole';
  const pieces: Piece[] = [];
  /** The opening bytes of the first two levels. */
  const open = [0, 0, 0];
  let depth = 0;
  const around = { containers: 0, keys: 0 };
  let one: { start: number; level: number; depth: number; containers: number; keys: number } | undefined;
  let isHeavy = false;
  let containers = 0;
  let keys = 0;
  for (let i = 0; i < text.length; i++) {
    const byte = text[i];
    if (byte === QUOTE) {
      for (i++; i < text.length && text[i] !== QUOTE; i++) if (text[i] === BACKSLASH) i++;
    } else if (byte === OPEN || byte === OPEN_LIST) {
      depth++;
      containers++;
      if (depth < 3) open[depth] = byte;
      const begins =
        !one &&
        open[1] === OPEN &&
        ((depth === 2 && byte === OPEN) || (depth === 3 && open[2] === OPEN_LIST));
      if (begins) one = { start: i, level: depth, depth: 0, containers: 0, keys: 0 };
      if (one) {
        one.containers++;
        one.depth = Math.max(one.depth, depth - one.level + 1);
      } else if (depth > BODY_LIMITS.depth) return 'too complex';
      if (!one || begins) around.containers++;
    } else if (byte === CLOSE || byte === CLOSE_LIST) {
      if (one && depth === one.level) {
        const rule = ruleOf(one);
        isHeavy ||= rule !== undefined;
        pieces.push({ start: one.start, end: i + 1, rule });
        one = undefined;
      }
      if (depth > 0) depth--;
    } else if (byte === COLON) {
      keys++;
      if (one) one.keys++;
      else around.keys++;
    }
    if (around.containers > BODY_LIMITS.containers || around.keys > BODY_LIMITS.keys) return 'too complex';
  }
  if (one) return 'malformed';
  const { containers: maxContainers, keys: maxKeys } = OBJECT_LIMITS;
  return isHeavy || containers > maxContainers || keys > maxKeys ? pieces : 'whole';
}

function ruleOf({ depth, containers, keys }: { depth: number; containers: number; keys: number }) {
  const limits = OBJECT_LIMITS;
  if (depth > limits.depth) return `it must not nest deeper than ${MAX_DEPTH}`;
  if (keys > limits.keys)
    return `it must not have more than ${limits.keys} keys, including the keys of nested objects`;
  if (containers > limits.containers)
    return `it must not have more than ${limits.containers} objects and arrays in it`;
  return undefined;
}
