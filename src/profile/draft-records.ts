import { type Json, memberBytes, type Size, sizeOf, storedNameBytes } from './json.ts';
import { isRecord, put } from './values.ts';

type Fields = Record<string, Json>;

/** What null in a patch does to a member: away with it, as in RFC 7396, or nothing. */
export type OnNull = 'remove' | 'keep';

/**
 * Merges patches into records, copy on write: a record of somebody else is copied when it is first changed, and from
 * then on changed in place. So a patch costs what it holds, and not what the record holds.
 */
export class DraftRecords {
  /** Members of each record that is this draft's own. */
  readonly #members = new WeakMap<Fields, number>();

  /**
   * An object merges, anything else replaces.
   *
   * @returns the merged record, and by how much it is larger than `current`; a `current` that is no record counts for
   * nothing
   */
  merge(
    current: Json | undefined,
    patch: Fields,
    { onNull, journal }: { onNull: OnNull; journal: Journal },
  ): { record: Fields; grown: Size } {
    const isOld = isRecord(current);
    const record = isOld ? this.#own(current) : this.#fresh();
    const grown: Size = isOld ? { json: 0, stored: 0 } : sizeOf({});
    for (const key in patch) {
      const value = patch[key]!;
      const old = Object.hasOwn(record, key) ? record[key]! : undefined;
      if (value === null) {
        if (onNull === 'remove' && old !== undefined) this.#remove(record, key, { grown, journal });
        continue;
      }
      if (isRecord(value)) {
        const child = this.merge(old, value, { onNull, journal });
        add(grown, child.grown, 1);
        if (!isRecord(old)) subtractIfThere(grown, old);
        this.#put(record, key, { value: child.record, grown, journal });
        continue;
      }
      add(grown, sizeOf(value), 1);
      subtractIfThere(grown, old);
      this.#put(record, key, { value, grown, journal });
    }
    return { record, grown };
  }

  #own(record: Fields): Fields {
    if (this.#members.has(record)) return record;
    const copy = { ...record };
    this.#members.set(copy, Object.keys(copy).length);
    return copy;
  }

  #fresh(): Fields {
    const record = {};
    this.#members.set(record, 0);
    return record;
  }

  /** @param changing.grown gets what a new name takes; what the value takes is in it */
  #put(
    record: Fields,
    key: string,
    { value, grown, journal }: { value: Json; grown: Size; journal: Journal },
  ): void {
    if (Object.hasOwn(record, key)) {
      const old = record[key]!;
      if (old !== value) journal.note(() => put<Json>(record, key, old));
      put<Json>(record, key, value);
      return;
    }
    const members = this.#members.get(record)!;
    add(grown, nameSize(key, members), 1);
    this.#members.set(record, members + 1);
    put<Json>(record, key, value);
    journal.note(() => {
      delete record[key];
      this.#members.set(record, members);
    });
  }

  #remove(record: Fields, key: string, { grown, journal }: { grown: Size; journal: Journal }): void {
    const old = record[key]!;
    const members = this.#members.get(record)!;
    add(grown, nameSize(key, members - 1), -1);
    subtractIfThere(grown, old);
    this.#members.set(record, members - 1);
    delete record[key];
    journal.note(() => {
      put<Json>(record, key, old);
      this.#members.set(record, members);
    });
  }
}

function add(sum: Size, { json, stored }: Size, times: 1 | -1): void {
  sum.json += times * json;
  sum.stored += times * stored;
}

function subtractIfThere(sum: Size, value: Json | undefined): void {
  if (value !== undefined) add(sum, sizeOf(value), -1);
}

/** Of a name beside so many others: with its colon and a comma. */
function nameSize(key: string, others: number): Size {
  return { json: memberBytes(key, 0) - 1 + (others > 0 ? 1 : 0), stored: storedNameBytes(key) };
}

/** Steps of work that the changes of one object may take in arrays of objects: a few milliseconds. */
const MAX_STEPS = 5000;

/** What one object has done to drafts, so that all of it can be taken back; and what it has cost. */
export class Journal {
  readonly #undo: (() => void)[] = [];
  #steps = 0;

  /** Notes how something that was just done is taken back. */
  note(undo: () => void): void {
    this.#undo.push(undo);
  }

  /** @returns false when the object has used up its steps */
  spend(steps: number): boolean {
    this.#steps += steps;
    return this.#steps <= MAX_STEPS;
  }

  /** A place to go back to. */
  get length(): number {
    return this.#undo.length;
  }

  /** Takes everything back that came after this place, the last first. */
  undo(place = 0): void {
    while (this.#undo.length > place) this.#undo.pop()!();
  }
}
