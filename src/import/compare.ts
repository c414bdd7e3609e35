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
import { filterTexts } from '../profile/standard-columns.ts';
import { isDatetime, parseTime, toIso } from '../profile/time.ts';
import { isRecord, recordsOf } from '../profile/values.ts';
import { openInput } from './open-input.ts';
import { filesOf, isFolder, openScratch } from './open-inputs.ts';
import { type ReadRow, readPart, type Values } from './reader.ts';
import { ImportError } from './unpack.ts';

/**
 * Users of both exports are partitioned by their keys, so that only one part of each export is in memory at a
 * time.
 */
const PARTS = 256;

/**
 * Maximum characters of a part in the form in which users are compared. An export may have about 16 GB of
 * them.
 */
const MAX_PART_CHARACTERS = 67_108_864;

/** Characters that are buffered before they are written to the disk. */
const BUFFER_CHARACTERS = 65_536;

/** Maximum characters of a value that is shown. */
const MAX_SHOWN_CHARACTERS = 100;

type Difference = {
  user: string;
  field: string;
  /** Canonical JSON, truncated; null if the user has no such field. */
  theirs: string | null;
  ours: string | null;
};

interface Comparison {
  same: number;
  differ: number;
  only_theirs: number;
  only_ours: number;
  /** Rows without an identifier, rows that are not users, and repeated users. */
  passed_over: number;
  /** Number of differing users by field. All attributes count as one field. */
  fields: Record<string, number>;
  /** Fields that occur in only one of the two exports. They are not compared. */
  not_compared: string[];
  first: Difference[];
}

export interface CompareOptions {
  /** Maximum number of differences to show. */
  shown: number;
  /** Maximum bytes of disk for both exports. Reading Parquet may take the same amount again. */
  scratchBytes: number;
  leaving: AbortSignal;
}

/**
 * Compares two exports of users, each a file or a folder in NDJSON (plain or compressed), zip or Parquet.
 * Memory is limited to one part of each export. The disk of `TMPDIR` holds one copy of both.
 * @throws {ImportError} if an export cannot be read or is too large
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
    let compared = { ...emptyComparison(), passed_over: one.ignoredRows + other.ignoredRows };
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

/** The fields that occur in any user of an export, and its number of ignored rows. */
interface Parted {
  seen: Set<string>;
  ignoredRows: number;
}

async function partUsers(
  named: string,
  prefix: string,
  { scratchBytes, leaving, scratch }: CompareOptions & { scratch: Scratch },
): Promise<Parted> {
  const parted: Parted = { seen: new Set(), ignoredRows: 0 };
  const parts = Array.from({ length: PARTS }, () => ({ text: '', written: 0 }));

  async function write(part: number): Promise<void> {
    const one = parts[part]!;
    one.written += one.text.length;
    if (one.written > MAX_PART_CHARACTERS)
      throw new ImportError(`${named} is too large to be compared; split it into smaller files`);
    await scratch.take(Buffer.byteLength(one.text), named);
    await appendFile(`${prefix}-${part}`, one.text, { mode: 0o600 });
    one.text = '';
  }

  async function take(row: ReadRow): Promise<void> {
    const user = 'refused' in row ? undefined : userOf(row.values);
    if (user === undefined) {
      parted.ignoredRows++;
      return;
    }
    for (const field of Object.keys(user.fields)) parted.seen.add(baseOf(field));
    const part = createHash('sha256').update(user.key).digest()[0]! % PARTS;
    parts[part]!.text += `${JSON.stringify(user)}\n`;
    if (parts[part]!.text.length > BUFFER_CHARACTERS) await write(part);
  }

  for (const file of isFolder(named) ? await filesOf(named) : [named]) {
    const input = await openInput(file, { scratchBytes });
    try {
      for await (const part of input.parts()) {
        const { rows, read } = await readPart(part, { layout: 'ndjson' });
        for await (const batch of rows) {
          leaving.throwIfAborted();
          for (const row of batch) await take(read(row));
        }
      }
    } finally {
      await input.close();
    }
  }
  for (let part = 0; part < PARTS; part++) await write(part);
  return parted;
}

