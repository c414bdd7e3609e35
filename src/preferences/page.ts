import escapeHtml from 'escape-html';
import type { Json } from '../profile/json.ts';

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
