import escapeHtml from 'escape-html';

/** Markup as it stands. Only `html` makes it, so that whatever is text is escaped. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** What may stand between the pieces of a template: text is escaped, nothing is left out, a list is joined. */
export type Part = Html | string | number | boolean | null | undefined | readonly Part[];

/** Where a part stands: between tags, within a quoted value, or within a tag, where only markup may stand. */
type Place = 'text' | 'value' | 'tag';

/** By the template, which is one object however often it is filled. */
const known = new WeakMap<TemplateStringsArray, Place[]>();

/**
 * A tagged template that escapes by default. A value of an attribute has to stand in double quotes; within a tag there
 * may be markup of `html` alone, such as `disabled`.
 *
 * @throws {TypeError} for text where quotes are missing
 */
export function html(strings: TemplateStringsArray, ...parts: Part[]): Html {
  let places = known.get(strings);
  if (!places) {
    places = placesIn(strings);
    known.set(strings, places);
  }
  let text = strings[0]!;
  for (let index = 0; index < parts.length; index++) {
    const part = parts[index];
    if (places[index] === 'tag' && !isMarkup(part))
      throw new TypeError(`text within a tag needs double quotes: …${strings[index]!.slice(-40)}`);
    text += written(part) + strings[index + 1];
  }
  return new Html(text);
}

/** Nothing, or made by `html`. */
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

function placesIn(strings: TemplateStringsArray): Place[] {
  let place: Place = 'text';
  return strings.slice(0, -1).map((piece) => {
    for (let index = 0; index < piece.length; index++) {
      const character = piece[index];
      if (place === 'text') {
        if (character === '<' && /[a-z/!]/i.test(piece[index + 1] ?? '')) place = 'tag';
      } else if (character === '"') place = place === 'tag' ? 'value' : 'tag';
      else if (character === '>' && place === 'tag') place = 'text';
    }
    return place;
  });
}

/** What a page of ours begins with: nothing of it comes from another host. */
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
