import { DateTime } from 'luxon';
import { isAddressOrSubnet } from '../platform/listen.ts';
import { MAX_EXTERNAL_ID_BYTES } from '../profile/identifier.ts';
import { isUuid } from '../profile/values.ts';
import { InvalidValue } from './refusal.ts';

/** The form control of a value. */
export type Control =
  | { kind: 'text'; maxLength: number; placeholder?: string }
  /** A text of several lines. The command line reads it from a file. */
  | { kind: 'area'; maxLength: number; isShort?: boolean }
  | ({ kind: 'choice'; choices: readonly string[] } & ChoiceTexts)
  /** Checkboxes. The command line takes comma-separated names. */
  | { kind: 'boxes'; groups: readonly BoxGroup[] }
  | { kind: 'switch' }
  /**
   * Read from a file or a variable. Never an argument of a command, because every user of the machine could read it.
   */
  | { kind: 'secret'; fileOnly?: boolean };

/** Checkboxes below one title. `choices` maps each name to a line about it, which may be empty. */
export interface BoxGroup {
  /** Absent if the field has one group. */
  title?: string;
  choices: Readonly<Record<string, string>>;
}

/** Texts of a choice in the console. */
interface ChoiceTexts {
  /** Text of each choice; absent if the names are shown. */
  texts?: Record<string, string>;
  /** Text of a filter that is not set; absent for `All`. */
  unset?: string;
}

/** A value that a user enters: an option of a command and a field of a form. */
export interface Field<T> {
  /** Label of the form field. */
  label: string;
  /** Short rule without a full stop: the help of the option, and the hint below the form field. */
  help: string;
  /** Placeholder of the option, for example `list` in `--permissions <list>`. */
  value: string;
  control: Control;
  required: boolean;
  /** Value that applies if the user gives none. */
  fallback?: T;
  /** Whether an empty text is a value, so that a form can empty the field. */
  mayBeEmpty?: boolean;
  /** Whether white space at the ends of a text belongs to the value. */
  isExact?: boolean;
  /** Part of the form to which the field belongs, for example one of several destinations. A form submits one part. */
  part?: string;
  /**
   * The form offers the suggestions of the text field as a list, of which one is chosen. `unset` is the text of the first
   * entry, which has no value. With MAX_SUGGESTIONS or more, or none, the value is typed.
   */
  listed?: { unset: string };
  /** Whether only the command line has the field. */
  isCommandOnly?: boolean;
  /** @throws {InvalidValue} stating the rule */
  read(text: string): T;
}

export type Fields = Record<string, Field<unknown>>;

export type ValuesOf<F extends Fields> = {
  [Name in keyof F]: F[Name] extends Field<infer T> ? T : never;
};

interface Words {
  label: string;
  help: string;
  value?: string;
}

/** Maximum number of suggestions for a field. Other values can be typed. */
export const MAX_SUGGESTIONS = 200;

/** The largest value of a Postgres integer. */
const MAX_INTEGER = 2_147_483_647;

/** Maximum length of a name in characters, so that it fits on a line of a table. */
export const MAX_NAME = 255;

/** Maximum length of a list in characters, on one line. */
const MAX_LIST = 5000;

/** Maximum number of addresses and subnets per key. */
const MAX_ALLOWED = 100;

/** Makes a field optional. */
export function optional<T>(field: Field<T>): Field<T | undefined> {
  return { ...field, required: false };
}

/** Makes a field optional, with a default. */
export function withDefault<T>(field: Field<T>, fallback: T): Field<T> {
  return { ...field, required: false, fallback };
}

/** Lets a form empty a field. */
export function canBeEmpty<T>(field: Field<T>): Field<T> {
  return { ...field, mayBeEmpty: true };
}

/** Shows a field only while its part of the form is chosen. */
export function inPart<T>(part: string, field: Field<T>): Field<T> {
  return { ...field, part };
}

/** Offers the suggestions of a text field as a list. @param unset text of the entry without a value */
export function listedIn<T>(unset: string, field: Field<T>): Field<T> {
  return { ...field, listed: { unset } };
}

/** Omits a field from the console. */
export function commandOnly<T>(field: Field<T>): Field<T> {
  return { ...field, isCommandOnly: true };
}

export function text<T = string>(
  { label, help, value = 'text' }: Words,
  read: (text: string) => T,
  {
    maxLength = MAX_NAME,
    placeholder,
    isExact,
  }: { maxLength?: number; placeholder?: string; isExact?: boolean } = {},
): Field<T> {
  return {
    ...{ label, help, value, required: true, read },
    ...(isExact !== undefined && { isExact }),
    control: { kind: 'text', maxLength, ...(placeholder !== undefined && { placeholder }) },
  };
}

/** Creates a field for a text of several lines, whose white space is kept. @param options.isShort whether it has few lines */
export function area<T = string>(
  { label, help }: Omit<Words, 'value'>,
  read: (text: string) => T,
  { maxLength, isShort }: { maxLength: number; isShort?: boolean },
): Field<T> {
  return {
    ...{ label, help, value: 'file', required: true, isExact: true, read },
    control: { kind: 'area', maxLength, ...(isShort !== undefined && { isShort }) },
  };
}

export const name = (help: string): Field<string> => text({ label: 'Name', help, value: 'name' }, readName);

export function choice<T extends string>(
  { label, help, value = label.toLowerCase() }: Words,
  choices: readonly T[],
  texts: ChoiceTexts = {},
): Field<T> {
  const read = (text: string) => {
    const match = choices.find((one) => one === text);
    if (match === undefined) throw new InvalidValue(`Must be one of: ${choices.join(', ')}.`);
    return match;
  };
  return { label, help, value, required: true, read, control: { kind: 'choice', choices, ...texts } };
}

