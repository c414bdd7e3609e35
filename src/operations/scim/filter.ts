import { type Filter, parse } from 'scim2-parse-filter';
import { errors } from '../../errors.ts';
import type { Condition, FilterColumn } from '../../store/accounts/condition.ts';
import { withoutUrn } from './attributes.ts';
import { USER } from './messages.ts';
import { ScimError } from './scim-error.ts';

/** A filter's cost is bounded: its length, its comparisons, and (in the store) its time. */
const MAX_LENGTH = 2000;
const MAX_COMPARISONS = 20;
const MAX_DEPTH = 20;

/** What can be filtered by, in lower case, with the column it is. */
const columns: Record<string, FilterColumn> = {
  id: 'id',
  externalid: 'externalId',
  username: 'userName',
  name: 'name',
  'name.formatted': 'name',
  'name.givenname': 'givenName',
  'name.familyname': 'familyName',
  department: 'department',
  active: 'active',
};

/**
 * Reads a filter of RFC 7644 §3.4.2.2: `eq`, `co` and `sw` on the attributes above, with `and`, `or` and
 * parentheses.
 * @throws {ScimError} 400 `invalidFilter`
 */
export function readFilter(text: string): Condition {
  if (text.length > MAX_LENGTH) throw refused(`A filter has at most ${MAX_LENGTH} characters.`);
  const { safe, values } = setStringsAside(text);
  // The parser goes one call deeper for each.
  if ((safe.match(/[([]|\bnot\b/gi) ?? []).length > MAX_DEPTH) throw refused('It is nested too deeply.');
  let filter: Filter;
  try {
    filter = parse(safe);
  } catch {
    throw refused();
  }
  const left = { comparisons: MAX_COMPARISONS };
  return toCondition(filter, values, left);
}

/**
 * Replaces each string by its place among `values`, so that it is read as the JSON string that it is: the
 * parser would take some escapes for text.
 */
function setStringsAside(text: string): { safe: string; values: string[] } {
  const values: string[] = [];
  const safe = text.replace(/"(?:[^"\\]|\\.)*"/g, (quoted) => {
    try {
      values.push(JSON.parse(quoted));
    } catch {
      throw refused();
    }
    return `"${values.length - 1}"`;
  });
  return { safe, values };
}

function toCondition(filter: Filter, values: string[], left: { comparisons: number }): Condition {
  if (filter.op === 'and' || filter.op === 'or') {
    return { op: filter.op, conditions: filter.filters.map((one) => toCondition(one, values, left)) };
  }
  if (filter.op !== 'eq' && filter.op !== 'co' && filter.op !== 'sw') {
    throw refused(`The operator '${filter.op}' is not supported.`);
  }
  if (--left.comparisons < 0) throw refused(`A filter has at most ${MAX_COMPARISONS} comparisons.`);
  const column = Object.entries(columns).find(
    ([name]) => name === withoutUrn(filter.attrPath, USER).toLowerCase(),
  )?.[1];
  if (column === undefined) throw refused(`'${filter.attrPath}' cannot be filtered by.`);
  if (column === 'active') {
    if (filter.op !== 'eq' || typeof filter.compValue !== 'boolean')
      throw refused("'active' is compared by eq with true or false.");
    return { op: 'eq', column, value: filter.compValue };
  }
  if (typeof filter.compValue !== 'string') throw refused(`'${filter.attrPath}' is compared with a string.`);
  const value = values[Number(filter.compValue)]!;
  if (value.includes('\u0000')) throw refused();
  return { op: filter.op, column, value };
}

/** The protocol's own sentence, and ours behind it. */
function refused(reason?: string): ScimError {
  const { message } = errors.scimUnparsable;
  return new ScimError('scimUnparsable', 'invalidFilter', reason ? `${message} ${reason}` : message);
}
