import type { AcceptedAttributes } from '../../../src/jobs/envelope.ts';
import type { AttributeChange } from '../../../src/profile/attribute-rule.ts';
import { attributeBytes, customBytes, MAX_CUSTOM_BYTES } from '../../../src/profile/custom-values.ts';
import { DraftAttribute } from '../../../src/profile/draft-attribute.ts';
import { Journal } from '../../../src/profile/draft-records.ts';
import { type Json, JsonText, storedNameBytes } from '../../../src/profile/json.ts';
import { hasAny, put, quoted } from '../../../src/profile/values.ts';
import { RELOAD } from '../work-item.ts';

/**
 * Returns the reason for an object that exceeds the limit. The size is at the end: dead letters are grouped by the first
 * 120 characters of their reasons.
 */
const tooLarge = (bytes: number): string =>
  `custom attributes of this user would exceed ${MAX_CUSTOM_BYTES / 1024} KiB: send fewer or shorter attributes. How the size is counted: /docs/guides/api#size-of-custom-attributes (now ${(bytes / 1024).toFixed(1)} KiB)`;

const TOO_MUCH = "the '$update' operations of the object match too much: name fewer objects at once";

/** Returns the error message of an increment whose result is not exact; a number that is sent has the same rule. */
function inexact(name: string): string {
  return `'${quoted(name)}' is not valid: 'inc' would make a number that cannot be stored exactly: integers beyond 9007199254740991 lose digits; set a smaller number, or send it as a string`;
}

/** Known stored attributes of a locked profile. */
export interface StoredAttributes {
  /** Names whose values are known; an attribute of these that is not in `values` is not stored. */
  names: ReadonlySet<string>;
  values: Record<string, Json>;
  /** Total bytes of all attributes if they are large, otherwise 0. */
  bytes: number;
  /** Bytes of the attributes that the round names, by name; absent if they are small. */
  sizes?: ReadonlyMap<string, number>;
}

/** Changes of a round to the attributes of a profile. */
interface WrittenAttributes {
  /** Attributes to overwrite. */
  set: Record<string, Json>;
  /** Names of attributes to remove. */
  unset: readonly string[];
}

/** Changes of the objects folded so far. `set`, `unset` and `drafts` have no name in common. */
class Played {
  readonly set = new Map<string, Json>();
  readonly unset = new Set<string>();
  readonly drafts = new Map<string, DraftAttribute>();
  /** Names of drafts that started from a value of this round. */
  readonly overwritten = new Set<string>();
}

const NOTHING_PLAYED = new Played();
const NEW: StoredAttributes = { names: new Set(), values: {}, bytes: 0 };
const NONE: ReadonlyMap<string, number> = new Map();

/** Custom attributes of a profile during one round. */
export class CustomAttributes {
  /** Stored attributes; undefined if the profile is not locked. */
  #stored: StoredAttributes | undefined;
  /** Attributes set by the only object so far, the usual case. The record belongs to the object and is not changed. */
  #only: Record<string, Json> | undefined;
  /** Changes of all objects, once there is more than one object or more than simple sets. */
  #played: Played | undefined;
  /** Upper bound of the bytes that the round has added; the exact number once `#sizes` is set. */
  #added = 0;
  /** Bytes of each attribute that the round has changed; set once the total comes near the limit. */
  #sizes: Map<string, number> | undefined;
  /** Cached result of `written`; cleared by the next object. */
  #written: WrittenAttributes | undefined;
  #text: JsonText | undefined;

  /** @param isNew whether the round creates the profile, so that it has no stored attributes */
  constructor(isNew: boolean) {
    if (isNew) this.#stored = NEW;
  }

  hold(stored: StoredAttributes): void {
    this.#stored = stored;
  }

  get storedBytes(): number {
    return this.#stored?.bytes ?? 0;
  }

  get isHeld(): boolean {
    return this.#stored !== undefined;
  }

