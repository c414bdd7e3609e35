import type { AttributeChange, ProfileColumns } from '../../src/profile/attribute-rule.ts';
import type { ProfileRow } from '../../src/store/identifiers.ts';
import { CustomAttributes, type StoredAttributes } from './fold/custom-attributes.ts';
import type { WorkItem } from './work-item.ts';

const NO_COLUMNS: Readonly<ProfileColumns> = {};

/** Identifiers in a stored row. */
type Identifiers = Pick<ProfileRow, 'externalId' | 'email' | 'phone' | 'phoneValid'>;

/** How a profile was loaded. `plain`: only its id was read. `new`: the round creates it. */
type LoadedAs = 'stored' | 'plain' | 'new';

/**
 * A profile that a round has loaded: its stored data, and the changes by the objects folded so far. The changes are
 * written when the whole round has been folded. Only methods of this class change its state.
 */
export class LoadedProfile {
  readonly workspaceId: string;
  readonly id: string;
  /** Whether the round creates it. */
  readonly isNew: boolean;
  #externalId: string | null;
  #email: string | null;
  #phone: string | null;
  #phoneValid: boolean | null;
  #isPlain: boolean;
  #isLittle = false;
  #touched = -1;
  #changedAt = -1;
  #isSealed = false;
  #labels: Set<string> | undefined;
  #deprecated: number | undefined;
  #columns: ProfileColumns | undefined;
  #custom: CustomAttributes | undefined;
  #changed = false;
  #lastItem: WorkItem | undefined;

  constructor(row: ProfileRow, as: LoadedAs, custom?: CustomAttributes) {
    this.workspaceId = row.workspaceId;
    this.id = row.id;
    this.isNew = as === 'new';
    this.#externalId = row.externalId;
    this.#email = row.email;
    this.#phone = row.phone;
    this.#phoneValid = row.phoneValid;
    this.#isPlain = as === 'plain';
    this.#custom = custom;
    if (as !== 'new') return;
    this.#labels = new Set();
    this.#deprecated = 0;
  }

  get externalId(): string | null {
    return this.#externalId;
  }

  get email(): string | null {
    return this.#email;
  }

  get phone(): string | null {
    return this.#phone;
  }

  get phoneValid(): boolean | null {
    return this.#phoneValid;
  }

  /** Whether only its id was read. Its addresses are then unknown, and not needed until an object changes it. */
  get isPlain(): boolean {
    return this.#isPlain;
  }

  /** Whether its stored custom attributes are known to be small. */
  get isLittle(): boolean {
    return this.#isLittle;
  }

  /** Place in the batch of the last object that named it; -1 without such an object. */
  get touched(): number {
    return this.#touched;
  }

  /** Place in the batch of the last object that changed it; -1 without such an object. */
  get changedAt(): number {
    return this.#changedAt;
  }

  /** Whether an identity operation has changed it: no further object is folded into it before that is written. */
  get isSealed(): boolean {
    return this.#isSealed;
  }

  /** Labels of its aliases; undefined if they were not looked up. */
  get labels(): ReadonlySet<string> | undefined {
    return this.#labels;
  }

  /** Number of its deprecated external ids; undefined if they were not counted. */
  get deprecated(): number | undefined {
    return this.#deprecated;
  }

  /** Custom attributes, created on first use because most objects are events and purchases. */
  get custom(): CustomAttributes {
    this.#custom ??= new CustomAttributes(this.isNew);
    return this.#custom;
  }

  /** The last attribute object; undefined without one. */
  get lastItem(): WorkItem | undefined {
    return this.#lastItem;
  }

  /** Columns that the round changes, without custom attributes. */
  get columns(): Readonly<ProfileColumns> {
    return this.#columns ?? NO_COLUMNS;
  }

  /** Bytes of its stored custom attributes if it is locked and they are large, otherwise 0. */
  get storedBytes(): number {
    return this.#custom?.storedBytes ?? 0;
  }

  /** Whether its row has to be written. */
  get changed(): boolean {
    return this.#changed || this.isNew;
  }

  /** Whether the round changes more than custom attributes. */
  get changesColumns(): boolean {
    for (const _ in this.#columns) return true;
    return false;
  }

  /** Returns whether it is locked and the stored values that the changes need are known. */
  isLockedFor(changes: Record<string, AttributeChange> = {}): boolean {
    return this.custom.isHeld && this.custom.knows(changes, this.isNew);
  }

  /** Replaces the identifiers by a newer row. */
  refresh({ externalId, email, phone, phoneValid }: Identifiers): void {
    this.#isPlain = false;
    this.#externalId = externalId;
    this.#email = email;
    this.#phone = phone;
    this.#phoneValid = phoneValid;
  }

  knowLittle(isLittle: boolean): void {
    this.#isLittle = isLittle;
  }

  knowLabels(labels: Iterable<string>): void {
    this.#labels = new Set(labels);
  }

  knowDeprecated(number: number): void {
    this.#deprecated = number;
  }

  /** Marks it as locked, or as not needing a lock, with its stored attributes. */
  hold(stored: StoredAttributes): void {
    this.custom.hold(stored);
  }

  /** Records an object that names it. */
  touch(ordinal: number): void {
    this.#touched = ordinal;
  }

  /** Records an attribute object or a merge, even if it changes no value. */
  change(ordinal: number): void {
    this.#changed = true;
    this.#touched = ordinal;
    this.#changedAt = ordinal;
  }

  /** Records an attribute object, even if it changes no value. */
  changeBy(item: WorkItem): void {
    this.change(item.ordinal);
    this.#lastItem = item;
  }

  setColumns(columns: ProfileColumns): void {
    this.#columns ??= {};
    Object.assign(this.#columns, columns);
  }

  setEmail(email: string | null): void {
    this.#email = email;
    this.setColumns({ email });
  }

  setPhone(phone: string | null, valid: boolean | null): void {
    this.#phone = phone;
    this.#phoneValid = valid;
    this.setColumns({ phone, phone_valid: valid });
  }

  /** Adds an alias label if the labels were looked up. */
  addLabel(label: string): void {
    this.#labels?.add(label);
  }

  seal(): void {
    this.#isSealed = true;
  }
}
