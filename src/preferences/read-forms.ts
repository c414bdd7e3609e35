import { Parser } from 'htmlparser2';

/** A control of a form that has a name. */
export interface Field {
  name: string;
  value: string;
  /** Sent only when it is ticked. */
  checkbox: boolean;
}

/** The named controls of each form of a page that is sent, in order; what is disabled is not sent. */
export function readForms(html: string): Field[][] {
  const forms: Field[][] = [];
  let open: Field[] | undefined;
  const parser = new Parser(
    {
      onopentag(tag, attributes) {
        if (tag === 'form') {
          open = [];
          forms.push(open);
        }
        const { name, type, value, disabled } = attributes;
        if (!open || !name || disabled !== undefined || !['input', 'select', 'button'].includes(tag)) return;
        open.push({ name, value: value ?? '', checkbox: tag === 'input' && /^checkbox$/i.test(type ?? '') });
      },
      onclosetag(tag) {
        if (tag === 'form') open = undefined;
      },
    },
    { decodeEntities: true },
  );
  parser.end(html);
  return forms;
}
