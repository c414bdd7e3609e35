/** Position of the first syntax error of a body. */
interface SyntaxPosition {
  /** Starts at 1. */
  line: number;
  /** Starts at 1, in UTF-16 code units. */
  column: number;
  /** Member of the body and index in it, for example `events[3]`; absent outside such an array. */
  object?: string;
}

/** Maximum number of searched characters; 1 MB takes a few milliseconds. */
const MAX_SEARCHED = 1_048_576;

/** Names of members that may be repeated in an answer and in the log. */
const PLAIN_NAME = /^[a-z][a-z_]{0,39}$/;

const LITERAL = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/y;

/** Tokens that the grammar allows next. */
type Expected = 'value' | 'value or end' | 'name' | 'name or end' | 'colon' | 'comma or end' | 'nothing';

/**
 * Finds the first syntax error of a JSON text. `JSON.parse` reports a position only for some errors, in a form that
 * depends on the version of Node.
 *
 * @returns undefined if the first 1,048,576 characters have no error
 */
export function findSyntaxError(text: string): SyntaxPosition | undefined {
  const end = Math.min(text.length, MAX_SEARCHED);
  const open: ('[' | '{')[] = [];
  let expected = 'value' as Expected;
  let member = '';
  let index = 0;
  let at = 0;

  const errorAt = (position: number): SyntaxPosition | undefined => {
    if (position >= MAX_SEARCHED) return undefined;
    const before = text.slice(0, position);
    const isInArray = open[0] === '{' && open[1] === '[' && PLAIN_NAME.test(member);
    return {
      line: before.split('\n').length,
      column: position - before.lastIndexOf('\n'),
      ...(isInArray && { object: `${member}[${index}]` }),
    };
  };
  const closed = () => {
    expected = open.length > 0 ? 'comma or end' : 'nothing';
  };

  for (; at < end; at++) {
    const character = text[at]!;
    if (character === ' ' || character === '\n' || character === '\r' || character === '\t') continue;
    const mayBeValue = expected === 'value' || expected === 'value or end';
    const mayEnd = expected === 'comma or end' || expected.endsWith('or end');
    if (character === '"' && (mayBeValue || expected.startsWith('name'))) {
      const last = endOfString(text, at, end);
      if (last.isError) return errorAt(last.at);
      if (mayBeValue) closed();
      else {
        if (open.length === 1) member = text.slice(at + 1, last.at);
        expected = 'colon';
      }
      at = last.at;
    } else if (character === ':' && expected === 'colon') expected = 'value';
    else if (character === ',' && expected === 'comma or end') {
      if (open.length === 2) index++;
      expected = open.at(-1) === '[' ? 'value' : 'name';
    } else if ((character === '[' || character === '{') && mayBeValue) {
      open.push(character);
      if (open.length === 2) index = 0;
      expected = character === '[' ? 'value or end' : 'name or end';
    } else if (mayEnd && open.length > 0 && character === (open.at(-1) === '[' ? ']' : '}')) {
      open.pop();
      closed();
    } else {
      LITERAL.lastIndex = at;
      const literal = mayBeValue ? LITERAL.exec(text)?.[0] : undefined;
      if (!literal) return errorAt(at);
      at += literal.length - 1;
      closed();
    }
  }
  return expected === 'nothing' ? undefined : errorAt(end);
}

/** Finds the closing quote of a string, or the first character that is not allowed in it. */
function endOfString(text: string, start: number, end: number): { at: number; isError: boolean } {
  for (let at = start + 1; at < end; at++) {
    const character = text.charCodeAt(at);
    if (character === 0x22) return { at, isError: false };
    if (character < 0x20) return { at, isError: true };
    if (character === 0x5c) {
      ESCAPE.lastIndex = at;
      const escaped = ESCAPE.exec(text)?.[0];
      if (!escaped) return { at, isError: true };
      at += escaped.length - 1;
    }
  }
  return { at: end, isError: true };
}
