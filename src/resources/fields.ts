import { DateTime } from 'luxon';
import { isAddressOrSubnet } from '../platform/listen.ts';
import { isUuid } from '../profile/values.ts';
import { InvalidValue } from './refusal.ts';

/** How a form asks for a value. */
export type Control =
  | { kind: 'text'; maxLength: number; placeholder?: string }
  | { kind: 'area'; maxLength: number }
  | { kind: 'number' }
  | { kind: 'choice'; choices: readonly string[] }
  /** Boxes to tick; the command line takes the names with commas between. */
  | { kind: 'boxes'; choices: readonly string[] }
  | { kind: 'switch' }
  /** Never an argument of a command, where every user of the machine could read it: a file or a variable holds it. */
  | { kind: 'secret'; fileOnly?: boolean };

/** One value that a person gives: an option of a command, and a field of a form. */
export interface Field<T> {
  /** What the form calls it. */
  label: string;
  /** Its rule in a few words, without a full stop: the help of the option, and the hint below the field. */
  help: string;
  /** The placeholder of the option: `list` for `--permissions <list>`. */
  value: string;
  control: Control;
  required: boolean;
  /** What holds where nothing is given. */
  fallback?: T;
  /** Which of the two renderers has it; absent: both. */
  only?: 'command' | 'console';
  /** @throws {InvalidValue} with the rule */
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
  only?: 'command' | 'console';
}

/** The largest value of a Postgres integer. */
export const MAX_INTEGER = 2_147_483_647;

/** Characters that a name may have: it has to fit a line of a table. */
export const MAX_NAME = 255;

/** Characters of a list in one line. */
const MAX_LIST = 5000;

/** Addresses and subnets of one key. */
const MAX_ALLOWED = 100;

/** Makes a field one that may be left out. */
export function optional<T>(field: Field<T>): Field<T | undefined> {
  return { ...field, required: false };
}

/** Makes a field one that may be left out, with what holds then. */
export function withDefault<T>(field: Field<T>, fallback: T): Field<T> {
  return { ...field, required: false, fallback };
}

export function text<T = string>(
  { label, help, value = 'text', only }: Words,
  read: (text: string) => T,
  { maxLength = MAX_NAME, placeholder }: { maxLength?: number; placeholder?: string } = {},
): Field<T> {
  return {
    ...{ label, help, value, required: true, read },
    control: { kind: 'text', maxLength, ...(placeholder !== undefined && { placeholder }) },
    ...(only && { only }),
  };
}

export const name = (help: string): Field<string> => text({ label: 'Name', help, value: 'name' }, readName);

export const count = ({ label, help, value = 'number' }: Words): Field<number> => ({
  ...{ label, help, value, required: true, read: readCount, control: { kind: 'number' } },
});

export function choice<T extends string>(
  { label, help, value = label.toLowerCase(), only }: Words,
  choices: readonly T[],
): Field<T> {
  const read = (text: string) => {
    const found = choices.find((one) => one === text);
    if (found === undefined) throw new InvalidValue(`Must be one of: ${choices.join(', ')}.`);
    return found;
  };
  return {
    ...{ label, help, value, required: true, read, control: { kind: 'choice', choices } },
    ...(only && { only }),
  };
}

/** Names out of a list, in its order. `all` stands for each of them where `hasAll` is set. */
export function names<T extends string>(
  { label, help, value = 'list' }: Words,
  choices: readonly T[],
  read: (text: string) => T[],
): Field<T[]> {
  return { label, help, value, required: true, read, control: { kind: 'boxes', choices } };
}

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

/** A secret as a person gives it. */
export interface SecretSource {
  isGiven: boolean;
  /**
   * @param what for a question at the terminal: `Password`
   * @throws {Refusal} when there is none, or it cannot be read
   */
  read(what: string): Promise<string>;
}

export function secret({ label, help, only, fileOnly }: Words & { fileOnly?: boolean }): Field<SecretSource> {
  const read = (text: string): SecretSource => ({ isGiven: true, read: async () => text });
  return {
    ...{ label, help, value: 'file', required: false, read },
    control: { kind: 'secret', ...(fileOnly && { fileOnly }) },
    ...(only && { only }),
  };
}

/** Reads a name of 1 to 255 characters. */
export function readName(text: string): string {
  const name = text.trim();
  if (name === '' || name.length > MAX_NAME)
    throw new InvalidValue(`A name must have 1 to ${MAX_NAME} characters.`);
  return name;
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

/** A day in UTC. */
export function readDay(text: string): Date {
  const day = DateTime.fromFormat(text, 'yyyy-MM-dd', { zone: 'utc' });
  if (!day.isValid) throw new InvalidValue('A day must be written as YYYY-MM-DD.');
  return day.toJSDate();
}

/** IP addresses and CIDR subnets, each as Node's own block list understands it. */
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

/** Reads names out of a list. `noun` is what the message calls one of them. */
export function readNames<T extends string>(noun: string, known: readonly T[], { all = false } = {}) {
  return (text: string): T[] => {
    const given = listOf(text);
    if (all && given.includes('all')) return [...known];
    const unknown = given.filter((one) => !known.some((name) => name === one));
    if (unknown.length > 0 || given.length === 0) {
      const wrong = unknown.length > 0 ? `Unknown ${noun}: ${unknown.join(', ').slice(0, 200)}. ` : '';
      throw new InvalidValue(
        `${wrong}The permissions are: ${[...(all ? ['all'] : []), ...known].join(', ')}.`,
      );
    }
    return known.filter((name) => given.includes(name));
  };
}

/** Entries with commas between, each once. */
export function listOf(text: string): string[] {
  const entries = text.split(',').map((entry) => entry.trim());
  return [...new Set(entries.filter((entry) => entry !== ''))];
}
