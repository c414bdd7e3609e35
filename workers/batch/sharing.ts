import type { Address } from '../../src/profile/identifier.ts';
import { MAX_HOLDERS } from '../../src/store/identifiers.ts';
import { ByIdentifier } from './by-workspace.ts';
import type { LoadedProfile } from './loaded-profile.ts';

/** Tracks the holders of each email address and phone number while a round is folded, and their ranking. */
export class Sharing {
  readonly #addresses = new ByIdentifier<SharedAddress>();

  get(workspaceId: string, address: Address): SharedAddress | undefined {
    return this.#addresses.get(workspaceId, address);
  }

  of(workspaceId: string, address: Address): SharedAddress {
    const existing = this.#addresses.get(workspaceId, address);
    if (existing) return existing;
    const made = new SharedAddress();
    this.#addresses.set(workspaceId, address, made);
    return made;
  }

  /** Adds a profile to the holders of its current addresses. */
  join(profile: LoadedProfile): void {
    const { workspaceId, email, phone, phoneValid } = profile;
    if (email !== null) this.of(workspaceId, { email }).holders.add(profile);
    if (phone !== null && phoneValid) this.of(workspaceId, { phone }).holders.add(profile);
  }

  /** Whether any address has stored holders that are not loaded. */
  get anyCut(): boolean {
    for (const address of this.#addresses.values()) if (address.isCut) return true;
    return false;
  }

  /** Removes a profile from the holders of its current addresses. Call it before the addresses change. */
  leave(profile: LoadedProfile): void {
    const { workspaceId, email, phone, phoneValid } = profile;
    if (email !== null) this.get(workspaceId, { email })?.holders.delete(profile);
    if (phone !== null && phoneValid) this.get(workspaceId, { phone })?.holders.delete(profile);
  }
}

/** Stored ranks of the holders of one address; 0 is first. */
type Ranks = ReadonlyMap<LoadedProfile, number>;

/** One address in its workspace, with its holders. */
class SharedAddress {
  /** Loaded profiles that have the address now. */
  readonly holders = new Set<LoadedProfile>();
  /** Ranks of the stored holders, best match first; incomplete if `#isCut`. */
  #ranks: Ranks | undefined;
  #isCut = false;
  /** Number of stored holders that are not loaded; infinite if the address is crowded. */
  #unseen = 0;
  /** Ranks of all stored holders by time of their last update, oldest first. */
  #candidates: Ranks | undefined;

  /**
   * Records the loaded holders of the address in the order in which the address prefers them.
   *
   * @param stored number of stored holders; the others are not loaded
   */
  rank(bestFirst: LoadedProfile[], stored: number): void {
    this.#ranks = ranksOf(bestFirst);
    if (stored > bestFirst.length) this.#isCut = true;
    if (!this.#candidates) this.#note(stored, bestFirst.length);
  }

  /** Records all stored holders in the order of their last update. */
  rankAll(longestAgoFirst: LoadedProfile[]): void {
    this.#candidates = ranksOf(longestAgoFirst);
    this.#note(longestAgoFirst.length, longestAgoFirst.length);
  }

  #note(stored: number, inHand: number): void {
    this.#unseen = stored > MAX_HOLDERS ? Number.POSITIVE_INFINITY : stored - inHand;
  }

  /** Whether the address has more than MAX_HOLDERS holders. */
  get isCrowded(): boolean {
    return this.#unseen + this.holders.size > MAX_HOLDERS;
  }

  /** Whether Postgres has holders that are not loaded. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Returns the best holder: one with an external id first, then the latest update, in this round or as stored. */
  best(): LoadedProfile | undefined {
    let best: LoadedProfile | undefined;
    for (const profile of this.holders) if (!best || isBetter(profile, best, this.#ranks)) best = profile;
    return best;
  }

  /** Returns all current holders, oldest update first; undefined if not all of them are loaded. */
  candidates(): LoadedProfile[] | undefined {
    const ranks = this.#candidates;
    return ranks && [...this.holders].sort((a, b) => compareUpdated(a, b, ranks));
  }
}

function ranksOf(profiles: LoadedProfile[]): Ranks {
  return new Map(profiles.map((profile, rank) => [profile, rank]));
}

const LAST = Number.POSITIVE_INFINITY;

function isBetter(a: LoadedProfile, b: LoadedProfile, ranks: Ranks | undefined): boolean {
  if ((a.externalId === null) !== (b.externalId === null)) return a.externalId !== null;
  if (a.touched !== b.touched) return a.touched > b.touched;
  const [rankOfA, rankOfB] = [ranks?.get(a) ?? LAST, ranks?.get(b) ?? LAST];
  // One object updates several profiles only when it imports tokens; then the id decides, as in Postgres.
  return rankOfA === rankOfB ? a.id > b.id : rankOfA < rankOfB;
}

/** Compares profiles by their last update, in this round or as stored, then by id as in Postgres. */
function compareUpdated(a: LoadedProfile, b: LoadedProfile, ranks: Ranks): number {
  if (a.touched !== b.touched) return a.touched - b.touched;
  const [rankOfA, rankOfB] = [ranks.get(a) ?? LAST, ranks.get(b) ?? LAST];
  return rankOfA === rankOfB ? (a.id < b.id ? -1 : 1) : rankOfA - rankOfB;
}
