import { uuidOf } from '../profile/values.ts';
import { attributeNames } from './submission.ts';

/** Why a template cannot be rendered, in words for whoever wrote it. */
export class TemplateError extends Error {
  override name = 'TemplateError';
}

/** The page takes too long, too much memory, or is too large. */
export class TemplateTooCostly extends TemplateError {
  override name = 'TemplateTooCostly';
}

/** `line 3: what is wrong`, with the line of a place in the template. */
function atLine(text: string, place: number, problem: string): TemplateError {
  const line = text.slice(0, place).split('\n').length;
  return new TemplateError(`line ${line}: ${problem}`);
}

const ENDRAW = /\{%-?\s*endraw\s*-?%\}/g;

/** Characters in which an owner and its dot are looked for; the longest that there is has 17. */
const LONGEST_OWNER = 64;

export interface Translated {
  /** Plain Liquid, line by line as before. */
  text: string;
  /** The subscription groups that are named. */
  groups: Set<string>;
}

/**
 * Writes `${…}`, which Liquid does not know, as what it does: `${email_address}` as a look-up among the user's
 * attributes, `subscribed_state.${…}` and `custom_attribute.${…}` among those. Only inside `{{ }}` and `{% %}`,
 * and not inside quotes there: everywhere else it is text.
 *
 * @throws {TemplateError} naming the line of a name that cannot be
 */
export function translateUserNames(template: string): Translated {
  const groups = new Set<string>();
  let text = '';
  let place = 0;
  for (;;) {
    const begin = nextMarkup(template, place);
    if (begin < 0) return { text: text + template.slice(place), groups };
    text += template.slice(place, begin);
    const markup = readMarkup(template, begin, groups);
    text += markup.text;
    place = markup.end;
    if (!/^\{%-?\s*raw\s*-?%\}$/.test(markup.text)) continue;
    ENDRAW.lastIndex = place;
    const found = ENDRAW.exec(template);
    const end = found ? found.index : template.length;
    text += template.slice(place, end);
    place = end;
  }
}

function nextMarkup(template: string, from: number): number {
  for (let place = template.indexOf('{', from); place >= 0; place = template.indexOf('{', place + 1)) {
    if (template[place + 1] === '{' || template[place + 1] === '%') return place;
  }
  return -1;
}

/** From `{{` or `{%` to its end; one without an end goes as it is, for Liquid to complain of. */
function readMarkup(template: string, begin: number, groups: Set<string>): { text: string; end: number } {
  const closing = template[begin + 1] === '{' ? '}}' : '%}';
  const comment = /^\{%-?\s*#/.test(template.slice(begin, begin + 20));
  let text = template.slice(begin, begin + 2);
  let place = begin + 2;
  while (place < template.length) {
    if (template.startsWith(closing, place)) return { text: text + closing, end: place + 2 };
    const character = template[place]!;
    if (character === '"' || character === "'") {
      const quote = template.indexOf(character, place + 1);
      const end = quote < 0 ? place + 1 : quote + 1;
      text += template.slice(place, end);
      place = end;
    } else if (!comment && template.startsWith('${', place)) {
      const end = template.indexOf('}', place);
      if (end < 0) throw atLine(template, place, "'${' is not closed");
      const name = template.slice(place + 2, end).trim();
      text = lookUp({ before: text, name }, groups, (problem) => atLine(template, place, problem));
      place = end + 1;
    } else {
      text += character;
      place++;
    }
  }
  return { text: template.slice(begin), end: template.length };
}

/** The text so far with the look-up of the name behind it. */
function lookUp(
  { before, name }: { before: string; name: string },
  groups: Set<string>,
  problem: (text: string) => Error,
): string {
  // The end alone: from every letter of a long word the expression would run to where it ends.
  const owner = /(\w+)\.$/.exec(before.slice(-LONGEST_OWNER))?.[1];
  if (owner === undefined) {
    if (!Object.hasOwn(attributeNames, name)) {
      throw problem(
        `there is no user attribute '\${${name}}'; there are ${Object.keys(attributeNames).join(', ')}, and custom_attribute.\${name}`,
      );
    }
    return `${before}attributes["${name}"]`;
  }
  const scope = before.slice(0, -1);
  if (owner === 'subscribed_state') {
    if (name === 'email_global') return `${scope}["email_global"]`;
    const group = uuidOf(name);
    if (group === undefined) {
      throw problem(
        `'subscribed_state.\${${name}}' is not valid: it must name email_global or the id of a subscription group`,
      );
    }
    groups.add(group);
    return `${scope}["${group}"]`;
  }
  if (owner !== 'custom_attribute') {
    throw problem(
      `'${owner}.\${${name}}' is not valid: it must be subscribed_state.\${…} or custom_attribute.\${…}`,
    );
  }
  const quote = ['"', "'"].find((mark) => !name.includes(mark));
  if (quote === undefined) throw problem(`'custom_attribute.\${${name}}' has both kinds of quotes`);
  return `${scope}[${quote}${name}${quote}]`;
}
