import type { UserSelector } from '../../src/jobs/envelope.ts';
import {
  type Address,
  type Identifier,
  isAddress,
  newProfileId,
  type Prioritization,
  type UserAlias,
} from '../../src/profile/identifier.ts';
import type { NewAlias } from '../../src/store/alternate-identifiers.ts';
import { MAX_HOLDERS, type ProfileRow, type SharingRow } from '../../src/store/identifiers.ts';
import { ByIdentifier } from './by-workspace.ts';
import type { CustomAttributes } from './fold/custom-attributes.ts';
import { LoadedProfile } from './loaded-profile.ts';
import { Sharing } from './sharing.ts';
import { RELOAD } from './work-item.ts';

/** Result of a lookup in memory; undefined if no profile matches. */
type Found = LoadedProfile | undefined | typeof RELOAD;

/** Profiles that the objects of a round can name. Resolves identifiers to profiles while the round is folded. */
export class Profiles {
  /** Profiles by workspace and id. */
  readonly #byId = new Map<string, Map<string, LoadedProfile>>();
  /** Profiles by external id, alias and service id: at most one for each. */
  readonly #byIdentifier = new ByIdentifier<LoadedProfile>();
  /** Profiles by email address and phone number. */
  readonly #sharing = new Sharing();
  /** Identifiers that an identity operation of this round added, removed or moved. */
  readonly #sealed = new ByIdentifier<true>();
  #anySealed = false;
  /** Addresses by which a refused object identified its user. */
  readonly #pinned = new ByIdentifier<true>();
  #anyPinned = false;
  readonly newAliases: NewAlias[] = [];
  readonly #now: number;

  constructor(now: number) {
    this.#now = now;
  }

  /** Whether an identity operation of this round has changed the meaning of any identifier. */
  get anySealed(): boolean {
    return this.#anySealed;
  }

  /** Returns all loaded profiles. */
  *all(): Iterable<LoadedProfile> {
    for (const profiles of this.#byId.values()) yield* profiles.values();
  }

  get(workspaceId: string, id: string): LoadedProfile | undefined {
    return this.#byId.get(workspaceId)?.get(id);
  }

  /** Adds a stored profile; a profile that was found twice is held once. */
  add(row: ProfileRow): LoadedProfile {
    let profile = this.get(row.workspaceId, row.id);
    if (!profile) {
      profile = this.#hold(new LoadedProfile(row, 'stored'));
      this.#sharing.join(profile);
    } else if (profile.isPlain) this.refresh(profile, row);
    return profile;
  }

  /** Adds a stored profile of which only the id was read. */
  addPlain(workspaceId: string, externalId: string, id: string): void {
    let profile = this.get(workspaceId, id);
    if (!profile) {
      const row: ProfileRow = { workspaceId, id, externalId, email: null, phone: null, phoneValid: null };
      profile = this.#hold(new LoadedProfile(row, 'plain'));
    }
    this.#byIdentifier.set(workspaceId, { external_id: externalId }, profile);
  }

  /** Whether any address has more holders than were loaded. */
  get anyCut(): boolean {
    return this.#sharing.anyCut;
  }

  #hold(profile: LoadedProfile): LoadedProfile {
    const { workspaceId, id } = profile;
    const profiles = this.#byId.get(workspaceId);
    if (profiles) profiles.set(id, profile);
    else this.#byId.set(workspaceId, new Map([[id, profile]]));
    return profile;
  }

  addUnder(identifier: Identifier, row: ProfileRow): LoadedProfile {
    const profile = this.add(row);
    this.#byIdentifier.set(row.workspaceId, identifier, profile);
    return profile;
  }

  /** Adds the holders of an address, best match first: all holders, or the first of many. */
  addSharing(address: Address, rows: SharingRow[]): void {
    const profiles = rows.map((row) => this.add(row));
    const { workspaceId, holders } = rows[0]!;
    this.#sharing.of(workspaceId, address).rank(profiles, holders);
  }

  /** Adds all holders of an address, oldest update first. */
  addCandidates(workspaceId: string, address: Address, rows: ProfileRow[]): void {
    const profiles = rows.map((row) => this.add(row));
    this.#sharing.of(workspaceId, address).rankAll(profiles);
  }

