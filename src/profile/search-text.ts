/**
 * Text and trigrams of a user for the search by a part of a name or identifier. Case and marks are ignored, so `zoe`
 * finds `Zoë`.
 */

/** Maximum length in characters of one name or identifier in the index. A search finds no later part. */
const MAX_FIELD = 256;

/** Characters of a trigram. A shorter word of a search has no trigram. */
const GRAM = 3;

/** Maximum number of words of a search. Further words are ignored. */
const MAX_WORDS = 8;

/** Maximum number of trigrams of a search that the index is asked for. */
const MAX_GRAMS = 40;

const fold = (text: string) =>
  // A cut may leave half of a surrogate pair, which Postgres does not store.
  text
    .slice(0, MAX_FIELD)
    .replace(/[\ud800-\udbff]$/, '')
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .toLowerCase();

/** Returns the searchable text of a user: a line per name or identifier. */
export function searchTextOf(fields: readonly string[]): string {
  return fields.map((field) => fold(field).replaceAll('\n', ' ')).join('\n');
}

/** Returns the words of a search. Each of them must be in the text of a user. */
export function searchWords(search: string): string[] {
  return fold(search)
    .split(/\s+/)
    .filter((word) => word !== '')
    .slice(0, MAX_WORDS);
}

/** Whether the index can answer a search: at least one word has a trigram. */
export const isSearchable = (words: readonly string[]): boolean => words.some((word) => word.length >= GRAM);

/** Returns the trigrams of a user's text, hashed with the workspace. The index then has separate lists per workspace. */
export function gramsOf(workspaceId: string, text: string): number[] {
  const seed = hash(OFFSET, workspaceId);
  const grams = new Set<number>();
  for (const line of text.split('\n'))
    for (let from = 0; from + GRAM <= line.length; from++)
      grams.add(hash(seed, line.slice(from, from + GRAM)));
  return [...grams];
}

/** Returns the trigrams that the text of each found user has. */
export function gramsOfWords(workspaceId: string, words: readonly string[]): number[] {
  return gramsOf(workspaceId, words.join('\n')).slice(0, MAX_GRAMS);
}

const OFFSET = 0x811c9dc5;
const PRIME = 0x01000193;

/** Continues an FNV-1a hash with UTF-16 units, as a signed 32-bit integer. Stored, so it must not change. */
function hash(start: number, text: string): number {
  let value = start;
  for (let index = 0; index < text.length; index++) value = Math.imul(value ^ text.charCodeAt(index), PRIME);
  return value | 0;
}
