import type { Identifier } from '../../src/profile/identifier.ts';
import { newProfileId } from '../../src/profile/service-id.ts';
import { identifierKey } from '../../src/queue/lanes.ts';
import type { NewAlias } from '../../src/store/profiles/insert-aliases.ts';
import type { ProfileRow } from '../../src/store/profiles/profile-row.ts';
import { HeldProfile } from './held-profile.ts';
import { scoped } from './work.ts';

/** Raised while folding: the rest of the batch has to look at the store again. */
export const LOOK_AGAIN = Symbol('look again');

/**
 * The profiles that a batch can name, and who is found under which identifier as the batch is folded.
 */
export class Profiles {
  readonly #byId = new Map<string, HeldProfile>();
  /** Under external id, alias and service id: at most one. */
  readonly #byIdentifier = new Map<string, HeldProfile>();
  /** Under email and phone: everyone in hand who has it now. */
  readonly #sharing = new Map<string, Set<HeldProfile>>();
  /** Stored order of those who share an address, best first; a list that may be cut is not complete. */
  readonly #ranks = new Map<string, Map<HeldProfile, number>>();
  readonly #cut = new Set<string>();
  readonly newAliases: NewAlias[] = [];
  readonly #now: number;

  constructor(now: number) {
    this.#now = now;
  }

  /** Everyone in hand. */
  all(): IterableIterator<HeldProfile> {
    return this.#byId.values();
  }

  get(workspaceId: string, id: string): HeldProfile | undefined {
    return this.#byId.get(scoped(workspaceId, id));
  }

  /** Takes in a stored profile; a profile found twice is held once. */
  add(row: ProfileRow): HeldProfile {
    const key = scoped(row.workspaceId, row.id);
    let profile = this.#byId.get(key);
    if (!profile) {
      profile = new HeldProfile(row, false);
      this.#byId.set(key, profile);
      this.#share(profile);
    }
    return profile;
  }

  addUnder(identifier: string, row: ProfileRow): void {
    this.#byIdentifier.set(scoped(row.workspaceId, identifier), this.add(row));
  }

  /** Takes in those who share an address, best match first. */
  addSharing(identifier: string, rows: ProfileRow[], cut: boolean): void {
    const key = scoped(rows[0]!.workspaceId, identifier);
    this.#ranks.set(key, new Map(rows.map((row, index) => [this.add(row), index])));
    if (cut) this.#cut.add(key);
  }

  /** Who an identifier means now; undefined: nobody. */
  find(workspaceId: string, identifier: Identifier): HeldProfile | undefined | typeof LOOK_AGAIN {
    if ('email' in identifier || 'phone' in identifier)
      return this.#best(workspaceId, identifierKey(identifier));
    return this.#byIdentifier.get(scoped(workspaceId, identifierKey(identifier)));
  }

  /** Everyone whom an identifier may come to mean while the batch is folded. */
  reachable(workspaceId: string, identifier: Identifier): Iterable<HeldProfile> {
    const key = scoped(workspaceId, identifierKey(identifier));
    if ('email' in identifier || 'phone' in identifier) return this.#sharing.get(key) ?? [];
    const profile = this.#byIdentifier.get(key);
    return profile ? [profile] : [];
  }

  /** Whether somebody else in hand has this address now. */
  isShared(profile: HeldProfile, address: { email: string } | { phone: string }): boolean {
    for (const other of this.reachable(profile.workspaceId, address)) if (other !== profile) return true;
    return false;
  }

  /** Makes the profile that an identifier of nobody creates. */
  create(workspaceId: string, identifier: Identifier | undefined): HeldProfile {
    const id = newProfileId(this.#now);
    const externalId = identifier && 'external_id' in identifier ? identifier.external_id : null;
    const row: ProfileRow = { workspaceId, id, externalId, email: null, phone: null, phoneValid: null };
    const profile = new HeldProfile(row, true);
    this.#byId.set(scoped(workspaceId, id), profile);
    if (!identifier) return profile;
    this.#byIdentifier.set(scoped(workspaceId, identifierKey(identifier)), profile);
    if ('user_alias' in identifier) {
      this.newAliases.push({ workspace_id: workspaceId, ...identifier.user_alias, profile_id: id });
    }
    if ('email' in identifier) this.setEmail(profile, identifier.email);
    if ('phone' in identifier) this.setPhone(profile, identifier.phone, true);
    return profile;
  }

  setEmail(profile: HeldProfile, email: string | null): void {
    this.#unshare(profile);
    profile.email = email;
    profile.columns.email = email;
    this.#share(profile);
  }

  setPhone(profile: HeldProfile, phone: string | null, valid: boolean | null): void {
    this.#unshare(profile);
    profile.phone = phone;
    profile.phoneValid = valid;
    profile.columns.phone = phone;
    profile.columns.phone_valid = valid;
    this.#share(profile);
  }

  /** Takes in what a locked row says of the addresses. */
  refresh(
    profile: HeldProfile,
    email: string | null,
    phone: string | null,
    phoneValid: boolean | null,
  ): void {
    this.#unshare(profile);
    profile.email = email;
    profile.phone = phone;
    profile.phoneValid = phoneValid;
    this.#share(profile);
  }

  /** With an external id before without; then the one updated last: in this batch, else as stored. */
  #best(workspaceId: string, identifier: string): HeldProfile | undefined | typeof LOOK_AGAIN {
    const key = scoped(workspaceId, identifier);
    const ranks = this.#ranks.get(key);
    let best: HeldProfile | undefined;
    for (const profile of this.#sharing.get(key) ?? []) {
      if (!best || isBetter(profile, best, ranks)) best = profile;
    }
    return !best && this.#cut.has(key) ? LOOK_AGAIN : best;
  }

  #share(profile: HeldProfile): void {
    for (const key of addresses(profile)) {
      let sharing = this.#sharing.get(key);
      if (!sharing) {
        sharing = new Set();
        this.#sharing.set(key, sharing);
      }
      sharing.add(profile);
    }
  }

  #unshare(profile: HeldProfile): void {
    for (const key of addresses(profile)) this.#sharing.get(key)?.delete(profile);
  }
}

const LAST = Number.POSITIVE_INFINITY;

function isBetter(a: HeldProfile, b: HeldProfile, ranks: Map<HeldProfile, number> | undefined): boolean {
  if ((a.externalId === null) !== (b.externalId === null)) return a.externalId !== null;
  if (a.touched !== b.touched) return a.touched > b.touched;
  const [rankOfA, rankOfB] = [ranks?.get(a) ?? LAST, ranks?.get(b) ?? LAST];
  // One object updates several profiles only when it imports tokens; then the id decides, as in the store.
  return rankOfA === rankOfB ? a.id > b.id : rankOfA < rankOfB;
}

function* addresses({ workspaceId, email, phone, phoneValid }: HeldProfile): Iterable<string> {
  if (email !== null) yield scoped(workspaceId, identifierKey({ email }));
  if (phone !== null && phoneValid) yield scoped(workspaceId, identifierKey({ phone }));
}
