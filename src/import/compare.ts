import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { appendFile } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { Scratch } from '../integrations/files/scratch.ts';
import { SourceError } from '../integrations/source.ts';
import { shortened } from '../platform/format.ts';
import { isGiven } from '../profile/identifier.ts';
import { type Json, parsedOrText } from '../profile/json.ts';
import { isDatetime, parseTime, toIso } from '../profile/time.ts';
import { isRecord, recordsOf } from '../profile/values.ts';
import { openInput } from './open-input.ts';
import { filesOf, isFolder, openScratch } from './open-inputs.ts';
import { scanLines, splitRecords, type Values } from './reader.ts';
import { ImportError } from './unpack.ts';

/** Users of both exports are parted by their names, so that one part of each is in memory at a time. */
const PARTS = 256;

/** Characters of a part, as users are compared: an export may have about 16 GB of these. */
const MOST_PART = 67_108_864;

/** Characters that are gathered before they go to the disk. */
const PIECE = 65_536;

/** Of a value that is shown. */
const MOST_SHOWN = 100;

type Difference = {
  user: string;
  field: string;
  /** Canonical JSON, cut; null: it has none. */
  theirs: string | null;
  ours: string | null;
};

export interface Comparison {
  same: number;
  differ: number;
  only_theirs: number;
  only_ours: number;
  /** Rows that name nobody, are no users, or name somebody a second time. */
  passed_over: number;
  /** How many users differ by field; attributes together. */
  fields: Record<string, number>;
  /** Fields that only one of the two exports has, of whichever user: they are not compared. */
  not_compared: string[];
  first: Difference[];
}

export interface CompareOptions {
  /** Differences to show. */
  shown: number;
  /** Bytes of disk that both may take, and reading Parquet as many. */
  scratchBytes: number;
  leaving: AbortSignal;
}

/**
 * Compares two exports of users, each a file or a folder: NDJSON, packed or not, zip or Parquet. Memory is bounded by a
 * part; the disk of `TMPDIR` takes both once.
 * @throws {ImportError} when one cannot be read, or is too large
 */
export async function compareExports(
  theirs: string,
  ours: string,
  options: CompareOptions,
): Promise<Comparison> {
  const scratch = await openScratch(options.scratchBytes);
  try {
    const [there, here] = ['theirs', 'ours'].map((side) => path.join(scratch.path, side)) as [string, string];
    const one = await partUsers(theirs, there, { ...options, scratch });
    const other = await partUsers(ours, here, { ...options, scratch });
    const both = new Set([...one.seen].filter((field) => other.seen.has(field)));
    let compared = { ...nothingCompared(), passed_over: one.passedOver + other.passedOver };
    for (let part = 0; part < PARTS; part++) {
      options.leaving.throwIfAborted();
      const shown = options.shown - compared.first.length;
      const files: [string, string] = [`${there}-${part}`, `${here}-${part}`];
      compared = sumOf(compared, await comparePart(files, { both, shown }));
    }
    const notCompared = comparedFields.filter((field) => one.seen.has(field) !== other.seen.has(field));
    return { ...compared, not_compared: notCompared };
  } catch (error) {
    throw error instanceof SourceError ? new ImportError(error.message, { cause: error }) : error;
  } finally {
    await scratch.remove();
  }
}

/** Fields that any user has, and rows that are none. */
interface Parted {
  seen: Set<string>;
  passedOver: number;
}

