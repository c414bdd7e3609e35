import type { Identifier, UserAlias } from '../../src/profile/identifier.ts';
import { newProfileId } from '../../src/profile/service-id.ts';
import { identifierKey } from '../../src/queue/lanes.ts';
import type { NewAlias } from '../../src/store/profiles/insert-aliases.ts';
import type { ProfileRow } from '../../src/store/profiles/profile-row.ts';
import { HeldProfile } from './held-profile.ts';
import { scoped } from './work.ts';

/** Met while folding: what has been folded is written, and the rest of the batch looks at the store again. */
export const LOOK_AGAIN = Symbol('look again');

/** What a look-up in memory can end with; undefined: nobody. */
export type Found = HeldProfile | undefined | typeof LOOK_AGAIN;

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
  /** Stored order of all who share an address, by when they were updated last, longest ago first. */
  readonly #candidates = new Map<string, Map<HeldProfile, number>>();
  /** Identifiers that an identity operation gave, took or moved. */
  readonly #sealed = new Set<string>();
  #anySealed = false;
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

  /** Takes in everyone who has an address, the one updated longest ago first. */
  addCandidates(workspaceId: string, identifier: string, rows: ProfileRow[]): void {
    const ranks = new Map(rows.map((row, index) => [this.add(row), index]));
    this.#candidates.set(scoped(workspaceId, identifier), ranks);
  }

  /** Who an identifier means now. */
  find(workspaceId: string, identifier: Identifier): Found {
    const key = scoped(workspaceId, identifierKey(identifier));
    if (this.#sealed.has(key)) return LOOK_AGAIN;
    if ('email' in identifier || 'phone' in identifier) return this.#best(key);
    const profile = this.#byIdentifier.get(key);
    return profile?.sealed ? LOOK_AGAIN : profile;
  }

  /** Everyone who has an address now, the one updated longest ago first. */
  candidates(workspaceId: string, address: Identifier): HeldProfile[] | typeof LOOK_AGAIN {
    const key = scoped(workspaceId, identifierKey(address));
    const ranks = this.#candidates.get(key);
    if (!ranks || this.#sealed.has(key)) return LOOK_AGAIN;
    const sharing = [...(this.#sharing.get(key) ?? [])];
    if (sharing.some(({ sealed }) => sealed)) return LOOK_AGAIN;
    return sharing.sort((a, b) => compareUpdated(a, b, ranks));
  }

  /** Nothing more is folded into the profile before the round is written. */
  seal(profile: HeldProfile): void {
    profile.sealed = true;
    this.#anySealed = true;
  }

  /** Nor into whom the identifier means. */
  sealIdentifier(workspaceId: string, identifier: Identifier): void {
    this.#sealed.add(scoped(workspaceId, identifierKey(identifier)));
    this.#anySealed = true;
  }

  /**
   * Whether an identity operation of this round decides who has the address. Whether anybody else had it decides
   * what that does to the states and dead letters of the address: nobody gets or loses it before it is written.
   */
  isContested(workspaceId: string, address: { email: string } | { phone: string }): boolean {
    if (!this.#anySealed) return false;
    if (this.#sealed.has(scoped(workspaceId, identifierKey(address)))) return true;
    for (const profile of this.reachable(workspaceId, address)) if (profile.sealed) return true;
    return false;
  }

  /** Gives a profile an alias that nobody has. */
  addAlias(profile: HeldProfile, user_alias: UserAlias): void {
    const { workspaceId, id } = profile;
    this.#byIdentifier.set(scoped(workspaceId, identifierKey({ user_alias })), profile);
    this.newAliases.push({ workspace_id: workspaceId, ...user_alias, profile_id: id });
    profile.labels?.add(user_alias.alias_label);
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
    if ('user_alias' in identifier) this.addAlias(profile, identifier.user_alias);
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

  /** Takes in what a locked row says of the identifiers. */
  refresh(
    profile: HeldProfile,
    row: Pick<ProfileRow, 'externalId' | 'email' | 'phone' | 'phoneValid'>,
  ): void {
    this.#unshare(profile);
    profile.externalId = row.externalId;
    profile.email = row.email;
    profile.phone = row.phone;
    profile.phoneValid = row.phoneValid;
    this.#share(profile);
  }

  /** With an external id before without; then the one updated last: in this batch, else as stored. */
  #best(key: string): Found {
    const ranks = this.#ranks.get(key);
    let best: HeldProfile | undefined;
    for (const profile of this.#sharing.get(key) ?? []) {
      if (profile.sealed) return LOOK_AGAIN;
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

/** By when they were updated last: in this batch, else as stored; then by id, as in the store. */
function compareUpdated(a: HeldProfile, b: HeldProfile, ranks: Map<HeldProfile, number>): number {
  if (a.touched !== b.touched) return a.touched - b.touched;
  const [rankOfA, rankOfB] = [ranks.get(a) ?? LAST, ranks.get(b) ?? LAST];
  return rankOfA === rankOfB ? (a.id < b.id ? -1 : 1) : rankOfA - rankOfB;
}

function* addresses({ workspaceId, email, phone, phoneValid }: HeldProfile): Iterable<string> {
  if (email !== null) yield scoped(workspaceId, identifierKey({ email }));
  if (phone !== null && phoneValid) yield scoped(workspaceId, identifierKey({ phone }));
}
