import escapeHtml from 'escape-html';
import { Parser } from 'htmlparser2';
import type { Json } from '../profile/json.ts';
import { uuidOf } from '../profile/values.ts';

// Definitions that web processes need. They do not depend on Liquid, which only render processes load.

/** Maximum length of a stored template in characters. */
export const MAX_TEMPLATE = 262_144;

/** Maximum length of a rendered page in characters. */
export const MAX_PAGE = 1_048_576;

/** Time limit of Liquid for one rendering in milliseconds: hundreds of times the time of a usual page. */
export const RENDER_LIMIT = 500;

/**
 * Milliseconds after which the render process is killed. Liquid checks its own limit only between two tags, and a
 * single filter can take long.
 */
export const RENDER_DEADLINE = 1500;

/** Maximum number of elements and characters that one rendering may allocate, as counted by Liquid. */
export const MEMORY_LIMIT = 5_000_000;

/** Heap size of a render process in MB. */
export const HEAP = 64;

/** Number of render processes per web process. It limits the share of the machine that pages take from the API. */
export const RENDERERS = 2;

/** Maximum number of renderings that wait for a process. Further ones are refused. */
export const MAX_WAITING = 64;

/** Maximum number of waiting renderings of one workspace. */
export const MAX_WAITING_PER_WORKSPACE = 32;

/** Maximum time in milliseconds that a rendering waits while all processes are busy. */
export const TURN_PATIENCE = 2500;

/** Processor time in milliseconds above which a rendering is slow: many times the time of a usual page. */
export const SLOW = 250;

/**
 * Time in milliseconds after a slow rendering for which the workspace counts as slow. Slow workspaces leave at least
 * one process to the others.
 */
export const SLOW_FOR = 60_000;

/** Maximum number of named controls of a page. 450 groups with two boxes each have 900. */
export const MAX_CONTROLS = 5000;

/** The settings of a center for the document around its HTML. */
export interface Head {
  title: string;
  options: { 'meta-viewport-content'?: string; 'links-tags'?: Record<string, Json>[] };
}

const LINK_ATTRIBUTES = ['rel', 'type', 'sizes', 'color', 'href'];

/**
 * Creates the complete document. If the HTML is a complete document already, the elements are inserted into its head,
 * and its own title is kept.
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
 * Returns the end of the first tag of a kind, or 0 if there is none. The search takes one pass for any page. A regular
 * expression that also matched the end of the tag would search for it from each beginning, which could take minutes.
 */
function endOfTag(html: string, beginning: RegExp): number {
  const begin = html.search(beginning);
  return begin < 0 ? 0 : html.indexOf('>', begin) + 1;
}

/** Returns the link element of an entry of `links-tags`. */
export function linkOf(link: Record<string, Json>): string {
  const attributes = LINK_ATTRIBUTES.flatMap((name) =>
    typeof link[name] === 'string' ? [`${name}="${escapeHtml(link[name])}"`] : [],
  );
  return `<link ${attributes.join(' ')}>`;
}

/** The global email states that a user can choose. */
export const globalStates = ['subscribed', 'unsubscribed', 'opted_in'] as const;
export type GlobalState = (typeof globalStates)[number];

/** The states of a subscription group that a user can choose. */
export const groupStates = ['subscribed', 'unsubscribed'] as const;
export type GroupStateName = (typeof groupStates)[number];

/** Name of the form field for the global email state. */
export const GLOBAL_FIELD = 'email_global_state';

const GROUP_PREFIX = 'subscription_group_';

/** Returns the name of the form field for a subscription group. */
export function groupField(groupId: string): string {
  return GROUP_PREFIX + groupId;
}

/** Returns the group of a form field, or undefined if the field is not for a group. */
export function groupOfField(name: string): string | undefined {
  return name.startsWith(GROUP_PREFIX) ? uuidOf(name.slice(GROUP_PREFIX.length)) : undefined;
}

/**
 * Returns the reason why a choice on the page would be lost, as a message for the author of the template. Returns
 * undefined if there is none. Otherwise only visitors would notice the mistake.
 *
 * @param submitUrl URL to which the page must send its form
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

/** A named control of a form. */
export interface Field {
  name: string;
  /** Sent value. It is irrelevant for a select or text control, whose value the visitor chooses. */
  value: string;
  /** Whether the value is sent only if the box is ticked. */
  checkbox: boolean;
  /** Whether the visitor cannot change the value. */
  fixed: boolean;
}

export interface Form {
  /** Method in lower case. */
  method: string;
  /** Target of the form. Empty for the URL of the page itself. */
  action: string;
  enctype: string | undefined;
  /** Controls in document order, including controls outside the form element. */
  fields: Field[];
}

export interface PageForms {
  forms: Form[];
  /** Controls without a form, which browsers do not send. */
  stray: Field[];
}

/** Types of controls whose value the visitor cannot type, and types that browsers never send. */
const FIXED = ['checkbox', 'radio', 'hidden', 'submit'];
const NEVER_SENT = ['button', 'reset', 'image'];

/**
 * Reads the named controls of a page and assigns each to the form that sends it, like a browser: the form of its `form`
 * attribute, or the form around the control. Disabled controls and controls in a `template` are omitted.
 */
export function readForms(html: string): PageForms {
  const forms: Form[] = [];
  const stray: Field[] = [];
  const named = new Map<string, Form>();
  /** Controls whose form may follow later in the page. */
  const joined: { field: Field; id: string }[] = [];
  /** The open fieldsets and templates, and whether each disables its content. */
  const enclosing: { tag: string; off: boolean }[] = [];
  let open: Form | undefined;
  const parser = new Parser(
    {
      onopentag(tag, attributes) {
        if (tag === 'template' || tag === 'fieldset') {
          enclosing.push({ tag, off: tag === 'template' || attributes.disabled !== undefined });
        }
        if (enclosing.some(({ off }) => off)) return;
        // Browsers ignore a form inside a form.
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
        if (tag === enclosing.at(-1)?.tag) enclosing.pop();
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