/** Creates a field for a list of names. `read` validates the list, for example with `readNames`. */
export function names<T extends string>(
  { label, help, value = 'list' }: Words,
  groups: readonly BoxGroup[],
  read: (text: string) => T[],
): Field<T[]> {
  return { label, help, value, required: true, read, control: { kind: 'boxes', groups } };
}

/** Creates a group of checkboxes without a title and without lines. */
export const plainBoxes = (choices: readonly string[]): BoxGroup[] => [
  { choices: Object.fromEntries(choices.map((one) => [one, ''])) },
];

export const flag = ({ label, help }: Words): Field<boolean> => ({
  ...{ label, help, value: '', required: false, fallback: false, read: (text) => text !== '' },
  control: { kind: 'switch' },
});

export const ipAllowlist = (help: string): Field<string[]> =>
  withDefault(
    text({ label: 'Allowed IPs', help, value: 'list' }, readIpAllowlist, {
      ...{ maxLength: MAX_LIST, placeholder: '10.0.0.0/8, 192.0.2.7' },
    }),
    [],
  );

export const time = ({ label, help }: Words): Field<Date> =>
  text({ label, help, value: 'time' }, readTime, { placeholder: '2026-11-23T08:00:00Z' });

/** A secret that the user enters. */
export interface SecretSource {
  isGiven: boolean;
  /**
   * Reads the secret.
   * @param what label of the prompt in the terminal, for example `Password`
   * @throws {Refusal} if there is none or it cannot be read
   */
  read(what: string): Promise<string>;
}

export function secret({ label, help, fileOnly }: Words & { fileOnly?: boolean }): Field<SecretSource> {
  const read = (text: string): SecretSource => ({ isGiven: true, read: async () => text });
  return {
    ...{ label, help, value: 'file', required: false, read },
    control: { kind: 'secret', ...(fileOnly && { fileOnly }) },
  };
}

/** Reads a name of 1 to 255 characters. */
export function readName(text: string): string {
  const name = text.trim();
  if (name === '' || name.length > MAX_NAME)
    throw new InvalidValue(`A name must have 1 to ${MAX_NAME} characters.`);
  return name;
}

/** Reads an external id, which is not trimmed. */
export function readExternalId(text: string): string {
  if (text === '' || Buffer.byteLength(text) > MAX_EXTERNAL_ID_BYTES)
    throw new InvalidValue(`An external id must have 1 to ${MAX_EXTERNAL_ID_BYTES} bytes.`);
  return text;
}

export function readCount(text: string): number {
  const count = Number(text);
  if (text.trim() === '' || !Number.isInteger(count) || count < 1 || count > MAX_INTEGER)
    throw new InvalidValue(`Must be a whole number from 1 to ${MAX_INTEGER}.`);
  return count;
}

export function readId(text: string): string {
  const id = text.trim().toLowerCase();
  if (!isUuid(id)) throw new InvalidValue('An id must be a UUID.');
  return id;
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/;

export function readTime(text: string): Date {
  const at = new Date(text);
  if (!TIME.test(text) || Number.isNaN(at.getTime()))
    throw new InvalidValue('Must be a time, for example 2026-11-23T08:00:00Z.');
  return at;
}

/** Reads a UTC date in the format YYYY-MM-DD. */
export function readDay(text: string): Date {
  const day = DateTime.fromFormat(text, 'yyyy-MM-dd', { zone: 'utc' });
  if (!day.isValid) throw new InvalidValue('A day must be written as YYYY-MM-DD.');
  return day.toJSDate();
}

/** Reads a list of IP addresses and CIDR subnets. Each must be valid for Node's BlockList. */
export function readIpAllowlist(text: string): string[] {
  const entries = listOf(text);
  const wrong = entries.filter((entry) => !isAddressOrSubnet(entry));
  if (entries.length > MAX_ALLOWED)
    throw new InvalidValue(`A key can have at most ${MAX_ALLOWED} addresses and subnets.`);
  if (wrong.length > 0 || entries.length === 0) {
    const named = wrong.length > 0 ? `Invalid: ${wrong.join(', ').slice(0, 200)}. ` : '';
    throw new InvalidValue(`${named}An entry must be an IP address or a subnet, for example 10.0.0.0/8.`);
  }
  return entries;
}

/**
 * Creates a reader for a list of names. With `all`, the word `all` selects every name. `noun` names one entry in error
 * messages.
 */
export function readNames<T extends string>(noun: string, supported: readonly T[], { all = false } = {}) {
  return (text: string): T[] => {
    const given = listOf(text);
    if (all && given.includes('all')) return [...supported];
    const unknown = given.filter((one) => !supported.some((name) => name === one));
    if (unknown.length > 0 || given.length === 0) {
      const wrong = unknown.length > 0 ? `Unknown ${noun}: ${unknown.join(', ').slice(0, 200)}. ` : '';
      throw new InvalidValue(
        `${wrong}The permissions are: ${[...(all ? ['all'] : []), ...supported].join(', ')}.`,
      );
    }
    return supported.filter((name) => given.includes(name));
  };
}

/** Splits a comma-separated list and removes duplicates. */
export function listOf(text: string): string[] {
  const entries = text.split(',').map((entry) => entry.trim());
  return [...new Set(entries.filter((entry) => entry !== ''))];
}