const baseOf = (field: string): string => field.replace(/^custom_attributes\..*/s, 'custom_attributes');

function userOf(values: Values): ComparedUser | undefined {
  try {
    return comparedUser(values);
  } catch (error) {
    // The row is nested deeper than a user can be.
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

async function* usersOf(file: string): AsyncGenerator<ComparedUser> {
  const lines = createInterface({ input: createReadStream(file), crlfDelay: Number.POSITIVE_INFINITY });
  for await (const line of lines) yield JSON.parse(line) as ComparedUser;
}

type Compared = Omit<Comparison, 'not_compared'>;

const emptyComparison = (): Compared => ({
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
  /** Fields that occur in both exports. */
  both: ReadonlySet<string>;
  /** Maximum number of differences to show. */
  shown: number;
}

async function comparePart([theirs, ours]: [string, string], { both, shown }: Comparing): Promise<Compared> {
  const compared = emptyComparison();
  const there = new Map<string, Record<string, string>>();
  for await (const { key, fields } of usersOf(theirs)) {
    if (there.has(key)) compared.passed_over++;
    else there.set(key, fields);
  }
  const seenKeys = new Set<string>();
  for await (const { key, fields } of usersOf(ours)) {
    if (seenKeys.has(key)) {
      compared.passed_over++;
      continue;
    }
    seenKeys.add(key);
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
  value === undefined ? null : shortened(value, MAX_SHOWN_CHARACTERS);

/**
 * Fields of an exported user that both services have. Internal ids, buckets and creation times are excluded.
 */
const comparedFields: readonly string[] = [
  ...['user_aliases', ...filterTexts, 'last_coordinates', 'custom_attributes', 'custom_events', 'purchases'],
  ...['total_revenue', 'email_subscribe', 'push_subscribe'],
];

/** A user of an export in the form in which users are compared. */
interface ComparedUser {
  /**
   * Key that is equal in both exports: the external id, otherwise the first alias, the email address or the
   * phone number.
   */
  key: string;
  /**
   * Canonical JSON by field. An attribute has the name `custom_attributes.plan`, for example. Empty fields
   * are omitted.
   */
  fields: Record<string, string>;
}

/** @returns undefined for a user that is identified only by an internal id or a device */
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
  // One service exports the default state of an address, the other one omits it.
  for (const name of ['email_subscribe', 'push_subscribe'])
    if (fields.get(name) === 'subscribed') fields.delete(name);
  if (fields.get('total_revenue') === 0) fields.delete('total_revenue');
  const present = [...fields].filter(([, value]) => !isEmpty(value));
  return { key, fields: Object.fromEntries(present.map(([name, value]) => [name, canonical(value)])) };
}

function keyOf({ external_id, email, phone }: Values, alias: string | undefined): string | undefined {
  if (isGiven(external_id)) return `external_id ${external_id}`;
  if (alias !== undefined) return `alias ${alias}`;
  if (isGiven(email)) return `email ${String(email).toLowerCase()}`;
  return isGiven(phone) ? `phone ${phone}` : undefined;
}

/** Parses lists and objects, which a Parquet file has as JSON texts. */
function structureOf(value: Json | undefined): Json | undefined {
  return typeof value === 'string' && /^[[{]/.test(value) ? parsedOrText(value) : value;
}

/**
 * Returns the number of occurrences by name. First and last times are omitted, because the vendor exports
 * whole seconds and Penstock exports finer times.
 */
function summaries(value: Json | undefined): Json {
  const counts = recordsOf(value).map(({ name = null, count = null }): [string, Json] => [
    String(name),
    count,
  ]);
  return Object.fromEntries(counts);
}

function isEmpty(value: Json): boolean {
  if (value === null || value === '') return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/**
 * Returns JSON with sorted members and one notation for times. The result is shown to users; `canonicalText`,
 * which is for digests, is not JSON.
 */
const canonical = (value: Json): string => JSON.stringify(value, (_name, one: Json) => normalized(one));

function normalized(value: Json): Json {
  if (isRecord(value))
    return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
  const time = typeof value === 'string' && isDatetime(value) ? parseTime(value) : undefined;
  return time === undefined ? value : toIso(time);
}
