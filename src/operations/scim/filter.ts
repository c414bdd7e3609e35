import { type Filter as Parsed, parse } from 'scim2-parse-filter';
import { errors } from '../../errors.ts';
import { quoted } from '../../profile/values.ts';
import type { AccountCondition, EmailComparison, FilterColumn } from '../../store/accounts.ts';
import { withPlus } from '../query-parameters.ts';
import { withoutUrn } from './attributes.ts';
import { ScimError, USER } from './messages.ts';
import { truthOf } from './spell.ts';

/** Maximum nesting of filters. The parser recurses once per level. */
const MAX_DEPTH = 20;

const MAX_COMPARISONS = 20;

/** The value that an attribute is compared with. */
export interface Operand {
  type: 'string' | 'number' | 'boolean' | 'null';
  /** The decoded string. For other types, the JSON text. */
  text: string;
}

export type Operator = 'eq' | 'ne' | 'co' | 'sw' | 'ew' | 'gt' | 'ge' | 'lt' | 'le';

/** A parsed filter of RFC 7644 §3.4.2.2. */
export type Filter =
  | { op: 'and' | 'or'; filters: Filter[] }
  | { op: 'not'; filter: Filter }
  | { op: 'pr'; path: string }
  | { op: '[]'; path: string; filter: Filter }
  | { op: Operator; path: string; operand: Operand };

/** An invalid filter. The message is a sentence with the reason, or empty if the filter cannot be parsed at all. */
export class FilterError extends Error {
  override name = 'FilterError';
}

/** An operator and its operand without quotes: all words up to the next `and`, `or` or bracket. */
const UNQUOTED = /(\s(?:eq|ne|co|sw|ew|gt|ge|lt|le)\s+)([^\s"()[\]]+(?:\s+(?!(?:and|or)\b)[^\s"()[\]]+)*)/gi;

/**
 * Parses a filter. Its strings may be without quotes, as some providers send them. The work is linear in the length of
 * the text, which the caller must limit.
 *
 * @throws {FilterError}
 */
export function parseFilter(text: string): Filter {
  const { safe, operands } = extractOperands(text);
  if ((safe.match(/[([]|\bnot\b/gi) ?? []).length > MAX_DEPTH)
    throw new FilterError(`A filter has at most ${MAX_DEPTH} brackets and nots.`);
  let parsed: Parsed;
  try {
    parsed = parse(safe);
  } catch {
    throw new FilterError();
  }
  if (operands.length > MAX_COMPARISONS)
    throw new FilterError(`A filter has at most ${MAX_COMPARISONS} comparisons.`);
  return toFilter(parsed, operands);
}

/**
 * Replaces each operand by its index in `operands`, because the parser does not decode all escapes of a string and does
 * not accept strings without quotes.
 */
function extractOperands(text: string): { safe: string; operands: Operand[] } {
  const operands: Operand[] = [];
  const placeholder = (operand: Operand) => `"${operands.push(operand) - 1}"`;
  const withoutStrings = text.replace(/"(?:[^"\\]|\\.)*"/g, (quoted) => {
    try {
      return placeholder({ type: 'string', text: JSON.parse(quoted) });
    } catch {
      throw new FilterError();
    }
  });
  const safe = withoutStrings.replace(
    UNQUOTED,
    (_, operator, word) => `${operator}${placeholder(unquoted(word))}`,
  );
  return { safe, operands };
}

