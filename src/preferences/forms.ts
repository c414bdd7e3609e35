import { Parser } from 'htmlparser2';
import { uuidOf } from '../profile/values.ts';

/** What a user can say of email as a whole. */
export const globalStates = ['subscribed', 'unsubscribed', 'opted_in'] as const;
export type GlobalState = (typeof globalStates)[number];

/** What a user can say of one subscription group. */
export const groupStates = ['subscribed', 'unsubscribed'] as const;
export type GroupStateName = (typeof groupStates)[number];

/** Name of the form field for the global email state. */
export const GLOBAL_FIELD = 'email_global_state';

const GROUP_PREFIX = 'subscription_group_';

/** Name of the form field for a subscription group. */
export function groupField(groupId: string): string {
  return GROUP_PREFIX + groupId;
}

/** The group that a form field is for, if it is for one. */
export function groupOfField(name: string): string | undefined {
  return name.startsWith(GROUP_PREFIX) ? uuidOf(name.slice(GROUP_PREFIX.length)) : undefined;
}

/**
 * Why what a visitor chooses on a page would not arrive, if so, in words for whoever wrote it. Without this a visitor
 * would be the first to see it, or nobody at all.
 *
 * @param submitUrl where the page is told to send its form
 */
export function formProblem({ forms, stray }: PageForms, submitUrl: string): string | undefined {
  const lost = stray.find(isState);
  if (lost) {
    return `the field ${lost.name} stands in no form, and would not be sent: put it into one, or name its id in form="…"`;
  }
  for (const { method, action, enctype, fields } of forms) {
    const field = fields.find(isState);
    if (!field) continue;
    const problem = (rule: string) => `the form with the field ${field.name} ${rule}`;
    if (method !== 'post') return problem('must have method="post"');
    if (action !== '' && action !== submitUrl) {
      return problem('must have action="{{preference_center_submit_url}}"');
    }
    if (enctype !== undefined && enctype !== 'application/x-www-form-urlencoded') {
      return problem('must not have an enctype of its own');
    }
    const wrong = fields.find((one) => one.fixed && isState(one) && !statesOf(one).includes(one.value));
    if (wrong)
      return `the field ${wrong.name} has the value '${wrong.value}': it must be one of ${statesOf(wrong).join(', ')}`;
  }
  return undefined;
}

function isState({ name }: Field): boolean {
  return name === GLOBAL_FIELD || groupOfField(name) !== undefined;
}

function statesOf({ name }: Field): readonly string[] {
  return name === GLOBAL_FIELD ? globalStates : groupStates;
}

/** A control of a form that has a name. */
export interface Field {
  name: string;
  /** What is sent; of a select or a text, whose value is the visitor's, nothing that counts. */
  value: string;
  /** Sent only when it is ticked. */
  checkbox: boolean;
  /** Whether the visitor can send no other value. */
  fixed: boolean;
}

export interface Form {
  /** Lower-case. */
  method: string;
  /** Empty: the page's own address. */
  action: string;
  enctype: string | undefined;
  /** Its controls in order, wherever they stand. */
  fields: Field[];
}

export interface PageForms {
  forms: Form[];
  /** Controls that belong to no form, which no browser sends. */
  stray: Field[];
}

/** Types of controls whose value nobody types; those of the second list are never sent. */
const FIXED = ['checkbox', 'radio', 'hidden', 'submit'];
const NEVER_SENT = ['button', 'reset', 'image'];

/**
 * The named controls of a page by the form that sends them, as a browser has it: the one that `form=` names, else the
 * one around the control. What is disabled, or stands in a `template`, is not sent and left out.
 */
export function readForms(html: string): PageForms {
  const forms: Form[] = [];
  const stray: Field[] = [];
  const named = new Map<string, Form>();
  /** Those whose form may come later. */
  const joined: { field: Field; id: string }[] = [];
  /** Whether each open fieldset or template switches off what stands in it. */
  const around: { tag: string; off: boolean }[] = [];
  let open: Form | undefined;
  const parser = new Parser(
    {
      onopentag(tag, attributes) {
        if (tag === 'template' || tag === 'fieldset') {
          around.push({ tag, off: tag === 'template' || attributes.disabled !== undefined });
        }
        if (around.some(({ off }) => off)) return;
        // A form within a form is none.
        if (tag === 'form' && !open) {
          open = formOf(attributes);
          forms.push(open);
          if (attributes.id && !named.has(attributes.id)) named.set(attributes.id, open);
        }
        const field = fieldOf(tag, attributes);
        if (!field) return;
        if (attributes.form !== undefined) joined.push({ field, id: attributes.form });
        else (open?.fields ?? stray).push(field);
      },
      onclosetag(tag) {
        if (tag === around.at(-1)?.tag) around.pop();
        else if (tag === 'form') open = undefined;
      },
    },
    { decodeEntities: true },
  );
  parser.end(html);
  for (const { field, id } of joined) (named.get(id)?.fields ?? stray).push(field);
  return { forms, stray };
}

type Attributes = Record<string, string>;

function formOf({ method = 'get', action = '', enctype }: Attributes): Form {
  return { method: method.trim().toLowerCase(), action: action.trim(), enctype, fields: [] };
}

function fieldOf(tag: string, { name, type = '', value, disabled }: Attributes): Field | undefined {
  if (!name || disabled !== undefined || !['input', 'select', 'button', 'textarea'].includes(tag)) return;
  const kind = type.toLowerCase() || (tag === 'button' ? 'submit' : '');
  if (tag !== 'select' && NEVER_SENT.includes(kind)) return undefined;
  const checkbox = tag === 'input' && kind === 'checkbox';
  return {
    name,
    value: value ?? (checkbox || kind === 'radio' ? 'on' : ''),
    checkbox,
    fixed: (tag === 'input' || tag === 'button') && FIXED.includes(kind),
  };
}
