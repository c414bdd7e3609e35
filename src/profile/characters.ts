/** Longest string value, attribute name and property name, in characters. */
export const MAX_CHARACTERS = 255;

/** What a text of an error repeats of a caller's name, in UTF-16 units. */
const MAX_QUOTED = 64;

/** Whether a text has more than `max` characters; an emoji outside the basic plane is one character. */
export function isLongerThan(text: string, max: number): boolean {
  if (text.length <= max) return false;
  if (text.length > 2 * max) return true;
  let characters = 0;
  for (const _ of text) characters++;
  return characters > max;
}

/** A caller's name as an error repeats it: cut, and without what could not be stored with a dead letter. */
export function quoted(name: string): string {
  const cut = name.length > MAX_QUOTED ? `${name.slice(0, MAX_QUOTED)}…` : name;
  return JSON.stringify(cut.toWellFormed()).slice(1, -1);
}

declare global {
  // Node 20 has both; the ES2023 library does not declare them.
  interface String {
    isWellFormed(): boolean;
    toWellFormed(): string;
  }
}
