import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { appendFile } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { Scratch } from '../integrations/files/scratch.ts';
import { SourceError } from '../integrations/source.ts';
import type { Json } from '../profile/json.ts';
import { isRecord } from '../profile/values.ts';
import { type ComparedUser, comparedFields, comparedUser } from './compared-user.ts';
import { filesOf, isFolder } from './folder.ts';
import { openInput } from './input.ts';
import { openScratch } from './open-inputs.ts';
import { scanLines, splitRecords } from './records.ts';
import { ImportError } from './texts.ts';

/** Users of both exports are parted by their names, so that one part of each is in memory at a time. */
const PARTS = 256;

/** Characters of a part, as users are compared: an export may have about 16 GB of these. */
const MOST_PART = 67_108_864;

/** Characters that are gathered before they go to the disk. */
const PIECE = 65_536;

/** Of a value that is shown. */
const MOST_SHOWN = 100;

export type Difference = {
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
    const comparison: Comparison = {
      ...{ same: 0, differ: 0, only_theirs: 0, only_ours: 0 },
      passed_over: one.passedOver + other.passedOver,
      fields: {},
      not_compared: comparedFields.filter((field) => one.seen.has(field) !== other.seen.has(field)),
      first: [],
    };
    for (let part = 0; part < PARTS; part++) {
      options.leaving.throwIfAborted();
      await comparePart([`${there}-${part}`, `${here}-${part}`], { both, comparison, shown: options.shown });
    }
    return comparison;
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
    if (one.written > MOST_PART) throw new ImportError(`${named} is too large to be compared at once`);
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

interface Comparing {
  /** Fields that are compared. */
  both: ReadonlySet<string>;
  comparison: Comparison;
  shown: number;
}

async function comparePart(
  [theirs, ours]: [string, string],
  { both, comparison, shown }: Comparing,
): Promise<void> {
  const there = new Map<string, Record<string, string>>();
  for await (const { key, fields } of usersOf(theirs)) {
    if (there.has(key)) comparison.passed_over++;
    else there.set(key, fields);
  }
  const met = new Set<string>();
  for await (const { key, fields } of usersOf(ours)) {
    if (met.has(key)) {
      comparison.passed_over++;
      continue;
    }
    met.add(key);
    const other = there.get(key);
    if (other === undefined) {
      comparison.only_ours++;
      show({ user: key, field: 'user', theirs: null, ours: 'only here' });
      continue;
    }
    there.delete(key);
    const names = new Set([...Object.keys(other), ...Object.keys(fields)]);
    const unequal = [...names].filter((name) => both.has(baseOf(name)) && other[name] !== fields[name]);
    if (unequal.length === 0) comparison.same++;
    else comparison.differ++;
    for (const base of new Set(unequal.map(baseOf)))
      comparison.fields[base] = (comparison.fields[base] ?? 0) + 1;
    for (const field of unequal.sort())
      show({ user: key, field, theirs: cut(other[field]), ours: cut(fields[field]) });
  }
  comparison.only_theirs += there.size;
  for (const key of there.keys()) show({ user: key, field: 'user', theirs: 'only there', ours: null });

  function show(difference: Difference): void {
    if (comparison.first.length < shown) comparison.first.push(difference);
  }
}

function cut(value: string | undefined): string | null {
  if (value === undefined) return null;
  return value.length > MOST_SHOWN ? `${value.slice(0, MOST_SHOWN)}…` : value;
}
