import { type Json, memberBytes, type Size, sizeOf, storedNameBytes } from './json.ts';
import { isRecord, put } from './values.ts';

type Fields = Record<string, Json>;

/** The effect of null in a patch on a member: removed, as in RFC 7396, or kept. */
type OnNull = 'remove' | 'keep';

/**
 * Merges patches into records, copy on write. A foreign record is copied at its first change and modified in place
 * afterwards. So the cost of a patch depends on its own size and not on the size of the record.
 */
export class DraftRecords {
  /** The number of members of each record that this draft has copied or created. */
  readonly #members = new WeakMap<Fields, number>();

  /**
   * Merges a patch. Nested objects are merged, and all other values are replaced.
   *
   * @returns the merged record, and its size minus the size of `current`. A `current` that is not a record has size 0
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

  /**
   * Writes a member.
   * @param changing.grown increased by the size of a new name. The caller has added the size of the value
   */
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

/** Returns the size of a name with its colon, and with a comma if there are `others`. */
function nameSize(key: string, others: number): Size {
  return { json: memberBytes(key, 0) - 1 + (others > 0 ? 1 : 0), stored: storedNameBytes(key) };
}

/** Maximum steps of the changes of one object in arrays of objects, which take a few milliseconds. */
const MAX_STEPS = 5000;

/** The changes of one object to drafts, so that all of them can be undone, and their cost in steps. */
export class Journal {
  readonly #undo: (() => void)[] = [];
  #steps = 0;

  /** Adds the function that undoes the change just made. */
  note(undo: () => void): void {
    this.#undo.push(undo);
  }

  /** Charges steps. Returns false if the object has exceeded MAX_STEPS. */
  spend(steps: number): boolean {
    this.#steps += steps;
    return this.#steps <= MAX_STEPS;
  }

  /** Number of changes, as a checkpoint for `undo`. */
  get length(): number {
    return this.#undo.length;
  }

  /** Undoes all changes after the checkpoint, latest first. */
  undo(checkpoint = 0): void {
    while (this.#undo.length > checkpoint) this.#undo.pop()!();
  }
}
