import type { AttributeChange } from './attribute-rule.ts';
import { DraftRecords, type Journal } from './draft-records.ts';
import { type Json, type Size, Sizes, sizeOf } from './json.ts';
import { MAX_OBJECT_BYTES } from './nested.ts';
import { isRecord, isScalar, MAX_ELEMENTS } from './values.ts';

type Objects = Extract<AttributeChange, { objects: unknown }>['objects'];
type Update = NonNullable<Objects['update']>[number];

/** Slots by scalar value. */
type Slots = Map<Json, Set<number>>;

type Updated = 'done' | 'steps' | 'size';

/** Size at which updates stop. A larger array would be refused in the end. */
const MAX_UPDATED_BYTES = 2 * MAX_OBJECT_BYTES;

const EMPTY = sizeOf([]);
const NO_SIZE: Size = { json: 0, stored: 0 };

/** A new object costs one step for each of this many bytes. */
const BYTES_PER_STEP = 16;

/** An array is packed if it has more empty slots than this and more than elements. Undone additions count as empty slots. */
const MIN_EMPTY = 64;

/**
 * An array to which changes are applied. Elements have slots, which do not move while an object is applied. Indexes on
 * scalars and on members of objects find the elements, so the cost of a change depends only on the elements that it
 * touches.
 */
export class DraftArray {
  #slots: (Json | undefined)[];
  #sizes = new Sizes();
  /** All slots before this one are empty. */
  #first = 0;
  #count: number;
  /** Total size of the elements. */
  readonly #content: Size;
  /** Number of additions that were undone since the indexes were built. The indexes still contain them. */
  #undone = 0;
  #isChanged = false;
  /** Whether each scalar occurs only once, as in every array after an addition. */
  #isDistinct = false;
  #scalars: Slots | undefined;
  /** Slots of the elements that are objects, by key and value of their members. */
  #members: Map<string, Slots> | undefined;
  readonly #records = new DraftRecords();

  constructor(elements: Json[]) {
    this.#slots = elements.slice();
    this.#count = elements.length;
    this.#content = { json: 0, stored: 0 };
    for (const element of elements) this.#sizes.push(element, this.#content);
  }

