import type { AttributeChange } from './attribute-rule.ts';
import { DraftArray } from './draft-array.ts';
import { DraftRecords, type Journal } from './draft-records.ts';
import { type Json, type Size, sizeOf } from './json.ts';
import { MAX_OBJECT_BYTES } from './nested.ts';
import { brokenNumber, isRecord } from './values.ts';

type Objects = Extract<AttributeChange, { objects: unknown }>['objects'];

/**
 * The result of a change. `steps`: the change would take more steps than an object may take. `number`: the sum would be
 * a number that a double cannot store exactly, and nothing was changed.
 */
type Drafted = 'done' | 'steps' | 'number';

/** An object or an array that is prepared for changes, or any other value; each with its size. */
type State =
  | { kind: 'plain'; value: Json | undefined; size: Size }
  | { kind: 'object'; value: Record<string, Json>; size: Size; records: DraftRecords }
  | { kind: 'array'; array: DraftArray };

/**
 * A draft of one custom attribute, created once and changed by all objects of a batch. The cost of a change depends on
 * the change and the elements it touches, but not on the size of the attribute.
 */
export class DraftAttribute {
  #state: State;
  #isChanged = false;

  /** @param stored the stored value, which is not modified; undefined if there is none */
  constructor(stored: Json | undefined) {
    this.#state = plain(stored);
  }

  /** Size of the value. It is 0 if there is no value. */
  get size(): Size {
    return this.#state.kind === 'array' ? this.#state.array.size : this.#state.size;
  }

  /** Whether a change was applied. The value may still equal the initial one, because the two are not compared. */
  get isChanged(): boolean {
    return this.#isChanged || (this.#state.kind === 'array' && this.#state.array.isChanged);
  }

  /** The current value. Undefined if there is none. */
  get value(): Json | undefined {
    return this.#state.kind === 'array' ? this.#state.array.value() : this.#state.value;
  }

  /**
   * Applies a change. If the stored value has another type than the change needs, it counts as missing; removals and
   * updates then change nothing. A change that would make an object or an array of objects larger than 100 KB changes
   * nothing.
   */
  apply(change: AttributeChange, journal: Journal): Drafted {
    if ('inc' in change) return this.#add(change.inc, journal);
    if ('array' in change) this.#changeElements(change.array, journal);
    else if ('merge' in change) this.#merge(change.merge, journal);
    else return this.#changeObjects(change.objects, journal);
    return 'done';
  }

  #add(inc: number, journal: Journal): Drafted {
    const { value } = this.#state.kind === 'plain' ? this.#state : { value: undefined };
    const sum = (typeof value === 'number' ? value : 0) + inc;
    // Beyond 2^53 - 1 further increments would be lost, because 2^53 + 1 equals 2^53.
    if (brokenNumber(sum) !== undefined) return 'number';
    this.#become(plain(sum), journal);
    return 'done';
  }

  #changeElements({ add, remove }: { add?: Json[]; remove?: Json[] }, journal: Journal): void {
    const array = this.#toArray(Boolean(add?.length), journal);
    if (!array) return;
    if (add) array.add(add, journal);
    if (remove) array.remove(remove, journal);
  }

  #merge(patch: Record<string, Json>, journal: Journal): void {
    const checkpoint = journal.length;
    const state = this.#toObject(journal);
    const { record, grown } = state.records.merge(state.value, patch, { onNull: 'remove', journal });
    const size = { json: state.size.json + grown.json, stored: state.size.stored + grown.stored };
    if (size.json > MAX_OBJECT_BYTES) journal.undo(checkpoint);
    else this.#become({ ...state, value: record, size }, journal);
  }

  #changeObjects({ add, remove, update, merge }: Objects, journal: Journal): Drafted {
    const checkpoint = journal.length;
    const array = this.#toArray(Boolean(add?.length), journal);
    if (!array) return 'done';
    if (add) array.addObjects(add, journal);
    if (remove) array.removeObjects(remove, journal);
    const updated = update ? array.updateObjects(update, { merge, journal }) : 'done';
    if (updated === 'steps') return 'steps';
    if (updated === 'size' || array.size.json > MAX_OBJECT_BYTES) journal.undo(checkpoint);
    return 'done';
  }

  /** Returns the array. Returns undefined if the value is not an array and `begins` is false. */
  #toArray(begins: boolean, journal: Journal): DraftArray | undefined {
    if (this.#state.kind === 'array') {
      this.#state.array.pack();
      return this.#state.array;
    }
    const { value } = this.#state;
    if (!Array.isArray(value) && !begins) return undefined;
    const array = new DraftArray(Array.isArray(value) ? value : []);
    // The stored array stays prepared for further changes, even if this change is undone.
    if (Array.isArray(value)) this.#state = { kind: 'array', array };
    else this.#become({ kind: 'array', array }, journal);
    return array;
  }

  #toObject(journal: Journal): Extract<State, { kind: 'object' }> {
    if (this.#state.kind === 'object') return this.#state;
    const value = this.#state.kind === 'plain' ? this.#state.value : undefined;
    const isObject = isRecord(value);
    const records = new DraftRecords();
    const state: State = isObject
      ? { kind: 'object', value, size: this.size, records }
      : { kind: 'object', value: {}, size: sizeOf({}), records };
    if (isObject) this.#state = state;
    else this.#become(state, journal);
    return state;
  }

  #become(state: State, journal: Journal): void {
    const before = this.#state;
    const wasChanged = this.#isChanged;
    this.#state = state;
    this.#isChanged = true;
    journal.note(() => {
      this.#state = before;
      this.#isChanged = wasChanged;
    });
  }
}

function plain(value: Json | undefined): State {
  return { kind: 'plain', value, size: value === undefined ? { json: 0, stored: 0 } : sizeOf(value) };
}
