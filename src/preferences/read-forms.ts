import { Parser } from 'htmlparser2';

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
