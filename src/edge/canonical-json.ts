import type { Json } from '../profile/json.ts';

/** Members of an object up to which their order makes no difference: sorting more would take its time. */
const MOST_SORTED = 1000;

/** Characters of a piece, about: enough for few pieces, few enough for any body. */
const PIECE = 65_536;

/** What stands between values. */
class Mark {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/**
 * A JSON value as text, in pieces: the same for values that say the same, whatever the order of members. Without
 * recursion, since a body may be nested as deep as it is long.
 */
export function* canonicalPieces(value: Json): Generator<string> {
  const stack: (Json | Mark)[] = [value];
  let piece = '';
  while (stack.length > 0) {
    const next = stack.pop()!;
    if (next instanceof Mark) piece += next.text;
    else if (typeof next !== 'object' || next === null) piece += JSON.stringify(next);
    else if (Array.isArray(next)) {
      piece += '[';
      stack.push(new Mark(']'));
      for (let index = next.length - 1; index >= 0; index--) stack.push(COMMA, next[index]!);
    } else {
      piece += '{';
      stack.push(new Mark('}'));
      const names = Object.keys(next);
      if (names.length <= MOST_SORTED) names.sort();
      for (let index = names.length - 1; index >= 0; index--) {
        const name = names[index]!;
        stack.push(COMMA, next[name]!, new Mark(`${JSON.stringify(name)}:`));
      }
    }
    if (piece.length < PIECE) continue;
    yield piece;
    piece = '';
  }
  yield piece;
}

const COMMA = new Mark(',');
