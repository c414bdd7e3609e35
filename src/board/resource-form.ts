import { type Html, html, type Part } from '../platform/html.ts';
import {
  type BoxGroup,
  type Field,
  type Fields,
  MAX_SUGGESTIONS,
  type SecretSource,
} from '../resources/fields.ts';
import { InvalidValue, Refusal } from '../resources/refusal.ts';
import type { Visit } from './console.ts';

/** Submitted values and their errors, by field name. The key '' holds an error of the whole form. */
export interface Sent {
  given: Record<string, string[]>;
  problems: Record<string, string>;
}

/** Name of the choice between the parts of a form. The values of the other parts are ignored. */
const PART = 'part';

const isShown = ([, { isCommandOnly }]: [string, Field<unknown>]) => !isCommandOnly;

/** Whether the field must have a value. A field with a default text is prefilled, so an empty value is a mistake. */
const isRequired = ({ required, fallback }: Field<unknown>) => required || defaultText(fallback) !== '';

/** Returns the default of a text field; empty if it has none, or is not a text field. */
const defaultText = (fallback: unknown): string =>
  typeof fallback === 'string' || typeof fallback === 'number' ? String(fallback) : '';

/**
 * Reads a submitted form and collects an error for each invalid value.
 * @param filled initial field values; a field that had a value must not be emptied
 */
export function readForm(
  { fields: sent }: Pick<Visit<unknown>, 'fields'>,
  fields: Fields,
  filled: Record<string, string | undefined> = {},
): Sent & { values: Record<string, unknown> } {
  const given: Sent['given'] = {};
  const problems: Sent['problems'] = {};
  const values: Record<string, unknown> = {};
  const [part = ''] = sent(PART);
  if (part !== '') given[PART] = [part];
  for (const [key, field] of Object.entries(fields)) {
    const isInPart = part === '' || field.part === undefined || field.part === part;
    const all = isShown([key, field]) && isInPart ? sent(key) : [];
    const text = field.isExact
      ? linesOf(field, all[0] ?? '')
      : all
          .map((one) => one.trim())
          .filter((one) => one !== '')
          .join(',');
    if (field.control.kind !== 'secret') given[key] = all;
    // White space at the ends may belong to a secret, for example to a password.
    if (field.control.kind === 'secret') values[key] = secretOf(key, all[0] ?? '');
    else if (text === '' && field.mayBeEmpty) values[key] = field.read('');
    else if (text === '' && !isRequired(field) && !filled[key]) values[key] = field.fallback;
    else
      try {
        if (text === '') throw new InvalidValue(`${field.label} is required.`);
        values[key] = field.read(text);
      } catch (error) {
        if (!(error instanceof InvalidValue)) throw error;
        problems[key] = error.message;
      }
  }
  return { given, problems, values };
}

/** Returns a text with the line ends of the original. Browsers send those of a text area as CR and LF. */
const linesOf = ({ control }: Field<unknown>, text: string) =>
  control.kind === 'area' ? text.replaceAll('\r\n', '\n') : text;

function secretOf(key: string, text: string): SecretSource {
  return {
    isGiven: text !== '',
    async read() {
      if (text === '') throw new Refusal('a secret is required', key);
      return text;
    },
  };
}

/**
 * Renders the filters of a list, with the values of the query.
 * @param choices the name of each value of a text filter, by filter; absent for a text field
 */
export function filterFields(
  filters: Fields,
  {
    query,
    choices = {},
  }: {
    query(name: string): string;
    choices?: Record<string, Record<string, string>> | undefined;
  },
): Part {
  return Object.entries(filters)
    .filter(isShown)
    .map(([key, { label, control }]) => {
      const given = query(key);
      if (control.kind === 'choice') {
        const { choices: values, texts = {}, unset = 'All' } = control;
        return select(label, key, { given, unset, choices: values.map((one) => [one, texts[one] ?? one]) });
      }
      if (choices[key]) {
        const listed = Object.entries(choices[key]);
        // The list has the latest choices only. A filter by another one stays visible.
        const isListed = given === '' || listed.some(([value]) => value === given);
        return select(label, key, {
          ...{ given, unset: 'All' },
          choices: isListed ? listed : [...listed, [given, given]],
        });
      }
      const maxLength = control.kind === 'text' ? control.maxLength : undefined;
      return html`<label class="grow">${label} <input type="search" name="${key}" value="${given}" maxlength="${maxLength}" autocomplete="off"></label>`;
    });
}

