/** Bytes up to which no structure takes long: the usual body is not looked through. */
const HARMLESS = 16_384;

/**
 * What the largest body that fits every other rule stays far below. To parse 4 MB takes 20 ms; of nothing but `[` it
 * takes 500 ms, of nothing but `{}` or of keys that are all different 100 to 200 ms, in which nobody else is served.
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
