import { uuidOf } from '../profile/values.ts';
import { attributeNames } from './submission.ts';

/** An invalid template. The message is for its author. */
export class TemplateError extends Error {
  override name = 'TemplateError';
}

/** A template that takes too much time or memory, or whose page is too large. */
export class TemplateTooCostly extends TemplateError {
  override name = 'TemplateTooCostly';
}

/** Creates an error with the line of a position in the template, for example `line 3: …`. */
function errorAt(text: string, position: number, problem: string): TemplateError {
  const line = text.slice(0, position).split('\n').length;
  return new TemplateError(`line ${line}: ${problem}`);
}

const ENDRAW = /\{%-?\s*endraw\s*-?%\}/g;

/** Number of characters in which an owner and its dot are searched. The longest owner has 17 characters. */
const MAX_OWNER_LENGTH = 64;

interface Translated {
  /** Plain Liquid with the same lines. */
  text: string;
  /** Ids of the subscription groups in the template. */
  groups: Set<string>;
}

/**
 * Translates `${…}`, which Liquid does not support, to plain Liquid: `${email_address}` to a look-up in the user's
 * attributes, and `subscribed_state.${…}` and `custom_attribute.${…}` to look-ups in these. It is translated only
 * inside `{{ }}` and `{% %}` and outside quotes. Elsewhere it is text.
 *
 * @throws {TemplateError} with the line of an unknown name
 */
export function translateUserNames(template: string): Translated {
  const groups = new Set<string>();
  let text = '';
  let position = 0;
  for (;;) {
    const begin = nextMarkup(template, position);
    if (begin < 0) return { text: text + template.slice(position), groups };
    text += template.slice(position, begin);
    const markup = readMarkup(template, begin, groups);
    text += markup.text;
    position = markup.end;
    if (!/^\{%-?\s*raw\s*-?%\}$/.test(markup.text)) continue;
    ENDRAW.lastIndex = position;
    const match = ENDRAW.exec(template);
    const end = match ? match.index : template.length;
    text += template.slice(position, end);
    position = end;
  }
}

function nextMarkup(template: string, from: number): number {
  for (
    let position = template.indexOf('{', from);
    position >= 0;
    position = template.indexOf('{', position + 1)
  ) {
    if (template[position + 1] === '{' || template[position + 1] === '%') return position;
  }
  return -1;
}

/** Reads markup from `{{` or `{%` to its end. Markup without an end is copied, so that Liquid reports it. */
function readMarkup(template: string, begin: number, groups: Set<string>): { text: string; end: number } {
  const closing = template[begin + 1] === '{' ? '}}' : '%}';
  const comment = /^\{%-?\s*#/.test(template.slice(begin, begin + 20));
  let text = template.slice(begin, begin + 2);
  let position = begin + 2;
  while (position < template.length) {
    if (template.startsWith(closing, position)) return { text: text + closing, end: position + 2 };
    const character = template[position]!;
    if (character === '"' || character === "'") {
      const quote = template.indexOf(character, position + 1);
      const end = quote < 0 ? position + 1 : quote + 1;
      text += template.slice(position, end);
      position = end;
    } else if (!comment && template.startsWith('${', position)) {
      const end = template.indexOf('}', position);
      if (end < 0) throw errorAt(template, position, "'${' is not closed");
      const name = template.slice(position + 2, end).trim();
      text = lookUp({ before: text, name }, groups, (problem) => errorAt(template, position, problem));
      position = end + 1;
    } else {
      text += character;
      position++;
    }
  }
  return { text: template.slice(begin), end: template.length };
}

/** Returns the text so far, followed by the look-up of the name. */
function lookUp(
  { before, name }: { before: string; name: string },
  groups: Set<string>,
  problem: (text: string) => Error,
): string {
  // Search only the end of the text. Otherwise the expression would scan a long word from each of its letters.
  const owner = /(\w+)\.$/.exec(before.slice(-MAX_OWNER_LENGTH))?.[1];
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
