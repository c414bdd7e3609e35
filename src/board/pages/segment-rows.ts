import { isDeepStrictEqual } from 'node:util';
import { html, type Part } from '../../platform/html.ts';
import type { Json } from '../../profile/json.ts';
import {
  type Definition,
  InvalidDefinition,
  readDefinition,
  textAttributes,
  timeAttributes,
} from '../../profile/segment.ts';
import { type ColumnName, standardColumns } from '../../profile/standard-columns.ts';
import { Refusal } from '../../resources/refusal.ts';
import type { Visit } from '../console.ts';

/** Kinds of a row, with their labels. */
const kinds = {
  attribute: 'Attribute',
  custom_attribute: 'Custom attribute',
  event: 'Event',
  purchase: 'Purchase',
  email_subscription: 'Email subscription',
  push_subscription: 'Push subscription',
} as const;

/** Operators of a row, with their labels. */
const operators = {
  equals: 'is',
  not_equals: 'is not',
  in: 'is one of',
  exists: 'exists',
  missing: 'does not exist',
  contains: 'contains',
  more_than: 'is more than',
  less_than: 'is less than',
  before: 'is before',
  after: 'is after',
  in_last_days: 'is in the last days',
  count_at_least: 'happened at least (times)',
  count_at_most: 'happened at most (times)',
} as const;

type Kind = keyof typeof kinds;
type Operator = keyof typeof operators;

/** A row of the builder: one condition. */
export interface Row {
  kind: Kind;
  name: string;
  operator: Operator;
  value: string;
}

/** A filter as rows, all or any of which must match. */
export interface Rows {
  match: 'all' | 'any';
  rows: Row[];
}

/** Returns the name of an attribute on the page of a user; undefined if the page shows it by its own name. */
function attributeLabel(name: string): string | undefined {
  const column: object = Object.hasOwn(standardColumns, name) ? standardColumns[name as ColumnName] : {};
  return 'label' in column ? String(column.label) : undefined;
}

/** Maximum number of rows. A larger filter is edited as JSON. */
const MAX_ROWS = 20;

export const emptyRow: Row = { kind: 'attribute', name: '', operator: 'equals', value: '' };

const isKind = (text: string): text is Kind => Object.hasOwn(kinds, text);
const isOperator = (text: string): text is Operator => Object.hasOwn(operators, text);

/** Reads the rows of a form. */
export function readRows({ fields, field }: Pick<Visit<unknown>, 'fields' | 'field'>): Rows {
  const [names, chosen, values] = [fields('row_name'), fields('row_operator'), fields('row_value')];
  const rows = fields('row_kind')
    .slice(0, MAX_ROWS)
    .map((kind, index): Row => {
      const operator = chosen[index] ?? '';
      return {
        kind: isKind(kind) ? kind : 'attribute',
        name: (names[index] ?? '').trim(),
        operator: isOperator(operator) ? operator : 'equals',
        value: (values[index] ?? '').trim(),
      };
    });
  return { match: field('match') === 'any' ? 'any' : 'all', rows };
}

/**
 * Reads a value of a custom attribute: a number, `true`, `false`, a text in quotes, or a plain text. Digits that are no
 * JSON number, such as `007`, are a plain text.
 */
