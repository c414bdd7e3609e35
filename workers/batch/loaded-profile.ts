import type { AttributeChange, ProfileColumns } from '../../src/profile/attribute-rule.ts';
import type { ProfileRow } from '../../src/store/identifiers.ts';
import { CustomAttributes, type StoredAttributes } from './fold/custom-attributes.ts';

const NO_COLUMNS: Readonly<ProfileColumns> = {};

/** What a stored row says of whom identifiers lead to. */
type Identifiers = Pick<ProfileRow, 'externalId' | 'email' | 'phone' | 'phoneValid'>;

/** `plain`: only its id was asked for. `new`: the round makes it. */
type LoadedAs = 'stored' | 'plain' | 'new';

/**
 * A profile in the hands of one round: what of it is stored, and what the objects folded so far have made of
 * it. Nothing is written before the whole round is folded. It alone changes what it knows.
 */
export class LoadedProfile {
  readonly workspaceId: string;
  readonly id: string;
  /** Whether the round makes it. */
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

  /** Only its id was asked for: whether it has addresses is not known, and not needed as long as nothing changes it. */
  get isPlain(): boolean {
    return this.#isPlain;
  }

  /** Its stored custom attributes are known to be little. */
  get isLittle(): boolean {
    return this.#isLittle;
  }

  /** Place in the batch of the last object that named it; -1: none. */
  get touched(): number {
    return this.#touched;
  }

  /** Place in the batch of the last object that changed it; -1: none. */
  get changedAt(): number {
    return this.#changedAt;
  }

  /** An identity operation has changed who it is: nothing more is folded into it before that is written. */
  get isSealed(): boolean {
    return this.#isSealed;
  }

  /** The labels of its aliases; undefined: not looked up. */
  get labels(): ReadonlySet<string> | undefined {
    return this.#labels;
  }

  /** External ids that lead to it besides its own; undefined: not looked up. */
  get deprecated(): number | undefined {
    return this.#deprecated;
  }

  /** Made when it is first asked for: most objects are events and purchases. */
  get custom(): CustomAttributes {
    this.#custom ??= new CustomAttributes(this.isNew);
    return this.#custom;
  }

  /** What the round changes besides custom attributes. */
  get columns(): Readonly<ProfileColumns> {
    return this.#columns ?? NO_COLUMNS;
  }

  /** Bytes of its stored custom attributes if it is locked and they are large; else 0. */
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

  /** Whether it is locked, and the values that the changes start from are known. */
  isLockedFor(changes: Record<string, AttributeChange> = {}): boolean {
    return this.custom.isHeld && this.custom.knows(changes, this.isNew);
  }

  /** Takes in what a row says that is newer. */
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

  /** It is locked, or need not be. */
  hold(stored: StoredAttributes): void {
    this.custom.hold(stored);
  }

  /** Notes an object that names it. */
  touch(ordinal: number): void {
    this.#touched = ordinal;
  }

  /** Notes an attribute object, even one that changes nothing. */
  change(ordinal: number): void {
    this.#changed = true;
    this.#touched = ordinal;
    this.#changedAt = ordinal;
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

  /** It has an alias more, if it is known which it has. */
  addLabel(label: string): void {
    this.#labels?.add(label);
  }

  seal(): void {
    this.#isSealed = true;
  }
}
