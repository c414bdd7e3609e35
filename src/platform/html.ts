import escapeHtml from 'escape-html';

/** Markup that is written unescaped. Only `html` creates it, so all other text is escaped. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/**
 * A value in a template. Text is escaped, the items of a list are joined, and null, undefined and booleans
 * are omitted.
 */
export type Part = Html | string | number | boolean | null | undefined | readonly Part[];

/**
 * The context of a value in a template: between tags, in a quoted attribute value, or in a tag, where only
 * markup is allowed.
 */
type Context = 'text' | 'value' | 'tag';

/**
 * Contexts of the values by template. The strings of a template literal are the same object on each
 * evaluation.
 */
const contextsByTemplate = new WeakMap<TemplateStringsArray, Context[]>();

/**
 * A tagged template that escapes text. Attribute values must be in double quotes. Other values in a tag must
 * be markup from `html`, for example `disabled`.
 *
 * @throws {TypeError} if text is used in a tag without double quotes
 */
export function html(strings: TemplateStringsArray, ...parts: Part[]): Html {
  let contexts = contextsByTemplate.get(strings);
  if (!contexts) {
    contexts = contextsIn(strings);
    contextsByTemplate.set(strings, contexts);
  }
  let text = strings[0]!;
  for (let index = 0; index < parts.length; index++) {
    const part = parts[index];
    if (contexts[index] === 'tag' && !isMarkup(part))
      throw new TypeError(`a value in a tag must be in double quotes: …${strings[index]!.slice(-40)}`);
    text += written(part) + strings[index + 1];
  }
  return new Html(text);
}

/** Returns whether a part is empty or was created by `html`. */
function isMarkup(part: Part): boolean {
  if (Array.isArray(part)) return part.every(isMarkup);
  return (
    part instanceof Html || part === undefined || part === null || part === '' || typeof part === 'boolean'
  );
}

function written(part: Part): string {
  if (part instanceof Html) return part.text;
  if (part === undefined || part === null || typeof part === 'boolean') return '';
  if (Array.isArray(part)) return part.map(written).join('');
  return escapeHtml(String(part));
}

function contextsIn(strings: TemplateStringsArray): Context[] {
  let context: Context = 'text';
  return strings.slice(0, -1).map((piece) => {
    for (let index = 0; index < piece.length; index++) {
      const character = piece[index];
      if (context === 'text') {
        if (character === '<' && /[a-z/!]/i.test(piece[index + 1] ?? '')) context = 'tag';
      } else if (character === '"') context = context === 'tag' ? 'value' : 'tag';
      else if (character === '>' && context === 'tag') context = 'text';
    }
    return context;
  });
}

/** Returns the head of a page. All its styles and scripts come from this server. */
export function pageHead({
  title,
  styles,
  scripts,
}: {
  title: string;
  styles: string[];
  scripts: string[];
}): Html {
  return html`<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${title} – Penstock</title>
<link rel="icon" href="data:,">
${styles.map((path) => html`<link rel="stylesheet" href="${path}">\n`)}${scripts.map((path) => html`<script src="${path}"></script>\n`)}</head>`;
}