  get size(): Size {
    const { json, stored } = this.#content;
    return { json: EMPTY.json + json + Math.max(0, this.#count - 1), stored: EMPTY.stored + stored };
  }

  /** Whether an element was added, changed or removed and the change was not undone. */
  get isChanged(): boolean {
    return this.#isChanged;
  }

  value(): Json[] {
    return this.#slots.filter((element) => element !== undefined);
  }

  /** Removes empty slots. Call it before an object is applied, because a journal refers to slots by number. */
  pack(): void {
    const empty = this.#slots.length - this.#count + this.#undone;
    if (empty <= MIN_EMPTY || empty <= this.#count) return;
    this.#undone = 0;
    this.#sizes = this.#sizes.where((slot) => this.#slots[slot] !== undefined);
    this.#slots = this.value();
    this.#first = 0;
    this.#scalars = undefined;
    this.#members = undefined;
  }

  /**
   * Adds elements of an array attribute. Each value occurs once, at the position of its last occurrence. The latest 500
   * are kept.
   */
  add(added: Json[], journal: Journal): void {
    // Build the index before an element leaves its slot, because an undo does not add the element to the index.
    this.#scalarIndex();
    if (!this.#isDistinct) this.#makeDistinct(journal);
    for (const value of added) {
      this.#removeScalar(value, journal);
      this.#append(value, journal);
    }
    for (let slot = this.#first; this.#count > MAX_ELEMENTS; slot++) this.#empty(slot, journal);
  }

  remove(removed: Json[], journal: Journal): void {
    for (const value of removed) this.#removeScalar(value, journal);
  }

  /** Adds objects with a single entry in the journal, because one change may add tens of thousands of elements. */
  addObjects(added: Json[], journal: Journal): void {
    const [slots, first, wasChanged] = [this.#slots.length, this.#first, this.#isChanged];
    const content = { ...this.#content };
    for (const element of added) this.#push(element);
    this.#isChanged ||= added.length > 0;
    journal.note(() => {
      this.#slots.length = slots;
      this.#sizes.cut(slots);
      this.#undone += added.length;
      this.#count -= added.length;
      this.#first = first;
      this.#isChanged = wasChanged;
      Object.assign(this.#content, content);
    });
  }

  /** Removes all matches. */
  removeObjects(matches: { key: string; value: Json }[], journal: Journal): void {
    for (const match of matches)
      for (const slot of this.#matching(match, journal)) this.#empty(slot, journal);
  }

  /**
   * Updates all matches. Stops with `steps` if the journal's steps are used up, and with `size` if the array is far
   * larger than its limit.
   */
  updateObjects(updates: Update[], { merge, journal }: { merge: boolean; journal: Journal }): Updated {
    for (const update of updates) {
      const size = sizeOf(update.new_object);
      for (const slot of this.#matching(update, journal)) {
        if (!journal.spend(1 + Math.floor(size.json / BYTES_PER_STEP))) return 'steps';
        if (this.size.json > MAX_UPDATED_BYTES) return 'size';
        if (merge) this.#mergeInto(slot, update.new_object, journal);
        else {
          this.#set(slot, { element: update.new_object, size, journal });
          this.#link(slot, update.new_object, Object.keys(update.new_object));
        }
      }
    }
    return 'done';
  }

  #mergeInto(slot: number, patch: Record<string, Json>, journal: Journal): void {
    const old = this.#slots[slot] as Record<string, Json>;
    const { record, grown } = this.#records.merge(old, patch, { onNull: 'keep', journal });
    const { json, stored } = this.#sizes.of(slot);
    const size = { json: json + grown.json, stored: stored + grown.stored };
    this.#set(slot, { element: record, size, journal });
    this.#link(slot, record, Object.keys(patch));
  }

  #append(element: Json, journal: Journal): void {
    this.addObjects([element], journal);
  }

  #push(element: Json): void {
    const slot = this.#slots.length;
    this.#slots.push(element);
    this.#sizes.push(element, this.#content);
    this.#count++;
    if (isRecord(element)) this.#link(slot, element);
    else if (this.#scalars && !isNested(element)) addSlot(this.#scalars, element, slot);
  }

  #empty(slot: number, journal: Journal): void {
    if (this.#slots[slot] !== undefined) this.#set(slot, { element: undefined, size: NO_SIZE, journal });
  }

  #set(
    slot: number,
    { element, size, journal }: { element: Json | undefined; size: Size; journal: Journal },
  ): void {
    const [old, oldSize, first] = [this.#slots[slot], this.#sizes.of(slot), this.#first];
    const wasChanged = this.#isChanged;
    this.#isChanged = true;
    this.#slots[slot] = element;
    this.#sizes.put(slot, size);
    this.#grow(size, oldSize);
    this.#count += Number(element !== undefined) - Number(old !== undefined);
    while (this.#first < this.#slots.length && this.#slots[this.#first] === undefined) this.#first++;
    journal.note(() => {
      this.#slots[slot] = old;
      this.#sizes.put(slot, oldSize);
      this.#grow(oldSize, size);
      this.#count += Number(old !== undefined) - Number(element !== undefined);
      this.#first = first;
      this.#isChanged = wasChanged;
    });
  }

  #grow(size: Size, before: Size): void {
    this.#content.json += size.json - before.json;
    this.#content.stored += size.stored - before.stored;
  }

  #makeDistinct(journal: Journal): void {
    const seen = new Set<Json>();
    for (let slot = this.#slots.length - 1; slot >= this.#first; slot--) {
      const element = this.#slots[slot];
      if (element === undefined || isNested(element)) continue;
      if (seen.has(element)) this.#empty(slot, journal);
      seen.add(element);
    }
    this.#isDistinct = true;
    journal.note(() => {
      this.#isDistinct = false;
    });
  }

  #removeScalar(value: Json, journal: Journal): void {
    for (const slot of currentSlots(this.#scalarIndex(), value, { journal, elements: this.#slots }))
      this.#empty(slot, journal);
  }

  #matching({ key, value }: { key: string; value: Json }, journal: Journal): number[] {
    const slots = this.#memberIndex().get(key);
    if (!slots) return [];
    return currentSlots(slots, value, { journal, elements: this.#slots, key });
  }

  #scalarIndex(): Slots {
    if (this.#scalars) return this.#scalars;
    this.#scalars = new Map();
    for (let slot = this.#first; slot < this.#slots.length; slot++) {
      const element = this.#slots[slot];
      if (element !== undefined && !isNested(element)) addSlot(this.#scalars, element, slot);
    }
    return this.#scalars;
  }

  #memberIndex(): Map<string, Slots> {
    if (this.#members) return this.#members;
    this.#members = new Map();
    for (let slot = this.#first; slot < this.#slots.length; slot++) {
      const element = this.#slots[slot];
      if (isRecord(element)) this.#link(slot, element);
    }
    return this.#members;
  }

  #link(slot: number, element: Record<string, Json>, keys?: string[]): void {
    if (!this.#members) return;
    for (const key of keys ?? Object.keys(element)) {
      const value = memberOf(element, key);
      if (isScalar(value)) addSlot(slotsOf(this.#members, key), value, slot);
    }
  }
}

interface SlotSearch {
  journal: Journal;
  elements: readonly (Json | undefined)[];
  /** The member that has the value. If absent, the element itself has it. */
  key?: string;
}

/**
 * Returns the slots in which a value currently is. The index also contains slots that elements have left or whose
 * additions were undone, because nothing removes them earlier. This function removes them.
 */
function currentSlots(index: Slots, value: Json, { journal, elements, key }: SlotSearch): number[] {
  const indexed = index.get(value);
  if (!indexed) return [];
  const slots: number[] = [];
  for (const slot of indexed) {
    const element = elements[slot];
    if ((key === undefined ? element : memberOf(element, key)) === value) slots.push(slot);
  }
  if (slots.length < indexed.size) {
    index.set(value, new Set(slots));
    journal.note(() => index.set(value, indexed));
  }
  return slots;
}

/** Returns an own member. Keys such as `constructor` also exist on the prototype of every object. */
function memberOf(element: Json | undefined, key: string): Json | undefined {
  return isRecord(element) && Object.hasOwn(element, key) ? element[key] : undefined;
}

function slotsOf(members: Map<string, Slots>, key: string): Slots {
  let slots = members.get(key);
  if (!slots) {
    slots = new Map();
    members.set(key, slots);
  }
  return slots;
}

function addSlot(slots: Slots, value: Json, slot: number): void {
  const set = slots.get(value);
  if (set) set.add(slot);
  else slots.set(value, new Set([slot]));
}

function isNested(value: Json): boolean {
  return typeof value === 'object' && value !== null;
}
