import type { AttributeChange, StandardAttributes } from '../../src/profile/attributes-delta.ts';
import { applyChange } from '../../src/profile/custom-attributes.ts';
import type { Json } from '../../src/profile/json.ts';
import type { ProfileRow } from '../../src/store/profiles/profile-row.ts';

/** The columns that a batch changes. */
export type Columns = StandardAttributes & { push_subscribe?: string; email_subscribe?: string | null };

/**
 * A profile in the hands of one batch: what of it is stored, and what the objects folded so far have made of
 * it. Nothing is written before the whole batch is folded.
 */
export class HeldProfile {
  readonly workspaceId: string;
  readonly id: string;
  externalId: string | null;
  /** Whether the batch makes it. */
  readonly isNew: boolean;
  email: string | null;
  phone: string | null;
  phoneValid: boolean | null;
  /** Place in the batch of the last object that named it; -1: none. */
  touched = -1;
  /** An identity operation has changed who it is: nothing more is folded into it before that is written. */
  sealed = false;
  /** The labels of its aliases; undefined: not looked up. */
  labels: Set<string> | undefined;
  readonly columns: Columns = {};
  readonly set = new Map<string, Json>();
  readonly unset = new Set<string>();
  #changed = false;
  #stored: Record<string, Json> = {};
  /** The custom attributes of which the stored value is known; undefined: the profile is not locked. */
  #known: ReadonlySet<string> | undefined;

  constructor(row: ProfileRow, isNew: boolean) {
    this.workspaceId = row.workspaceId;
    this.id = row.id;
    this.externalId = row.externalId;
    this.isNew = isNew;
    this.email = row.email;
    this.phone = row.phone;
    this.phoneValid = row.phoneValid;
    if (isNew) this.labels = new Set();
  }

  /** Whether its row has to be written. */
  get changed(): boolean {
    return this.#changed || this.isNew;
  }

  /** Whether the batch changes more than custom attributes. */
  get changesColumns(): boolean {
    for (const _ in this.columns) return true;
    return false;
  }

  /** Takes in the stored values of these custom attributes, as locked. */
  hold(names: Iterable<string>, custom: Record<string, Json>): void {
    this.#known = new Set(names);
    this.#stored = custom;
  }

  /** Whether it is locked, and the values that the changes start from are known. */
  holds(changes: Record<string, AttributeChange> = {}): boolean {
    return (
      this.isNew ||
      (this.#known !== undefined && Object.keys(changes).every((name) => this.#known!.has(name)))
    );
  }

  /** Notes an attribute object, even one that changes nothing. */
  change(ordinal: number): void {
    this.#changed = true;
    this.touched = ordinal;
  }

  setCustom(name: string, value: Json | undefined): void {
    if (value === undefined || value === null) {
      this.set.delete(name);
      this.unset.add(name);
    } else {
      this.unset.delete(name);
      this.set.set(name, value);
    }
  }

  changeCustom(name: string, change: AttributeChange): void {
    this.setCustom(name, applyChange(this.#custom(name), change));
  }

  #custom(name: string): Json | undefined {
    if (this.set.has(name)) return this.set.get(name);
    if (this.unset.has(name)) return undefined;
    return Object.hasOwn(this.#stored, name) ? this.#stored[name] : undefined;
  }
}
