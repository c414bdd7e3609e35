import type { AttributeChange, StandardAttributes } from '../../src/profile/attribute-rule.ts';
import { identifierKey } from '../../src/queue/lanes.ts';
import { MAX_HOLDERS, type ProfileRow } from '../../src/store/identifiers.ts';
import { CustomAttributes } from './fold/custom-attributes.ts';
import { scoped } from './work-item.ts';

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
  readonly custom: CustomAttributes;
  #changed = false;

  constructor(row: ProfileRow, isNew: boolean, custom = new CustomAttributes(isNew)) {
    this.workspaceId = row.workspaceId;
    this.id = row.id;
    this.externalId = row.externalId;
    this.isNew = isNew;
    this.email = row.email;
    this.phone = row.phone;
    this.phoneValid = row.phoneValid;
    this.custom = custom;
    if (isNew) {
      this.labels = new Set();
      this.deprecated = 0;
    }
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

/** Stored places of profiles on one address. */
type Ranks = ReadonlyMap<HeldProfile, number>;

/**
 * Who has which email and phone as a batch is folded, and in which order. An address is named by the workspace and its
 * identifier, as `scoped` makes it.
 */
export class Sharing {
  /** Everyone in hand who has the address now. */
  readonly #holders = new Map<string, Set<HeldProfile>>();
  /** Best first; a list that may be cut is not complete. */
  readonly #ranks = new Map<string, Ranks>();
  readonly #cut = new Set<string>();
  /** Stored holders who are not in hand; more of them than an address may have when it is crowded. */
  readonly #unseen = new Map<string, number>();
  /** All holders, by when they were updated last, longest ago first. */
  readonly #candidates = new Map<string, Ranks>();

  holders(address: string): ReadonlySet<HeldProfile> {
    return this.#holders.get(address) ?? NOBODY;
  }

  /** @param stored how many have the address */
  rank(address: string, bestFirst: HeldProfile[], stored: number): void {
    this.#ranks.set(address, placesOf(bestFirst));
    if (stored > bestFirst.length) this.#cut.add(address);
    if (!this.#candidates.has(address)) this.#note(address, stored, bestFirst.length);
  }

  rankAll(address: string, longestAgoFirst: HeldProfile[]): void {
    this.#candidates.set(address, placesOf(longestAgoFirst));
    this.#note(address, longestAgoFirst.length, longestAgoFirst.length);
  }

  #note(address: string, stored: number, inHand: number): void {
    this.#unseen.set(address, stored > MAX_HOLDERS ? Number.POSITIVE_INFINITY : stored - inHand);
  }

  /** Whether more profiles have the address than can be told apart. */
  isCrowded(address: string): boolean {
    return (this.#unseen.get(address) ?? 0) + this.holders(address).size > MAX_HOLDERS;
  }

  /** With an external id before without; then the one updated last: in this batch, else as stored. */
  best(address: string): HeldProfile | undefined {
    const ranks = this.#ranks.get(address);
    let best: HeldProfile | undefined;
    for (const profile of this.holders(address)) {
      if (!best || isBetter(profile, best, ranks)) best = profile;
    }
    return best;
  }

  /** Whether the store may have holders who are not in hand. */
  isCut(address: string): boolean {
    return this.#cut.has(address);
  }

  /** Everyone who has the address now, the one updated longest ago first; undefined: not all are in hand. */
  candidates(address: string): HeldProfile[] | undefined {
    const ranks = this.#candidates.get(address);
    return ranks && [...this.holders(address)].sort((a, b) => compareUpdated(a, b, ranks));
  }

  /** Notes the addresses that a profile has now. */
  join(profile: HeldProfile): void {
    for (const address of addresses(profile)) {
      const holders = this.#holders.get(address);
      if (holders) holders.add(profile);
      else this.#holders.set(address, new Set([profile]));
    }
  }

  /** Forgets them: to be called before they change. */
  leave(profile: HeldProfile): void {
    for (const address of addresses(profile)) this.#holders.get(address)?.delete(profile);
  }
}

const NOBODY: ReadonlySet<HeldProfile> = new Set();

function placesOf(profiles: HeldProfile[]): Ranks {
  return new Map(profiles.map((profile, place) => [profile, place]));
}

const LAST = Number.POSITIVE_INFINITY;

function isBetter(a: HeldProfile, b: HeldProfile, ranks: Ranks | undefined): boolean {
  if ((a.externalId === null) !== (b.externalId === null)) return a.externalId !== null;
  if (a.touched !== b.touched) return a.touched > b.touched;
  const [rankOfA, rankOfB] = [ranks?.get(a) ?? LAST, ranks?.get(b) ?? LAST];
  // One object updates several profiles only when it imports tokens; then the id decides, as in the store.
  return rankOfA === rankOfB ? a.id > b.id : rankOfA < rankOfB;
}

/** By when they were updated last: in this batch, else as stored; then by id, as in the store. */
function compareUpdated(a: HeldProfile, b: HeldProfile, ranks: Ranks): number {
  if (a.touched !== b.touched) return a.touched - b.touched;
  const [rankOfA, rankOfB] = [ranks.get(a) ?? LAST, ranks.get(b) ?? LAST];
  return rankOfA === rankOfB ? (a.id < b.id ? -1 : 1) : rankOfA - rankOfB;
}

function* addresses({ workspaceId, email, phone, phoneValid }: HeldProfile): Iterable<string> {
  if (email !== null) yield scoped(workspaceId, identifierKey({ email }));
  if (phone !== null && phoneValid) yield scoped(workspaceId, identifierKey({ phone }));
}