/** Quotation marks that some clients use instead of the `"` of RFC 7644 §3.4.2.2. */
const OTHER_QUOTES = /^['`´‘’‚“”„«»]/;

/**
 * Reads an operand without quotes.
 * @throws {FilterError} if it starts with another quotation mark, because it would match no account
 */
function unquoted(word: string): Operand {
  if (OTHER_QUOTES.test(word)) throw new FilterError('A string is written in double quotes.');
  if (/^(?:true|false)$/i.test(word)) return { type: 'boolean', text: word.toLowerCase() };
  if (word === 'null') return { type: 'null', text: word };
  if (/^-?\d+(?:\.\d+)?(?:e[-+]?\d+)?$/i.test(word)) return { type: 'number', text: word };
  return { type: 'string', text: word };
}

function toFilter(parsed: Parsed, operands: Operand[]): Filter {
  switch (parsed.op) {
    case 'and':
    case 'or':
      return { op: parsed.op, filters: parsed.filters.map((one) => toFilter(one, operands)) };
    case 'not':
      return { op: 'not', filter: toFilter(parsed.filter, operands) };
    case '[]':
      return { op: '[]', path: parsed.attrPath, filter: toFilter(parsed.valFilter, operands) };
    case 'pr':
      return { op: 'pr', path: parsed.attrPath };
    default: {
      const operand = typeof parsed.compValue === 'string' ? operands[Number(parsed.compValue)] : undefined;
      if (!operand) throw new FilterError();
      return { op: parsed.op, path: parsed.attrPath, operand };
    }
  }
}

/** Maximum length of a filter. The number of brackets and comparisons and, in the store, the time are limited as well. */
const MAX_LENGTH = 2000;

/** The columns that a filter can use, by lower-case attribute name. */
const columns = new Map<string, FilterColumn>([
  ['id', 'id'],
  ['externalid', 'externalId'],
  ['username', 'userName'],
  ['name', 'name'],
  ['name.formatted', 'name'],
  ['name.givenname', 'givenName'],
  ['name.familyname', 'familyName'],
  ['displayname', 'displayName'],
  ['department', 'department'],
  ['active', 'active'],
]);

/**
 * Reads a filter of RFC 7644 §3.4.2.2: `eq`, `co` and `sw` on the attributes above and on emails, with `and`, `or` and
 * parentheses.
 * @throws {ScimError} 400 `invalidFilter`
 */
export function readFilter(text: string): AccountCondition {
  try {
    if (text.length > MAX_LENGTH) throw new FilterError(`A filter has at most ${MAX_LENGTH} characters.`);
    return toCondition(parseFilter(text));
  } catch (error) {
    if (!(error instanceof FilterError)) throw error;
    // The message that the specification gives, followed by the reason.
    const { message } = errors.scimUnparsable;
    throw new ScimError(
      'scimUnparsable',
      'invalidFilter',
      [message, error.message].filter(Boolean).join(' '),
    );
  }
}

function toCondition(filter: Filter): AccountCondition {
  if (filter.op === 'and' || filter.op === 'or') {
    const [one, other] = filter.filters;
    // The parser returns `emails[type eq "work"].value eq "…"` as two filters. Both must match the same address.
    if (filter.filters.length === 2 && one!.op === '[]' && isOfEmails(one!) && isOfEmails(other!))
      return { op: 'email', comparisons: [...emailComparisons(one!), ...emailComparisons(other!)] };
    return { op: filter.op, conditions: filter.filters.map(toCondition) };
  }
  if (isOfEmails(filter)) return { op: 'email', comparisons: emailComparisons(filter) };
  if (filter.op !== 'eq' && filter.op !== 'co' && filter.op !== 'sw')
    throw new FilterError(`The operator '${filter.op}' is not supported.`);
  const column = columns.get(pathOf(filter.path));
  if (column === undefined) throw new FilterError(`'${quoted(filter.path)}' cannot be filtered by.`);
  if (column !== 'active')
    return { op: filter.op, column, value: comparedText(filter.operand, column, filter.path) };
  if (filter.op !== 'eq') throw new FilterError("'active' is compared by eq.");
  return { op: 'eq', column, value: comparedTruth(filter.operand, 'active') };
}

const pathOf = (path: string) => withoutUrn(path, USER).toLowerCase();

const isOfEmails = (filter: Filter): boolean =>
  'path' in filter && /^emails(?:\.|$)/.test(pathOf(filter.path));

/** Returns comparisons with the members of an address. One address must match all of them. */
function emailComparisons(filter: Filter): EmailComparison[] {
  if (filter.op === 'and') return filter.filters.flatMap(emailComparisons);
  if (filter.op === '[]') return emailComparisons(filter.filter);
  if (filter.op !== 'eq' && filter.op !== 'co' && filter.op !== 'sw')
    throw new FilterError(`The operator '${filter.op}' is not supported with 'emails'.`);
  const { op, operand } = filter;
  const member = pathOf(filter.path).replace(/^emails(?:\.|$)/, '') || 'value';
  if (member === 'primary' && op === 'eq')
    return [{ op, member, value: String(comparedTruth(operand, 'emails.primary')) }];
  if (member !== 'value' && member !== 'type')
    throw new FilterError(`'${quoted(filter.path)}' cannot be filtered by.`);
  return [
    { op, member, value: comparedText(operand, member === 'value' ? 'userName' : undefined, filter.path) },
  ];
}

/**
 * Returns the string of a comparison.
 * @param column the compared column, which may convert the string. If absent, the string is used as sent
 */
function comparedText({ type, text }: Operand, column: FilterColumn | undefined, path: string): string {
  // Providers whose ids are numbers send them without quotes.
  const isText = type === 'string' || (type === 'number' && column === 'externalId');
  if (!isText) throw new FilterError(`'${quoted(path)}' is compared with a string.`);
  if (text.includes('\u0000')) throw new FilterError();
  return column === 'userName' ? withPlus(text) : text;
}

function comparedTruth({ type, text }: Operand, path: string): boolean {
  const truth = type === 'boolean' || type === 'string' ? truthOf(text) : undefined;
  if (truth === undefined) throw new FilterError(`'${path}' is compared with true or false.`);
  return truth;
}