async function partUsers(
  named: string,
  prefix: string,
  { scratchBytes, leaving, scratch }: CompareOptions & { scratch: Scratch },
): Promise<Parted> {
  const parted: Parted = { seen: new Set(), passedOver: 0 };
  const parts = Array.from({ length: PARTS }, () => ({ text: '', written: 0 }));

  async function write(part: number): Promise<void> {
    const one = parts[part]!;
    one.written += one.text.length;
    if (one.written > MOST_PART)
      throw new ImportError(`${named} is too large to be compared; split it into smaller files`);
    await scratch.take(Buffer.byteLength(one.text), named);
    await appendFile(`${prefix}-${part}`, one.text, { mode: 0o600 });
    one.text = '';
  }

  async function take(text: string | undefined): Promise<void> {
    const user = text === undefined ? undefined : readUser(text);
    if (user === undefined) {
      parted.passedOver++;
      return;
    }
    for (const field of Object.keys(user.fields)) parted.seen.add(baseOf(field));
    const part = createHash('sha256').update(user.key).digest()[0]! % PARTS;
    parts[part]!.text += `${JSON.stringify(user)}\n`;
    if (parts[part]!.text.length > PIECE) await write(part);
  }

  for (const file of isFolder(named) ? await filesOf(named) : [named]) {
    const input = await openInput(file, { scratchBytes });
    try {
      for await (const { bytes } of input.parts())
        for await (const rows of splitRecords(bytes(), scanLines())) {
          leaving.throwIfAborted();
          for (const { text, refused } of rows) await take(refused === undefined ? text : undefined);
        }
    } finally {
      await input.close();
    }
  }
  for (let part = 0; part < PARTS; part++) await write(part);
  return parted;
}

const baseOf = (field: string): string => field.replace(/^custom_attributes\..*/s, 'custom_attributes');

function readUser(text: string): ComparedUser | undefined {
  try {
    const values = JSON.parse(text) as Json;
    return isRecord(values) ? comparedUser(values) : undefined;
  } catch (error) {
    // No JSON, or deeper than a user can be.
    if (error instanceof SyntaxError || error instanceof RangeError) return undefined;
    throw error;
  }
}

async function* usersOf(file: string): AsyncGenerator<ComparedUser> {
  const lines = createInterface({ input: createReadStream(file), crlfDelay: Number.POSITIVE_INFINITY });
  for await (const line of lines) yield JSON.parse(line) as ComparedUser;
}

type Compared = Omit<Comparison, 'not_compared'>;

const nothingCompared = (): Compared => ({
  ...{ same: 0, differ: 0, only_theirs: 0, only_ours: 0, passed_over: 0 },
  ...{ fields: {}, first: [] },
});

const counts = ['same', 'differ', 'only_theirs', 'only_ours', 'passed_over'] as const;

function sumOf(one: Compared, other: Compared): Compared {
  const sum = { ...one, fields: { ...one.fields }, first: [...one.first, ...other.first] };
  for (const name of counts) sum[name] += other[name];
  for (const [name, count] of Object.entries(other.fields))
    sum.fields[name] = (sum.fields[name] ?? 0) + count;
  return sum;
}

interface Comparing {
  /** Fields that are compared. */
  both: ReadonlySet<string>;
  /** Differences to show. */
  shown: number;
}

async function comparePart([theirs, ours]: [string, string], { both, shown }: Comparing): Promise<Compared> {
  const compared = nothingCompared();
  const there = new Map<string, Record<string, string>>();
  for await (const { key, fields } of usersOf(theirs)) {
    if (there.has(key)) compared.passed_over++;
    else there.set(key, fields);
  }
  const met = new Set<string>();
  for await (const { key, fields } of usersOf(ours)) {
    if (met.has(key)) {
      compared.passed_over++;
      continue;
    }
    met.add(key);
    const other = there.get(key);
    if (other === undefined) {
      compared.only_ours++;
      show({ user: key, field: 'user', theirs: null, ours: 'only here' });
      continue;
    }
    there.delete(key);
    const names = new Set([...Object.keys(other), ...Object.keys(fields)]);
    const unequal = [...names].filter((name) => both.has(baseOf(name)) && other[name] !== fields[name]);
    if (unequal.length === 0) compared.same++;
    else compared.differ++;
    for (const base of new Set(unequal.map(baseOf))) compared.fields[base] = (compared.fields[base] ?? 0) + 1;
    for (const field of unequal.sort())
      show({ user: key, field, theirs: cut(other[field]), ours: cut(fields[field]) });
  }
  compared.only_theirs = there.size;
  for (const key of there.keys()) show({ user: key, field: 'user', theirs: 'only there', ours: null });
  return compared;

  function show(difference: Difference): void {
    if (compared.first.length < shown) compared.first.push(difference);
  }
}

