import { identifierKey } from '../../src/queue/lanes.ts';
import type { HeldProfile } from './held-profile.ts';
import { scoped } from './work.ts';

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
  /** All holders, by when they were updated last, longest ago first. */
  readonly #candidates = new Map<string, Ranks>();

  holders(address: string): ReadonlySet<HeldProfile> {
    return this.#holders.get(address) ?? NOBODY;
  }

  rank(address: string, bestFirst: HeldProfile[], cut: boolean): void {
    this.#ranks.set(address, placesOf(bestFirst));
    if (cut) this.#cut.add(address);
  }

  rankAll(address: string, longestAgoFirst: HeldProfile[]): void {
    this.#candidates.set(address, placesOf(longestAgoFirst));
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
