import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { gunzip, inflate } from 'node:zlib';
import { ApiError } from '../errors.ts';
import { type Json, MAX_DEPTH } from '../profile/json.ts';
import { isRecord, Unread } from '../profile/values.ts';
import { findSyntaxError } from './json-position.ts';
import { SMALL_BODY } from './reading.ts';
import { type BodyRules, hasBody, type RequestInHand, receive, tooLarge } from './request.ts';

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
const unpackGzip = promisify(gunzip);
/** `x-gzip` is an old name of gzip (RFC 9110, section 8.4.1.3). */
const decoders = { gzip: unpackGzip, 'x-gzip': unpackGzip, deflate: promisify(inflate) } as const;

/** What unpacking takes at most, in bodies: what has come out already, and that as one piece. */
const UNPACKING = 2;

/** Bytes that one decoder takes while it works, about. */
const DECODER = 49_152;

/**
 * `application/json`, `application/scim+json` and similar types. Parameters have no effect: JSON has none, and its text is
 * always UTF-8 (RFC 8259, sections 8.1 and 11).
 */
const JSON_TYPE = /^application\/(?:[\w.-]+\+)?json\s*(?:;.*)?$/i;

/** The types that passed, so that the usual one costs a look-up. Bounded: only the accepted ones enter. */
const accepted = new Set(['application/json']);

/** @throws {ApiError} 415 unless the request says that it carries JSON */
export function requireJson(request: IncomingMessage): void {
  const type = request.headers['content-type'];
  if (type !== undefined && accepted.has(type)) return;
  if (type === undefined || type.length > 200 || !JSON_TYPE.test(type))
    throw unsupported('Content-Type', type, 'application/json, application/scim+json');
  if (accepted.size < 100) accepted.add(type);
}

/** Characters of a header's value that are repeated in an answer. */
const MAX_SHOWN = 100;

/** Names the header, its value and the supported values. */
function unsupported(header: string, value: string | undefined, supported: string): ApiError {
  const shown = value?.slice(0, MAX_SHOWN).replace(/[^\x20-\x7e]/g, '?');
  const found = shown ? `is '${shown}'` : 'is missing';
  return new ApiError('unsupportedMediaType', { suffix: `${header} ${found}. Supported: ${supported}` });
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
  if (!isUtf8(raw)) throw new ApiError('malformedBody', { suffix: 'the body is not UTF-8' });
  // A byte order mark is no JSON, but some editors leave one.
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
 * @throws {ApiError} 400 cannot be unpacked, 408 incomplete, 413 over the limit, 415 an encoding that we do not read,
 *   503 no room for a large one
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
    if ((error as NodeJS.ErrnoException).code !== 'ERR_BUFFER_TOO_LARGE')
      throw new ApiError('malformedBody', { suffix: 'the body cannot be unpacked by its Content-Encoding' });
  }
  if (bound === limit) throw tooLarge(rules);
  await reading.take(request, UNPACKING * limit);
  return unpack(packed, request, rules);
}

/** Bytes up to which no structure takes long: the usual body is not looked through. */
const HARMLESS = 16_384;

/**
 * What the largest body that fits every other rule stays far below. To parse 4 MB takes 20 ms. Of nothing but `[` it
 * takes 500 ms, of nothing but `{}` or of keys that are all different 100 to 200 ms. In that time nobody else is
 * served.
 */
export const MOST = { depth: 1000, containers: 200_000, keys: 80_000, keysOfOne: 10_000 };

const [QUOTE, BACKSLASH, COLON, OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [
  0x22, 0x5c, 0x3a, 0x7b, 0x7d, 0x5b, 0x5d,
];

/**
 * Whether JSON text is built such that parsing it would hold the process up. Looks at each byte once and remembers a
 * number per level; whether it is JSON at all is the parser's affair.
 */
export function isTooComplex(text: Uint8Array): boolean {
  if (text.length <= HARMLESS) return false;
  const keysAt = new Uint16Array(MOST.depth + 2);
  let depth = 0;
  let containers = 0;
  let keys = 0;
  for (let i = 0; i < text.length; i++) {
    const byte = text[i];
    if (byte === QUOTE) {
      for (i++; i < text.length && text[i] !== QUOTE; i++) if (text[i] === BACKSLASH) i++;
    } else if (byte === OPEN || byte === OPEN_LIST) {
      if (++depth > MOST.depth || ++containers > MOST.containers) return true;
      keysAt[depth] = 0;
    } else if (byte === CLOSE || byte === CLOSE_LIST) {
      if (depth > 0) depth--;
    } else if (byte === COLON) {
      if (++keys > MOST.keys || ++keysAt[depth]! > MOST.keysOfOne) return true;
    }
  }
  return false;
}

/** What one object of a request may have at most; far above what the rules of any kind of object allow. */
const MOST_OF_OBJECT = { depth: MOST.depth, containers: 50_000, keys: 20_000 };

/** Bytes of text at a place of the body. */
interface Piece {
  start: number;
  end: number;
  /** The rule that its structure breaks: it is not to be parsed. */
  rule: string | undefined;
}

/**
 * How a body of arrays of objects can be parsed without holding anybody up: `whole`, or object by object, or not at
 * all. An object is what stands in an array that is a member of the body, or is such a member itself. Looks at each
 * byte once; whether it is JSON at all is the parser's affair.
 */
export function outlineOf(text: Uint8Array): 'whole' | 'too complex' | 'malformed' | Piece[] {
  if (text.length <= HARMLESS) return 'whole';
  const pieces: Piece[] = [];
  /** The first two levels: what is open there. */
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
      } else if (depth > MOST.depth) return 'too complex';
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
    if (around.containers > MOST.containers || around.keys > MOST.keys) return 'too complex';
  }
  if (one) return 'malformed';
  const { containers: mostContainers, keys: mostKeys } = MOST_OF_OBJECT;
  return isHeavy || containers > mostContainers || keys > mostKeys ? pieces : 'whole';
}

function ruleOf({ depth, containers, keys }: { depth: number; containers: number; keys: number }) {
  const most = MOST_OF_OBJECT;
  if (depth > most.depth) return `it must not nest deeper than ${MAX_DEPTH}`;
  if (keys > most.keys) return `it must not have more than ${most.keys} keys with all that is in it`;
  if (containers > most.containers)
    return `it must not have more than ${most.containers} objects and arrays in it`;
  return undefined;
}
