import MiniSearch from 'minisearch';
import { type Html, html, type Part } from '../platform/html.ts';
import { MOST_QUERY } from './layout.ts';

/** A part of a page that can be found. */
export interface Found {
  /** Of the guide, or the method and path of the operation. */
  title: string;
  heading: string;
  /** Its address, with the anchor of its heading. */
  path: string;
  text: string;
}

const MOST_FOUND = 30;
const MOST_WORDS = 8;
const EXCERPT = 180;

/** Parts that are indexed before others get their turn: some milliseconds at most. */
const CHUNK = 5;

export type Search = (query: string) => Found[];

/** An index over parts of pages: all words have to be there, by their beginnings, long ones with a typing error. */
export async function createSearch(parts: readonly Found[]): Promise<Search> {
  const index = new MiniSearch<Found & { id: number }>({
    fields: ['title', 'heading', 'text'],
    searchOptions: {
      boost: { heading: 4, title: 2 },
      prefix: (word) => word.length > 2,
      fuzzy: (word) => (word.length > 4 ? 0.2 : false),
      combineWith: 'AND',
    },
  });
  await index.addAllAsync(
    parts.map((part, id) => ({ ...part, id })),
    { chunkSize: CHUNK },
  );
  return (query) => {
    const words = query
      .slice(0, MOST_QUERY)
      .split(BETWEEN_WORDS)
      .filter(Boolean)
      .slice(0, MOST_WORDS)
      .join(' ');
    // Many guides speak of a setting, and one says what it is.
    const boostDocument = (id: number) => (parts[id]!.title === 'Settings' ? 10 : 1);
    return index
      .search(words, SETTING.test(query.trim()) ? { boostDocument } : {})
      .slice(0, MOST_FOUND)
      .map(({ id }) => parts[id]!);
  };
}

/** The name of one. */
const SETTING = /^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$/;

/** As MiniSearch parts words: a word with hyphens is several. */
const BETWEEN_WORDS = /[\n\r\p{Z}\p{P}]+/u;

/** What was found, with the place where a word stands. */
export function resultsPage(query: string, found: readonly Found[]): Html {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean).slice(0, MOST_WORDS);
  const many = found.length === MOST_FOUND ? `The first ${MOST_FOUND}` : found.length;
  const said =
    query === ''
      ? 'Search guides and reference by the field above.'
      : `${found.length === 0 ? 'Nothing' : `${many} ${found.length === 1 ? 'place' : 'places'}`} for “${query}”.`;
  return html`<h1>Search</h1>
<div data-results><p class="faint" role="status">${said}</p>
${
  query !== '' &&
  found.length === 0 &&
  html`<p>All words have to stand in one part of a page. Fewer words find more; <a href="/docs#contents">the contents</a> have everything.</p>`
}<ol class="results">${found.map(
    ({ title, heading, path, text }) =>
      html`<li><a href="${path}">${heading}</a> <span class="faint">${title}</span><p>${excerpt(text, words)}</p></li>`,
  )}</ol></div>`;
}

/** The beginning of the text, or from shortly before the first of the words. */
function excerpt(text: string, words: readonly string[]): Part {
  const places = words.map((word) => text.toLowerCase().indexOf(word)).filter((at) => at >= 0);
  const at = Math.max(0, Math.min(...places, text.length) - 40);
  const from = places.length === 0 || at < EXCERPT / 2 ? 0 : text.indexOf(' ', at) + 1;
  const piece = text.slice(from, from + EXCERPT);
  const marked = words.reduce<Part[]>((parts, word) => parts.flatMap((part) => mark(part, word)), [piece]);
  return [from > 0 && '… ', marked, from + EXCERPT < text.length && ' …'];
}

function mark(part: Part, word: string): Part[] {
  if (typeof part !== 'string') return [part];
  const at = part.toLowerCase().indexOf(word);
  if (at < 0) return [part];
  const end = at + word.length;
  return [part.slice(0, at), html`<mark>${part.slice(at, end)}</mark>`, part.slice(end)];
}
