import { MAX_DEPTH } from '../profile/json.ts';

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
export interface Piece {
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
