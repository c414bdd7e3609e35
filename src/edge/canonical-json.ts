import type { Json } from '../profile/json.ts';

/** Members of an object up to which their order makes no difference: sorting more would take its time. */
const MOST_SORTED = 1000;

/** Characters of a piece, about: few pieces, and no string as long as a body. */
const PIECE = 65_536;

/** Ends of arrays and objects on the stack. */
const ARRAY_END = Symbol(']');
const OBJECT_END = Symbol('}');

/** A member's name on the stack. */
class Name {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/**
 * A JSON value as text, in pieces: the same for values that say the same, whatever the order of members, and for no
 * others. A comma stands before every value. Without recursion, since a body may be nested as deep as it is long.
 */
export function* canonicalPieces(value: Json): Generator<string> {
  const stack: (Json | Name | symbol)[] = [value];
  let piece = '';
  while (stack.length > 0) {
    const next = stack.pop()!;
    if (next === ARRAY_END) piece += ']';
    else if (next === OBJECT_END) piece += '}';
    else if (next instanceof Name) piece += JSON.stringify(next.text);
    else if (typeof next !== 'object' || next === null) piece += `,${JSON.stringify(next)}`;
    else if (Array.isArray(next)) {
      piece += ',[';
      stack.push(ARRAY_END);
      for (let index = next.length - 1; index >= 0; index--) stack.push(next[index]!);
    } else {
      piece += ',{';
      stack.push(OBJECT_END);
      const names = Object.keys(next);
      if (names.length <= MOST_SORTED) names.sort();
      for (let index = names.length - 1; index >= 0; index--)
        stack.push(next[names[index]!]!, new Name(names[index]!));
    }
    if (piece.length < PIECE) continue;
    yield piece;
    piece = '';
  }
  yield piece;
}
