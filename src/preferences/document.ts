import { escapeHtml } from '../escape-html.ts';
import type { Json } from '../profile/json.ts';

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
