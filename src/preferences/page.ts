import escapeHtml from 'escape-html';
import { Parser } from 'htmlparser2';
import type { Json } from '../profile/json.ts';
import { uuidOf } from '../profile/values.ts';

// What a web process knows of pages without Liquid, which the processes that render load.

/** Longest template that is stored, in characters. */
export const MAX_TEMPLATE = 262_144;

/** Longest page that a template may make, in characters. */
export const MAX_PAGE = 1_048_576;

/** Milliseconds after which Liquid stops by itself: hundreds of times what a page takes. */
export const RENDER_LIMIT = 500;

/**
 * Milliseconds after which the process that renders is ended, whatever it is doing: Liquid looks at the clock only
 * between two tags, and one filter can take long.
 */
export const RENDER_DEADLINE = 1500;

/** Elements and characters that one rendering may make on its way, as Liquid counts them. */
export const MEMORY_LIMIT = 5_000_000;

/** Of a rendering process's heap, in MB. */
export const HEAP = 64;

/** Processes that render, for each web process: pages take no more than this of the machine from the API. */
export const RENDERERS = 2;

/** Renderings that may wait for a process; more are refused. */
export const MAX_WAITING = 64;

/** Of one workspace. */
export const MAX_WAITING_OF_ONE = 32;

/** Milliseconds that a rendering waits for processes that have others in hand. */
export const TURN_PATIENCE = 2500;

/** Milliseconds of processor time from which on a rendering is slow: many times what a page takes. */
export const SLOW = 250;

/** Milliseconds for which a workspace with such a one shares all processes but one with its like. */
export const SLOW_FOR = 60_000;

/** Named controls of a page: 450 groups with two boxes each have 900. */
export const MAX_CONTROLS = 5000;

/** The document around a page's HTML: what a center has beside its templates. */
export interface Head {
  title: string;
  options: { 'meta-viewport-content'?: string; 'links-tags'?: Record<string, Json>[] };
}

const LINK_ATTRIBUTES = ['rel', 'type', 'sizes', 'color', 'href'];

/**
 * The whole document. HTML that is one already gets the head's elements put into its head; a title of its own
 * stays.
 */
export function documentOf(html: string, { title, options }: Head): string {
  const whole = /<html[\s>]/i.test(html);
  const viewport = options['meta-viewport-content'];
  const elements = [
    '<meta charset="utf-8">',
    ...(whole && /<title[\s>]/i.test(html) ? [] : [`<title>${escapeHtml(title)}</title>`]),
    ...(viewport === undefined ? [] : [`<meta name="viewport" content="${escapeHtml(viewport)}">`]),
    ...(options['links-tags'] ?? []).map(linkOf),
  ].join('\n');
  if (!whole) {
    return `<!doctype html>\n<html>\n<head>\n${elements}\n</head>\n<body>\n${html}\n</body>\n</html>\n`;
  }
  const end = endOfTag(html, /<head[\s>]/i) || endOfTag(html, /<html[\s>]/i);
  return `${html.slice(0, end)}\n${elements}${html.slice(end)}`;
}

/**
 * Where the first tag of the kind ends; 0: there is none. One step through the page, whatever stands there: an
 * expression that looked for the end as well would do so from each beginning, for minutes.
 */
function endOfTag(html: string, beginning: RegExp): number {
  const begin = html.search(beginning);
  return begin < 0 ? 0 : html.indexOf('>', begin) + 1;
}

function linkOf(link: Record<string, Json>): string {
  const attributes = LINK_ATTRIBUTES.flatMap((name) =>
    typeof link[name] === 'string' ? [`${name}="${escapeHtml(link[name])}"`] : [],
  );
  return `<link ${attributes.join(' ')}>`;
}

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
    return `the field ${lost.name} is outside of every form, and would not be sent: put it into one, or name its id in form="…"`;
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