  /** Returns the profile that an identifier means now. */
  find(workspaceId: string, identifier: Identifier): Found {
    if (this.#anySealed && this.#sealed.has(workspaceId, identifier)) return RELOAD;
    if (isAddress(identifier)) return this.#findSharing(workspaceId, identifier);
    const profile = this.#byIdentifier.get(workspaceId, identifier);
    return profile?.isSealed ? RELOAD : profile;
  }

  /** Returns all current holders of an address, oldest update first. */
  candidates(workspaceId: string, address: Address): LoadedProfile[] | typeof RELOAD {
    if (this.isContested(workspaceId, address)) return RELOAD;
    return this.#sharing.get(workspaceId, address)?.candidates() ?? RELOAD;
  }

  /** Returns whether an address has more than MAX_HOLDERS holders, so that it identifies no profile. */
  isCrowded(workspaceId: string, address: Address): boolean {
    return this.#sharing.get(workspaceId, address)?.isCrowded ?? false;
  }

  /** Seals a profile: no further object is folded into it before the round is written. */
  seal(profile: LoadedProfile): void {
    profile.seal();
    this.#anySealed = true;
  }

  /** Seals an identifier: no further object that uses it is folded before the round is written. */
  sealIdentifier(workspaceId: string, identifier: Identifier): void {
    this.#sealed.set(workspaceId, identifier, true);
    this.#anySealed = true;
  }

  /**
   * Returns whether an identity operation of this round affects the holders of the address. The effect on the states
   * and dead letters of the address depends on its other holders, so they must not change before the round is written.
   */
  isContested(workspaceId: string, address: Address): boolean {
    if (!this.#anySealed) return false;
    return this.#sealed.has(workspaceId, address) || this.#hasSealedHolder(workspaceId, address);
  }

  /**
   * Pins an address: its holders must not change before the round is written. The dead letter of a refused object
   * records which user the address meant, and is written with the round.
   */
  pin(workspaceId: string, address: Address): void {
    this.#pinned.set(workspaceId, address, true);
    this.#anyPinned = true;
  }

  isPinned(workspaceId: string, address: Address): boolean {
    return this.#anyPinned && this.#pinned.has(workspaceId, address);
  }

  /** Adds an unused alias to a profile. */
  addAlias(profile: LoadedProfile, user_alias: UserAlias): void {
    const { workspaceId, id: profileId } = profile;
    const { alias_label: aliasLabel, alias_name: aliasName } = user_alias;
    this.#byIdentifier.set(workspaceId, { user_alias }, profile);
    this.newAliases.push({ workspaceId, aliasLabel, aliasName, profileId });
    profile.addLabel(aliasLabel);
  }

  /** Returns the holder of an identifier other than an address, as stored or as changed by the round. */
  holder(workspaceId: string, identifier: Identifier): LoadedProfile | undefined {
    return this.#byIdentifier.get(workspaceId, identifier);
  }

  /** Returns all profiles that an identifier may mean at present: for an address, all its loaded holders. */
  reachable(workspaceId: string, identifier: Identifier): Iterable<LoadedProfile> {
    if (isAddress(identifier)) return this.#sharing.get(workspaceId, identifier)?.holders ?? [];
    const profile = this.#byIdentifier.get(workspaceId, identifier);
    return profile ? [profile] : [];
  }

  /** Returns whether another loaded profile has the address now. */
  isShared(profile: LoadedProfile, address: Address): boolean {
    for (const other of this.reachable(profile.workspaceId, address)) if (other !== profile) return true;
    return false;
  }

  /** Creates a profile for an unused identifier, or an anonymous profile. */
  create(workspaceId: string, identifier: Identifier | undefined, custom?: CustomAttributes): LoadedProfile {
    const id = newProfileId(this.#now);
    const externalId = identifier && 'external_id' in identifier ? identifier.external_id : null;
    const row: ProfileRow = { workspaceId, id, externalId, email: null, phone: null, phoneValid: null };
    const profile = this.#hold(new LoadedProfile(row, 'new', custom));
    if (!identifier) return profile;
    this.#byIdentifier.set(workspaceId, identifier, profile);
    if ('user_alias' in identifier) this.addAlias(profile, identifier.user_alias);
    if ('email' in identifier) this.setEmail(profile, identifier.email);
    if ('phone' in identifier) this.setPhone(profile, identifier.phone, true);
    return profile;
  }

  setEmail(profile: LoadedProfile, email: string | null): void {
    this.#sharing.leave(profile);
    profile.setEmail(email);
    this.#sharing.join(profile);
  }

  setPhone(profile: LoadedProfile, phone: string | null, valid: boolean | null): void {
    this.#sharing.leave(profile);
    profile.setPhone(phone, valid);
    this.#sharing.join(profile);
  }

  /** Replaces the identifiers of a profile by a newer row. */
  refresh(
    profile: LoadedProfile,
    row: Pick<ProfileRow, 'externalId' | 'email' | 'phone' | 'phoneValid'>,
  ): void {
    this.#sharing.leave(profile);
    profile.refresh(row);
    this.#sharing.join(profile);
  }

  #findSharing(workspaceId: string, address: Address): Found {
    if (this.#hasSealedHolder(workspaceId, address)) return RELOAD;
    const sharing = this.#sharing.get(workspaceId, address);
    return sharing?.best() ?? (sharing?.isCut ? RELOAD : undefined);
  }

  #hasSealedHolder(workspaceId: string, address: Address): boolean {
    if (!this.#anySealed) return false;
    for (const profile of this.reachable(workspaceId, address)) if (profile.isSealed) return true;
    return false;
  }
}

/** Filters for the candidates, which are ordered by last update, oldest first. */
const narrow: Record<Prioritization, (left: LoadedProfile[]) => LoadedProfile[]> = {
  identified: (left) => left.filter(({ externalId }) => externalId !== null),
  unidentified: (left) => left.filter(({ externalId }) => externalId === null),
  most_recently_updated: (left) => left.slice(-1),
  least_recently_updated: (left) => left.slice(0, 1),
};

/** Raised for an address with more than MAX_HOLDERS holders. */
export class TooManyHolders extends Error {
  override name = 'TooManyHolders';
}

/** Returns the error message for an address with too many holders. */
export function tooManyHolders(address: Address): string {
  const kind = 'email' in address ? 'email address' : 'phone number';
  return `more than ${MAX_HOLDERS} profiles have the ${kind}: name the user by another identifier`;
}

/**
 * Returns the user that a selector means; undefined if no candidate or more than one is left.
 *
 * @throws {TooManyHolders}
 */
export function pick(profiles: Profiles, workspaceId: string, selector: UserSelector): Found {
  const { identifier, prioritization = [] } = selector;
  if (!isAddress(identifier)) return profiles.find(workspaceId, identifier);
  let left = profiles.candidates(workspaceId, identifier);
  if (left === RELOAD) return RELOAD;
  if (profiles.isCrowded(workspaceId, identifier)) throw new TooManyHolders(tooManyHolders(identifier));
  for (const priority of prioritization) left = narrow[priority](left);
  return left.length === 1 ? left[0] : undefined;
}
