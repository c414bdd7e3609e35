import type { Address } from '../../src/profile/identifier.ts';
import { MAX_HOLDERS } from '../../src/store/identifiers.ts';
import { ByIdentifier } from './by-workspace.ts';
import type { LoadedProfile } from './loaded-profile.ts';

/** Who has which email and phone as a round is folded, and in which order. */
export class Sharing {
  readonly #addresses = new ByIdentifier<SharedAddress>();

  get(workspaceId: string, address: Address): SharedAddress | undefined {
    return this.#addresses.get(workspaceId, address);
  }

  of(workspaceId: string, address: Address): SharedAddress {
    const known = this.#addresses.get(workspaceId, address);
    if (known) return known;
    const made = new SharedAddress();
    this.#addresses.set(workspaceId, address, made);
    return made;
  }

  /** Notes the addresses that a profile has now. */
  join(profile: LoadedProfile): void {
    const { workspaceId, email, phone, phoneValid } = profile;
    if (email !== null) this.of(workspaceId, { email }).holders.add(profile);
    if (phone !== null && phoneValid) this.of(workspaceId, { phone }).holders.add(profile);
  }

  /** Whether some address has stored holders who are not in hand. */
  get anyCut(): boolean {
    for (const address of this.#addresses.values()) if (address.isCut) return true;
    return false;
  }

  /** Forgets them: to be called before they change. */
  leave(profile: LoadedProfile): void {
    const { workspaceId, email, phone, phoneValid } = profile;
    if (email !== null) this.get(workspaceId, { email })?.holders.delete(profile);
    if (phone !== null && phoneValid) this.get(workspaceId, { phone })?.holders.delete(profile);
  }
}

/** Stored places of profiles on one address. */
type Ranks = ReadonlyMap<LoadedProfile, number>;

/** One address in its workspace, and those who have it. */
class SharedAddress {
  /** Everyone in hand who has it now. */
  readonly holders = new Set<LoadedProfile>();
  /** Best first; a list that is cut is not complete. */
  #ranks: Ranks | undefined;
  #isCut = false;
  /** Stored holders who are not in hand; more of them than an address may have when it is crowded. */
  #unseen = 0;
  /** All holders, by when they were updated last, longest ago first. */
  #candidates: Ranks | undefined;

  /** @param stored how many have the address */
  rank(bestFirst: LoadedProfile[], stored: number): void {
    this.#ranks = placesOf(bestFirst);
    if (stored > bestFirst.length) this.#isCut = true;
    if (!this.#candidates) this.#note(stored, bestFirst.length);
  }

  rankAll(longestAgoFirst: LoadedProfile[]): void {
    this.#candidates = placesOf(longestAgoFirst);
    this.#note(longestAgoFirst.length, longestAgoFirst.length);
  }

  #note(stored: number, inHand: number): void {
    this.#unseen = stored > MAX_HOLDERS ? Number.POSITIVE_INFINITY : stored - inHand;
  }

  /** Whether more profiles have it than can be told apart. */
  get isCrowded(): boolean {
    return this.#unseen + this.holders.size > MAX_HOLDERS;
  }

  /** Whether the store may have holders who are not in hand. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** With an external id before without; then the one updated last: in this round, else as stored. */
  best(): LoadedProfile | undefined {
    let best: LoadedProfile | undefined;
    for (const profile of this.holders) if (!best || isBetter(profile, best, this.#ranks)) best = profile;
    return best;
  }

  /** Everyone who has the address now, the one updated longest ago first; undefined: not all are in hand. */
  candidates(): LoadedProfile[] | undefined {
    const ranks = this.#candidates;
    return ranks && [...this.holders].sort((a, b) => compareUpdated(a, b, ranks));
  }
}

function placesOf(profiles: LoadedProfile[]): Ranks {
  return new Map(profiles.map((profile, place) => [profile, place]));
}

const LAST = Number.POSITIVE_INFINITY;

function isBetter(a: LoadedProfile, b: LoadedProfile, ranks: Ranks | undefined): boolean {
  if ((a.externalId === null) !== (b.externalId === null)) return a.externalId !== null;
  if (a.touched !== b.touched) return a.touched > b.touched;
  const [rankOfA, rankOfB] = [ranks?.get(a) ?? LAST, ranks?.get(b) ?? LAST];
  // One object updates several profiles only when it imports tokens; then the id decides, as in the store.
  return rankOfA === rankOfB ? a.id > b.id : rankOfA < rankOfB;
}

/** By when they were updated last: in this round, else as stored; then by id, as in the store. */
function compareUpdated(a: LoadedProfile, b: LoadedProfile, ranks: Ranks): number {
  if (a.touched !== b.touched) return a.touched - b.touched;
  const [rankOfA, rankOfB] = [ranks.get(a) ?? LAST, ranks.get(b) ?? LAST];
  return rankOfA === rankOfB ? (a.id < b.id ? -1 : 1) : rankOfA - rankOfB;
}
