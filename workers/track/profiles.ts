import { type Address, type Identifier, isAddress, type UserAlias } from '../../src/profile/identifier.ts';
import { newProfileId } from '../../src/profile/service-id.ts';
import { identifierKey } from '../../src/queue/lanes.ts';
import type { NewAlias } from '../../src/store/profiles/insert-aliases.ts';
import type { ProfileRow } from '../../src/store/profiles/profile-row.ts';
import { HeldProfile } from './held-profile.ts';
import { Sharing } from './sharing.ts';
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
  /** Under email and phone. */
  readonly #sharing = new Sharing();
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
      this.#sharing.join(profile);
    }
    return profile;
  }

  addUnder(identifier: string, row: ProfileRow): void {
    this.#byIdentifier.set(scoped(row.workspaceId, identifier), this.add(row));
  }

  /** Takes in those who share an address, best match first; `cut`: there may be more. */
  addSharing(identifier: string, rows: ProfileRow[], cut: boolean): void {
    const profiles = rows.map((row) => this.add(row));
    this.#sharing.rank(scoped(rows[0]!.workspaceId, identifier), profiles, cut);
  }

  /** Takes in everyone who has an address, the one updated longest ago first. */
  addCandidates(workspaceId: string, identifier: string, rows: ProfileRow[]): void {
    const profiles = rows.map((row) => this.add(row));
    this.#sharing.rankAll(scoped(workspaceId, identifier), profiles);
  }

  /** Who an identifier means now. */
  find(workspaceId: string, identifier: Identifier): Found {
    const key = scoped(workspaceId, identifierKey(identifier));
    if (this.#sealed.has(key)) return LOOK_AGAIN;
    if (isAddress(identifier)) return this.#findSharing(key);
    const profile = this.#byIdentifier.get(key);
    return profile?.sealed ? LOOK_AGAIN : profile;
  }

  /** Everyone who has an address now, the one updated longest ago first. */
  candidates(workspaceId: string, address: Identifier): HeldProfile[] | typeof LOOK_AGAIN {
    const key = scoped(workspaceId, identifierKey(address));
    if (this.#sealed.has(key) || this.#hasSealedHolder(key)) return LOOK_AGAIN;
    return this.#sharing.candidates(key) ?? LOOK_AGAIN;
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
  isContested(workspaceId: string, address: Address): boolean {
    if (!this.#anySealed) return false;
    const key = scoped(workspaceId, identifierKey(address));
    return this.#sealed.has(key) || this.#hasSealedHolder(key);
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
    if (isAddress(identifier)) return this.#sharing.holders(key);
    const profile = this.#byIdentifier.get(key);
    return profile ? [profile] : [];
  }

  /** Whether somebody else in hand has this address now. */
  isShared(profile: HeldProfile, address: Address): boolean {
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
    this.#sharing.leave(profile);
    profile.email = email;
    profile.columns.email = email;
    this.#sharing.join(profile);
  }

  setPhone(profile: HeldProfile, phone: string | null, valid: boolean | null): void {
    this.#sharing.leave(profile);
    profile.phone = phone;
    profile.phoneValid = valid;
    profile.columns.phone = phone;
    profile.columns.phone_valid = valid;
    this.#sharing.join(profile);
  }

  /** Takes in what a locked row says of the identifiers. */
  refresh(
    profile: HeldProfile,
    row: Pick<ProfileRow, 'externalId' | 'email' | 'phone' | 'phoneValid'>,
  ): void {
    this.#sharing.leave(profile);
    profile.externalId = row.externalId;
    profile.email = row.email;
    profile.phone = row.phone;
    profile.phoneValid = row.phoneValid;
    this.#sharing.join(profile);
  }

  #findSharing(key: string): Found {
    if (this.#hasSealedHolder(key)) return LOOK_AGAIN;
    return this.#sharing.best(key) ?? (this.#sharing.isCut(key) ? LOOK_AGAIN : undefined);
  }

  #hasSealedHolder(key: string): boolean {
    if (!this.#anySealed) return false;
    for (const profile of this.#sharing.holders(key)) if (profile.sealed) return true;
    return false;
  }
}