const select = (
  label: string,
  name: string,
  { given, unset, choices }: { given: string; unset: string; choices: (readonly [string, string])[] },
): Html =>
  html`<label>${label} <select name="${name}"><option value="">${unset}</option>${choices.map(
    ([value, text]) => html`<option value="${value}"${value === given && html` selected`}>${text}</option>`,
  )}</select></label>`;

/** Formats a command line message as a sentence. */
export const sentence = (text: string): string =>
  `${text[0]?.toUpperCase() ?? ''}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;

/** Assigns a refusal's message to its field, or to the whole form if the form does not have that field. */
export function problemsOf({ message, field }: Refusal, fields: Fields): Sent['problems'] {
  return { [field !== undefined && Object.hasOwn(fields, field) ? field : '']: sentence(message) };
}

/**
 * Renders form fields with their values and errors.
 * @param id distinguishes the fields of several forms on one page
 */
export function formFields(
  fields: Fields,
  {
    id,
    sent,
    filled = {},
    suggestions = {},
    makers = {},
  }: {
    id: string;
    sent?: Sent | undefined;
    filled?: Record<string, string> | undefined;
    suggestions?: Record<string, string[]> | undefined;
    makers?: Record<string, { text: string; path: string }> | undefined;
  },
): Part {
  const shown = Object.entries(fields).filter(isShown);
  const parts = [...new Set(shown.flatMap(([, { part }]) => part ?? []))];
  const chosen = sent?.given[PART]?.[0] ?? parts[0];
  const rendered = shown.map(([key, field]) => {
    const given = sent?.given[key] ?? (filled[key] === undefined ? undefined : [filled[key]]);
    const isFilled = Boolean(filled[key]) && !field.mayBeEmpty;
    const state = { id: `${id}-${key}`, given, problem: sent?.problems[key], isFilled };
    const maker = suggestions[key]?.length === 0 ? makers[key] : undefined;
    return formField(key, field, { ...state, suggestions: suggestions[key], maker });
  });
  const of = (wanted: string | undefined) => rendered.filter((_, index) => shown[index]![1].part === wanted);
  if (parts.length === 0) return rendered;
  const firstPart = shown.findIndex(([, { part }]) => part !== undefined);
  const [before, after] = [rendered.slice(0, firstPart), of(undefined).slice(firstPart)];
  // The style sheet hides the parts that are not chosen. A browser without :has() shows all of them.
  return html`${before}<fieldset><legend>Destination</legend><div class="choices">${parts.map(
    (part) =>
      html`<label class="check"><input type="radio" name="${PART}" value="${part}"${part === chosen && html` checked`}> ${part}</label>`,
  )}</div></fieldset>${parts.map((part) => html`<fieldset class="stack" data-part="${part}"><legend>${part}</legend>${of(part)}</fieldset>`)}${after}`;
}

interface FieldState {
  id: string;
  given: string[] | undefined;
  problem: string | undefined;
  /** Whether the field had a value, and must keep one. */
  isFilled: boolean;
  suggestions: string[] | undefined;
  /** Page that creates an entry for the field, if there is none yet. */
  maker: { text: string; path: string } | undefined;
}

function formField(
  key: string,
  field: Field<unknown>,
  { id, given, problem, isFilled, suggestions, maker }: FieldState,
): Html {
  const { label, help, control, fallback } = field;
  const required = field.required || isFilled;
  const value = given?.[0] ?? defaultText(fallback);
  const isInvalid = problem !== undefined;
  const marks = html` aria-describedby="${id}-hint"${required && html` required`}${isInvalid && html` aria-invalid="true"`}`;
  const error = isInvalid && html`<strong class="problem" role="alert">${problem}</strong> `;
  const hint = html`<span class="hint" id="${id}-hint">${error}${hintOf(help)}${maker && html` There is none yet. <a href="${maker.path}#create">${maker.text}</a>`}</span>`;
  const title = html`<span>${label}${!required && field.part === undefined && control.kind !== 'switch' && html` <span class="faint">(optional)</span>`}</span>`;
  switch (control.kind) {
    case 'boxes':
      return html`<fieldset${isInvalid && html` aria-describedby="${id}-hint"`}><legend>${label}</legend>${
        // The rule is about the list of the command line.
        isInvalid && html`<span class="hint" id="${id}-hint">${error}</span>`
      }${boxes(key, control.groups, given?.flatMap((one) => one.split(',')) ?? [])}</fieldset>`;
    case 'switch':
      return html`<label class="check"><input type="checkbox" name="${key}" value="on"${given?.includes('on') && html` checked`} aria-describedby="${id}-hint"> <span>${label} ${hint}</span></label>`;
    case 'choice':
      return html`<label>${title} <select name="${key}"${marks}>${!required && html`<option value="">${control.unset}</option>`}${control.choices.map(
        (one) =>
          html`<option value="${one}"${one === value && html` selected`}>${control.texts?.[one] ?? one}</option>`,
      )}</select>${hint}</label>`;
    case 'area':
      // Browsers drop a line break at the beginning of a text area.
      return html`<label>${title} <textarea name="${key}"${control.isShort && html` class="short"`} spellcheck="false" autocomplete="off"${marks}>${'\n'}${value}</textarea>${hint}</label>`;
    case 'secret':
      return html`<label>${title} <input type="password" name="${key}" autocomplete="off"${marks}>${hint}</label>`;
    default:
      if (field.listed && suggestions && suggestions.length > 0 && suggestions.length < MAX_SUGGESTIONS) {
        // A value that was sent stays visible, for example the id of a workspace.
        const listed = value === '' || suggestions.includes(value) ? suggestions : [...suggestions, value];
        // The rule is about the command line.
        return html`<label>${title} <select name="${key}"${marks}><option value="">${field.listed.unset}</option>${listed.map(
          (one) => html`<option value="${one}"${one === value && html` selected`}>${one}</option>`,
        )}</select><span class="hint" id="${id}-hint">${error}</span></label>`;
      }
      return html`<label>${title} <input name="${key}" value="${value}" maxlength="${control.maxLength}" placeholder="${control.placeholder}"${suggestions && html` list="${id}-list"`} autocomplete="off"${marks}>${hint}</label>${suggestions && html`<datalist id="${id}-list">${suggestions.map((one) => html`<option value="${one}"></option>`)}</datalist>`}`;
  }
}

/** Renders checkboxes. Groups with a title can be folded; one with a chosen name is open. */
function boxes(key: string, groups: readonly BoxGroup[], chosen: readonly string[]): Part {
  return groups.map(({ title, choices }) => {
    const names = Object.entries(choices);
    const rendered = html`<div class="choices">${names.map(
      ([name, line]) =>
        html`<label class="check"><input type="checkbox" name="${key}" value="${name}"${chosen.includes(name) && html` checked`}> <span><code>${name}</code>${line !== '' && html` <span class="hint">${line}</span>`}</span></label>`,
    )}</div>`;
    if (title === undefined) return rendered;
    const isOpen = names.some(([name]) => chosen.includes(name));
    return html`<details class="boxes"${isOpen && html` open`}><summary>${title} <span class="faint">(${names.length})</span></summary>${rendered}</details>`;
  });
}

/** Formats a field's rule as a sentence for the form, without parts that only apply to the command line. */
function hintOf(help: string): string {
  return sentence(help.replace(/; - reads standard input$/, ''));
}

export const formProblem = (sent: Sent | undefined): Part =>
  sent?.problems[''] !== undefined && html`<p class="banner bad" role="alert">${sent.problems['']}</p>`;
