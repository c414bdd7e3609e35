import type { AttributeChange, StandardAttributes } from '../../src/profile/attribute-rule.ts';
import type { ProfileRow } from '../../src/store/identifiers.ts';
import { CustomAttributes } from './fold/custom-attributes.ts';

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
  /** External ids that lead to it besides its own; undefined: not looked up. */
  deprecated: number | undefined;
  readonly columns: Columns = {};
  #custom: CustomAttributes | undefined;
  #changed = false;

  constructor(row: ProfileRow, isNew: boolean, custom?: CustomAttributes) {
    this.workspaceId = row.workspaceId;
    this.id = row.id;
    this.externalId = row.externalId;
    this.isNew = isNew;
    this.email = row.email;
    this.phone = row.phone;
    this.phoneValid = row.phoneValid;
    this.#custom = custom;
    if (isNew) {
      this.labels = new Set();
      this.deprecated = 0;
    }
  }

  /** Made when it is first asked for: most objects are events and purchases. */
  get custom(): CustomAttributes {
    this.#custom ??= new CustomAttributes(this.isNew);
    return this.#custom;
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

  /** Whether it is locked, and the values that the changes start from are known. */
  holds(changes: Record<string, AttributeChange> = {}): boolean {
    return this.custom.isHeld && this.custom.knows(changes, this.isNew);
  }

  /** Notes an attribute object, even one that changes nothing. */
  change(ordinal: number): void {
    this.#changed = true;
    this.touched = ordinal;
  }
}