function readScalar(text: string): Json {
  if (!/^(?:-?\d+(?:\.\d+)?|true|false|"(?:[^"\\]|\\.)*")$/.test(text)) return text;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

/** Returns the condition of a row as JSON, which `readDefinition` validates. */
function conditionOf({ kind, name, operator, value }: Row): Json {
  if (kind === 'email_subscription' || kind === 'push_subscription')
    return operator === 'not_equals' ? { none: [{ [kind]: value }] } : { [kind]: value };
  const subject = { [kind]: name };
  if (kind === 'event' || kind === 'purchase') return happeningOf(subject, operator, value);
  const scalar = kind === 'attribute' ? value : readScalar(value);
  switch (operator) {
    case 'not_equals':
      return { none: [{ ...subject, equals: scalar }] };
    case 'in':
      return {
        ...subject,
        in: value.split(',').map((one) => (kind === 'attribute' ? one.trim() : readScalar(one.trim()))),
      };
    case 'exists':
    case 'missing':
      return { ...subject, exists: operator === 'exists' };
    case 'more_than':
    case 'less_than':
    case 'in_last_days':
      return { ...subject, [operator]: numberOf(value) };
    case 'equals':
    case 'contains':
      return { ...subject, [operator]: scalar };
    default:
      return { ...subject, [operator]: value };
  }
}

function happeningOf(subject: Record<string, string>, operator: Operator, value: string): Json {
  switch (operator) {
    case 'exists':
      return subject;
    case 'missing':
      return { none: [subject] };
    case 'count_at_least':
    case 'count_at_most':
      return { ...subject, [operator]: numberOf(value) };
    case 'in_last_days':
      return { ...subject, last_in_days: numberOf(value) };
    case 'before':
    case 'after':
      return { ...subject, [`last_${operator}`]: value };
    default:
      throw new InvalidDefinition(
        'an event or a purchase exists, does not exist, happened a number of times, or is before, after or in the last days',
      );
  }
}

function numberOf(value: string): Json {
  const number = Number(value);
  if (value === '' || !Number.isFinite(number)) throw new InvalidDefinition('the value must be a number');
  return number;
}

/** Returns the definition of a row. @throws {Refusal} naming the field of the row */
export function definitionOfRow(row: Row, index: number): Definition {
  const isNamed = row.kind !== 'email_subscription' && row.kind !== 'push_subscription';
  if (isNamed && row.name === '')
    throw new Refusal('Enter a name, for example country.', `row_name_${index}`);
  try {
    return readDefinition(conditionOf(row));
  } catch (error) {
    if (!(error instanceof InvalidDefinition)) throw error;
    const { message } = error;
    throw new Refusal(
      `${message[0]!.toUpperCase()}${message.slice(1)}${message.endsWith('.') ? '' : '.'}`,
      `row_value_${index}`,
    );
  }
}

/** Returns the definition of all rows. Without rows, it matches every user. */
export function definitionOfRows({ match, rows }: Rows): Definition {
  const all = rows.map(definitionOfRow);
  if (all.length === 1) return all[0]!;
  // `any` without filters would match no user.
  return match === 'any' && all.length > 0 ? { any: all } : { all };
}

/** Returns the rows of a definition; undefined if it can only be edited as JSON. */
export function rowsOf(definition: Definition): Rows | undefined {
  const [match, parts] =
    'all' in definition
      ? (['all', definition.all] as const)
      : 'any' in definition
        ? (['any', definition.any] as const)
        : (['all', [definition]] as const);
  if (parts.length > MAX_ROWS) return undefined;
  const rows = parts.map(rowOf);
  return rows.every((row) => row !== undefined) ? { match, rows } : undefined;
}

/** Returns the row of a condition; undefined if a row cannot express it exactly. */
function rowOf(definition: Definition): Row | undefined {
  const row = guess(definition);
  if (!row) return undefined;
  try {
    // Postgres does not keep the order of the members.
    return isDeepStrictEqual(definitionOfRow(row, 0), definition) ? row : undefined;
  } catch {
    return undefined;
  }
}

function guess(definition: Definition): Row | undefined {
  const isNone = 'none' in definition;
  if (isNone && definition.none.length !== 1) return undefined;
  const one = (isNone ? definition.none[0]! : definition) as Record<string, Json>;
  const kind = Object.keys(kinds).find((name): name is Kind => isKind(name) && Object.hasOwn(one, name));
  if (!kind || typeof one[kind] !== 'string') return undefined;
  const subject = one[kind];
  if (kind === 'email_subscription' || kind === 'push_subscription')
    return { kind, name: '', operator: isNone ? 'not_equals' : 'equals', value: subject };
  const [condition, ...others] = Object.entries(one).filter(([name]) => name !== kind);
  if (others.length > 0) return undefined;
  const row = { kind, name: subject };
  if (!condition) return { ...row, operator: isNone ? 'missing' : 'exists', value: '' };
  const [member, value] = condition;
  if (member === 'exists') return { ...row, operator: value ? 'exists' : 'missing', value: '' };
  const isPlain = kind === 'attribute';
  const textOf = (given: Json) =>
    typeof given === 'string' && (isPlain || readScalar(given) === given) ? given : JSON.stringify(given);
  const text = Array.isArray(value) ? value.map(textOf).join(', ') : textOf(value!);
  const operator = isNone && member === 'equals' ? 'not_equals' : member.replace(/^last_in_/, 'in_last_');
  const plainOperator = operator.replace(/^last_(?=before|after)/, '');
  return isOperator(plainOperator) && (!isNone || plainOperator === 'not_equals')
    ? { ...row, operator: plainOperator, value: text }
    : undefined;
}

/** Renders the rows of the form. */
export function rowFields(
  { match, rows }: Rows,
  {
    counts,
    problemAt,
  }: {
    /** Number of users that each row matches, in words. */
    counts: readonly (string | undefined)[];
    problemAt(field: string): { marks: Part; hint: Part };
  },
): Part {
  const options = (choices: Record<string, string>, chosen: string) =>
    Object.entries(choices).map(
      ([value, text]) =>
        html`<option value="${value}"${value === chosen && html` selected`}>${text}</option>`,
    );
  return html`<datalist id="attributes">${[...textAttributes, ...timeAttributes].map((name) => html`<option value="${name}">${attributeLabel(name)}</option>`)}</datalist>
<label>Users match <select name="match">${options({ all: 'all rows (and)', any: 'any row (or)' }, match)}</select></label>
${rows.map((row, index) => {
  const number = index + 1;
  const [name, value] = [problemAt(`row_name_${index}`), problemAt(`row_value_${index}`)];
  return html`<fieldset class="row"><legend>Row ${number}</legend>
<label>Kind <select name="row_kind">${options(kinds, row.kind)}</select></label>
<label>Name <input name="row_name" value="${row.name}" list="attributes" maxlength="255" autocomplete="off"${name.marks}>${name.hint}</label>
<label>Operator <select name="row_operator">${options(operators, row.operator)}</select></label>
<label>Value <input name="row_value" value="${row.value}" maxlength="2000" autocomplete="off"${value.marks}>${value.hint}</label>
${counts[index] !== undefined && html`<span class="faint" role="status">${counts[index]}</span>`}
<button name="action" value="remove_row_${index}" aria-label="Remove row ${number}" formnovalidate>Remove</button></fieldset>`;
})}
${rows.length < MAX_ROWS && html`<p class="actions"><button name="action" value="add_row" formnovalidate>Add a row</button></p>`}`;
}
