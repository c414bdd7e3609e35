import type { AttributeChange } from './attribute-rule.ts';
import { DraftRecords, type Journal } from './draft-records.ts';
import { type Json, type Size, Sizes, sizeOf } from './json.ts';
import { MAX_OBJECT_BYTES } from './nested.ts';
import { isRecord, isScalar, MAX_ELEMENTS } from './values.ts';

type Objects = Extract<AttributeChange, { objects: unknown }>['objects'];
type Update = NonNullable<Objects['update']>[number];

/** Slots by a scalar value. */
type Slots = Map<Json, Set<number>>;

type Updated = 'done' | 'steps' | 'size';

/** An array that an update has made larger is not made larger still: it would be refused in the end. */
const MOST_BYTES = 2 * MAX_OBJECT_BYTES;

const EMPTY = sizeOf([]);
const NOTHING: Size = { json: 0, stored: 0 };

/** Bytes of a new object that cost as much as one step. */
const BYTES_PER_STEP = 16;

/** An array with more empty slots than this, taken back ones included, and more than elements, is packed. */
const FEW_EMPTY = 64;

/**
 * An array on which changes are played. Its elements lie in slots, which never move while an object is applied, and
 * are found by indexes on scalars and on the members of objects. So a change costs what it touches.
 */
export class DraftArray {
  #slots: (Json | undefined)[];
  #sizes = new Sizes();
  /** The slot before which all are empty. */
  #first = 0;
  #count: number;
  /** Of all elements. */
  readonly #content: Size;
  /** Elements that were added and taken back since the indexes were made: these know them still. */
  #takenBack = 0;
  #isChanged = false;
  /** Each scalar stands once, as in every array that was added to. */
  #isDistinct = false;
  #scalars: Slots | undefined;
  /** By key, of the elements that are objects. */
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

  /** Whether anything was put into a slot, or taken out of one, and not taken back. */
  get isChanged(): boolean {
    return this.#isChanged;
  }

  value(): Json[] {
    return this.#slots.filter((element) => element !== undefined);
  }

  /** Makes room before an object is applied; afterwards a journal may know slots by their numbers. */
  pack(): void {
    const empty = this.#slots.length - this.#count + this.#takenBack;
    if (empty <= FEW_EMPTY || empty <= this.#count) return;
    this.#takenBack = 0;
    this.#sizes = this.#sizes.where((slot) => this.#slots[slot] !== undefined);
    this.#slots = this.value();
    this.#first = 0;
    this.#scalars = undefined;
    this.#members = undefined;
  }

  /** Elements of an array attribute: each once, in the place of its last occurrence, and the newest 500. */
  add(added: Json[], journal: Journal): void {
    // Made before anything leaves its slot: what is taken back has to be in it.
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

  /** Taken back as one: what an object may add has tens of thousands of elements. */
  addObjects(added: Json[], journal: Journal): void {
    const [slots, first, wasChanged] = [this.#slots.length, this.#first, this.#isChanged];
    const content = { ...this.#content };
    for (const element of added) this.#push(element);
    this.#isChanged ||= added.length > 0;
    journal.note(() => {
      this.#slots.length = slots;
      this.#sizes.cut(slots);
      this.#takenBack += added.length;
      this.#count -= added.length;
      this.#first = first;
      this.#isChanged = wasChanged;
      Object.assign(this.#content, content);
    });
  }

  /** Takes every match away. */
  removeObjects(matches: { key: string; value: Json }[], journal: Journal): void {
    for (const match of matches)
      for (const slot of this.#matching(match, journal)) this.#empty(slot, journal);
  }

  /**
   * Stops where it has gone too far: `steps` of the journal are used up, or `size`, the array has far more bytes than
   * it may keep.
   */
  updateObjects(updates: Update[], { merge, journal }: { merge: boolean; journal: Journal }): Updated {
    for (const update of updates) {
      const size = sizeOf(update.new_object);
      for (const slot of this.#matching(update, journal)) {
        if (!journal.spend(1 + Math.floor(size.json / BYTES_PER_STEP))) return 'steps';
        if (this.size.json > MOST_BYTES) return 'size';
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
    else if (this.#scalars && !isNested(element)) into(this.#scalars, element, slot);
  }

  #empty(slot: number, journal: Journal): void {
    if (this.#slots[slot] !== undefined) this.#set(slot, { element: undefined, size: NOTHING, journal });
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
    for (const slot of live(this.#scalarIndex(), value, { journal, elements: this.#slots }))
      this.#empty(slot, journal);
  }

  #matching({ key, value }: { key: string; value: Json }, journal: Journal): number[] {
    const slots = this.#memberIndex().get(key);
    if (!slots) return [];
    return live(slots, value, { journal, elements: this.#slots, key });
  }

  #scalarIndex(): Slots {
    if (this.#scalars) return this.#scalars;
    this.#scalars = new Map();
    for (let slot = this.#first; slot < this.#slots.length; slot++) {
      const element = this.#slots[slot];
      if (element !== undefined && !isNested(element)) into(this.#scalars, element, slot);
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
      if (isScalar(value)) into(slotsOf(this.#members, key), value, slot);
    }
  }
}

interface Looked {
  journal: Journal;
  elements: readonly (Json | undefined)[];
  /** The member that has the value; absent: the element itself. */
  key?: string;
}

/**
 * The slots in which a value is still. An index knows too many: it is not told what leaves a slot, or is taken back, and
 * forgets that here.
 */
function live(index: Slots, value: Json, { journal, elements, key }: Looked): number[] {
  const known = index.get(value);
  if (!known) return [];
  const slots: number[] = [];
  for (const slot of known) {
    const element = elements[slot];
    if ((key === undefined ? element : memberOf(element, key)) === value) slots.push(slot);
  }
  if (slots.length < known.size) {
    index.set(value, new Set(slots));
    journal.note(() => index.set(value, known));
  }
  return slots;
}

/** Keys like `constructor` are found on every object's prototype. */
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

function into(slots: Slots, value: Json, slot: number): void {
  const set = slots.get(value);
  if (set) set.add(slot);
  else slots.set(value, new Set([slot]));
}

function isNested(value: Json): boolean {
  return typeof value === 'object' && value !== null;
}