  /** Returns whether the stored values that the changes need are known. */
  knows(changes: Record<string, AttributeChange>, isNew: boolean): boolean {
    return isNew || Object.keys(changes).every((name) => this.#stored!.names.has(name));
  }

  /** Approximate upper bound of the total bytes; small stored attributes count as 0. */
  get bytes(): number {
    return (this.#stored?.bytes ?? 0) + this.#added;
  }

  /**
   * Folds an object.
   *
   * @returns the reason why it cannot be applied, or RELOAD; in both cases it has changed no attribute
   */
  apply({
    set = {},
    change,
  }: Pick<AcceptedAttributes, 'set' | 'change'>): string | undefined | typeof RELOAD {
    this.#written = this.#text = undefined;
    if (!change && !this.#only && !this.#played && !removesAny(set)) {
      const refused = this.#measure(set, NONE);
      if (refused === undefined) this.#only = set;
      return refused;
    }
    this.#begin();
    return this.#play(set, change ?? {});
  }

  #play(
    set: Record<string, Json>,
    change: Record<string, AttributeChange>,
  ): string | undefined | typeof RELOAD {
    const journal = new Journal();
    const before = new Map<string, number>();
    for (const name in change) {
      const draft = this.#draft(name);
      before.set(name, sizeOf(name, draft));
      const drafted = draft.apply(change[name]!, journal);
      if (drafted === 'done') continue;
      journal.undo();
      return drafted === 'steps' ? TOO_MUCH : inexact(name);
    }
    const refused = this.#measure(set, before);
    if (refused !== undefined) {
      journal.undo();
      return refused;
    }
    for (const name in set) this.#put(name, set[name]!);
    return undefined;
  }

  /** Returns the changes to write. */
  written(): WrittenAttributes {
    this.#written ??= this.#played ? writtenOf(this.#played) : { set: this.#only ?? {}, unset: [] };
    return this.#written;
  }

  /** Returns the attributes to overwrite as text for Postgres and the stream log; undefined without any. */
  text(): JsonText | undefined {
    const { set } = this.written();
    if (this.#text === undefined && hasAny(set)) this.#text = new JsonText(JSON.stringify(set));
    return this.#text;
  }

  /** Switches from a single object's sets to `#played`. */
  #begin(): void {
    if (this.#played) return;
    this.#played = new Played();
    for (const name in this.#only) this.#played.set.set(name, this.#only[name]!);
    this.#only = undefined;
  }

  #put(name: string, value: Json): void {
    const { set, unset, drafts } = this.#played!;
    drafts.delete(name);
    if (value === null) {
      set.delete(name);
      unset.add(name);
    } else {
      unset.delete(name);
      set.set(name, value);
    }
  }

  #draft(name: string): DraftAttribute {
    const { set, unset, drafts, overwritten } = this.#played!;
    let draft = drafts.get(name);
    if (draft) return draft;
    draft = new DraftAttribute(this.#value(name));
    if (set.delete(name) || unset.delete(name)) overwritten.add(name);
    drafts.set(name, draft);
    return draft;
  }

  #value(name: string): Json | undefined {
    const { set, unset } = this.#played!;
    if (set.has(name)) return set.get(name);
    const { values } = this.#stored!;
    return !unset.has(name) && Object.hasOwn(values, name) ? values[name] : undefined;
  }

  /**
   * Counts the bytes that an object adds, and refuses an object that exceeds the limit. Sums are enough until the total
   * comes near the limit; from then on, each attribute is counted.
   *
   * @param before bytes of the attributes that the object changes, before the change
   */
  #measure(
    set: Record<string, Json>,
    before: ReadonlyMap<string, number>,
  ): string | undefined | typeof RELOAD {
    if (!this.#sizes) {
      let coming = customBytes(set);
      for (const name of before.keys()) coming += this.#sizeOfDraft(name);
      if (this.bytes + coming <= MAX_CUSTOM_BYTES) {
        this.#added += coming;
        return undefined;
      }
      this.#sizes = this.#countAll(before);
    }
    const after = new Map<string, number>();
    for (const name of before.keys()) after.set(name, this.#sizeOfDraft(name));
    for (const name in set) after.set(name, attributeBytes(name, set[name]!));
    let grown = 0;
    let isGuess = false;
    for (const [name, size] of after) {
      const old = before.get(name) ?? this.#sizes.get(name) ?? this.#storedSize(name);
      isGuess ||= old === undefined;
      grown += size - (old ?? 0);
    }
    if (grown > 0 && this.bytes + grown > MAX_CUSTOM_BYTES) return isGuess ? RELOAD : tooLarge(this.bytes);
    this.#added += grown;
    for (const [name, size] of after) this.#sizes.set(name, size);
    return undefined;
  }

  /** Counts each attribute. `#added` becomes exact, and can be negative. */
  #countAll(before: ReadonlyMap<string, number>): Map<string, number> {
    const sizes = new Map<string, number>();
    const { set, unset, drafts } = this.#played ?? NOTHING_PLAYED;
    for (const [name, value] of set) sizes.set(name, attributeBytes(name, value));
    for (const [name, draft] of drafts) sizes.set(name, before.get(name) ?? sizeOf(name, draft));
    for (const name of unset) sizes.set(name, 0);
    this.#added = 0;
    for (const [name, size] of sizes) this.#added += size - (this.#storedSize(name) ?? 0);
    return sizes;
  }

  #sizeOfDraft(name: string): number {
    return sizeOf(name, this.#played!.drafts.get(name)!);
  }

  /** Returns the stored bytes of an attribute; undefined if the round was not known to name it. */
  #storedSize(name: string): number | undefined {
    const { bytes, sizes } = this.#stored!;
    return bytes === 0 ? 0 : sizes?.get(name);
  }
}

function writtenOf({ set: values, unset: names, drafts, overwritten }: Played): WrittenAttributes {
  const [set, unset] = [Object.fromEntries(values), [...names]];
  for (const [name, draft] of drafts) {
    // An unchanged attribute is skipped, because writing a large one costs as much as all changes to it.
    if (!overwritten.has(name) && !draft.isChanged) continue;
    const { value } = draft;
    if (value === undefined) unset.push(name);
    else put(set, name, value);
  }
  return { set, unset };
}

function sizeOf(name: string, draft: DraftAttribute): number {
  const { stored } = draft.size;
  return stored === 0 ? 0 : storedNameBytes(name) + stored;
}

function removesAny(set: Record<string, Json>): boolean {
  for (const name in set) if (set[name] === null) return true;
  return false;
}