const cut = (value: string | undefined): string | null =>
  value === undefined ? null : shortened(value, MOST_SHOWN);

/** Fields of an exported user that both services have. Their own ids, buckets and times of making are none of these. */
const comparedFields: readonly string[] = [
  ...['user_aliases', 'first_name', 'last_name', 'email', 'dob', 'home_city', 'country', 'phone', 'language'],
  ...['time_zone', 'last_coordinates', 'gender', 'custom_attributes', 'custom_events', 'purchases'],
  ...['total_revenue', 'email_subscribe', 'push_subscribe'],
];

/** A user of an export, as two of them are compared. */
interface ComparedUser {
  /** Equal in both exports: by external id, else the first alias, else email or phone. */
  key: string;
  /** Canonical JSON by field; an attribute is `custom_attributes.plan`. Absent where there is nothing. */
  fields: Record<string, string>;
}

/** @returns nothing of one whom only an id of the service itself names, or a device */
function comparedUser(values: Values): ComparedUser | undefined {
  const given = Object.fromEntries(comparedFields.map((name) => [name, structureOf(values[name])]));
  const aliases = recordsOf(given.user_aliases)
    .map(({ alias_label = null, alias_name = null }) => canonical([alias_label, alias_name]))
    .sort();
  const key = keyOf(values, aliases[0]);
  if (key === undefined) return undefined;
  const fields = new Map<string, Json>();
  for (const name of comparedFields) fields.set(name, given[name] ?? null);
  fields.set('user_aliases', aliases);
  if (typeof given.email === 'string') fields.set('email', given.email.toLowerCase());
  fields.delete('custom_attributes');
  if (isRecord(given.custom_attributes))
    for (const [name, value] of Object.entries(given.custom_attributes))
      fields.set(`custom_attributes.${name}`, value);
  for (const name of ['custom_events', 'purchases']) fields.set(name, summaries(given[name]));
  // A state that nobody has said of an address is told as this one, or not at all.
  for (const name of ['email_subscribe', 'push_subscribe'])
    if (fields.get(name) === 'subscribed') fields.delete(name);
  if (fields.get('total_revenue') === 0) fields.delete('total_revenue');
  const told = [...fields].filter(([, value]) => !isNothing(value));
  return { key, fields: Object.fromEntries(told.map(([name, value]) => [name, canonical(value)])) };
}

function keyOf({ external_id, email, phone }: Values, alias: string | undefined): string | undefined {
  if (isGiven(external_id)) return `external_id ${external_id}`;
  if (alias !== undefined) return `alias ${alias}`;
  if (isGiven(email)) return `email ${String(email).toLowerCase()}`;
  return isGiven(phone) ? `phone ${phone}` : undefined;
}

/** Lists and objects are texts of JSON in a Parquet file. */
function structureOf(value: Json | undefined): Json | undefined {
  return typeof value === 'string' && /^[[{]/.test(value) ? parsedOrText(value) : value;
}

/** By name, with how often: first and last times are told to the second here, and more finely there. */
function summaries(value: Json | undefined): Json {
  const counts = recordsOf(value).map(({ name = null, count = null }): [string, Json] => [
    String(name),
    count,
  ]);
  return Object.fromEntries(counts);
}

function isNothing(value: Json): boolean {
  if (value === null || value === '') return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** JSON with members in one order, and one spelling of each moment. It is shown: `canonicalText` is for digests, and no JSON. */
const canonical = (value: Json): string => JSON.stringify(value, (_name, one: Json) => inOneWay(one));

function inOneWay(value: Json): Json {
  if (isRecord(value))
    return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
  const time = typeof value === 'string' && isDatetime(value) ? parseTime(value) : undefined;
  return time === undefined ? value : toIso(time);
}
