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

/** What a look-up in memory can end with; undefined: nobody. */
type Found = LoadedProfile | undefined | typeof RELOAD;

/**
 * The profiles that a round can name, and who is found under which identifier as the round is folded.
 */
export class Profiles {
  /** By workspace and id. */
  readonly #byId = new Map<string, Map<string, LoadedProfile>>();
  /** Under external id, alias and service id: at most one. */
  readonly #byIdentifier = new ByIdentifier<LoadedProfile>();
  /** Under email and phone. */
  readonly #sharing = new Sharing();
  /** Identifiers that an identity operation gave, took or moved. */
  readonly #sealed = new ByIdentifier<true>();
  #anySealed = false;
  /** Addresses by which a refused object named its user. */
  readonly #pinned = new ByIdentifier<true>();
  #anyPinned = false;
  readonly newAliases: NewAlias[] = [];
  readonly #now: number;

  constructor(now: number) {
    this.#now = now;
  }

  /** Whether an identity operation of this round has changed whom some name means. */
  get anySealed(): boolean {
    return this.#anySealed;
  }

  /** Everyone in hand. */
  *all(): Iterable<LoadedProfile> {
    for (const profiles of this.#byId.values()) yield* profiles.values();
  }

  get(workspaceId: string, id: string): LoadedProfile | undefined {
    return this.#byId.get(workspaceId)?.get(id);
  }

  /** Takes in a stored profile; a profile found twice is held once. */
  add(row: ProfileRow): LoadedProfile {
    let profile = this.get(row.workspaceId, row.id);
    if (!profile) {
      profile = this.#hold(new LoadedProfile(row, 'stored'));
      this.#sharing.join(profile);
    } else if (profile.isPlain) this.refresh(profile, row);
    return profile;
  }

  /** Takes in a stored profile of which nothing but the id was asked for. */
  addPlain(workspaceId: string, externalId: string, id: string): void {
    let profile = this.get(workspaceId, id);
    if (!profile) {
      const row: ProfileRow = { workspaceId, id, externalId, email: null, phone: null, phoneValid: null };
      profile = this.#hold(new LoadedProfile(row, 'plain'));
    }
    this.#byIdentifier.set(workspaceId, { external_id: externalId }, profile);
  }

  /** Whether an address of some has more holders than were looked at. */
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

  /** Takes in those who share an address, best match first: all of them, or the first of many. */
  addSharing(address: Address, rows: SharingRow[]): void {
    const profiles = rows.map((row) => this.add(row));
    const { workspaceId, holders } = rows[0]!;
    this.#sharing.of(workspaceId, address).rank(profiles, holders);
  }

  /** Takes in everyone who has an address, the one updated longest ago first. */
  addCandidates(workspaceId: string, address: Address, rows: ProfileRow[]): void {
    const profiles = rows.map((row) => this.add(row));
    this.#sharing.of(workspaceId, address).rankAll(profiles);
  }

  /** Who an identifier means now. */
  find(workspaceId: string, identifier: Identifier): Found {
    if (this.#anySealed && this.#sealed.has(workspaceId, identifier)) return RELOAD;
    if (isAddress(identifier)) return this.#findSharing(workspaceId, identifier);
    const profile = this.#byIdentifier.get(workspaceId, identifier);
    return profile?.isSealed ? RELOAD : profile;
  }

  /** Everyone who has an address now, the one updated longest ago first. */
  candidates(workspaceId: string, address: Address): LoadedProfile[] | typeof RELOAD {
    if (this.isContested(workspaceId, address)) return RELOAD;
    return this.#sharing.get(workspaceId, address)?.candidates() ?? RELOAD;
  }

  /** Whether more profiles have the address than can be told apart: it names none of them. */
  isCrowded(workspaceId: string, address: Address): boolean {
    return this.#sharing.get(workspaceId, address)?.isCrowded ?? false;
  }

  /** Nothing more is folded into the profile before the round is written. */
  seal(profile: LoadedProfile): void {
    profile.seal();
    this.#anySealed = true;
  }

  /** Nor into whom the identifier means. */
  sealIdentifier(workspaceId: string, identifier: Identifier): void {
    this.#sealed.set(workspaceId, identifier, true);
    this.#anySealed = true;
  }

  /**
   * Whether an identity operation of this round decides who has the address. Whether anybody else had it decides
   * what that does to the states and dead letters of the address: nobody gets or loses it before it is written.
   */
  isContested(workspaceId: string, address: Address): boolean {
    if (!this.#anySealed) return false;
    return this.#sealed.has(workspaceId, address) || this.#hasSealedHolder(workspaceId, address);
  }

  /**
   * From now on nobody gets or loses the address before the round is written. The dead letter of an object that it
   * named says whom that object meant, and is written with the round.
   */
  pin(workspaceId: string, address: Address): void {
    this.#pinned.set(workspaceId, address, true);
    this.#anyPinned = true;
  }

  isPinned(workspaceId: string, address: Address): boolean {
    return this.#anyPinned && this.#pinned.has(workspaceId, address);
  }

  /** Gives a profile an alias that nobody has. */
  addAlias(profile: LoadedProfile, user_alias: UserAlias): void {
    const { workspaceId, id: profileId } = profile;
    const { alias_label: aliasLabel, alias_name: aliasName } = user_alias;
    this.#byIdentifier.set(workspaceId, { user_alias }, profile);
    this.newAliases.push({ workspaceId, aliasLabel, aliasName, profileId });
    profile.addLabel(aliasLabel);
  }

  /** Who has an identifier that is no address, as stored or as the round has made it. */
  holder(workspaceId: string, identifier: Identifier): LoadedProfile | undefined {
    return this.#byIdentifier.get(workspaceId, identifier);
  }

  /** Everyone whom an identifier may come to mean while the round is folded. */
  reachable(workspaceId: string, identifier: Identifier): Iterable<LoadedProfile> {
    if (isAddress(identifier)) return this.#sharing.get(workspaceId, identifier)?.holders ?? [];
    const profile = this.#byIdentifier.get(workspaceId, identifier);
    return profile ? [profile] : [];
  }

  /** Whether somebody else in hand has this address now. */
  isShared(profile: LoadedProfile, address: Address): boolean {
    for (const other of this.reachable(profile.workspaceId, address)) if (other !== profile) return true;
    return false;
  }

  /** Makes the profile that an identifier of nobody creates. */
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

  /** Takes in what a locked row says of the identifiers. */
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

/** Narrows those who are left, the one updated longest ago first. */
const narrow: Record<Prioritization, (left: LoadedProfile[]) => LoadedProfile[]> = {
  identified: (left) => left.filter(({ externalId }) => externalId !== null),
  unidentified: (left) => left.filter(({ externalId }) => externalId === null),
  most_recently_updated: (left) => left.slice(-1),
  least_recently_updated: (left) => left.slice(0, 1),
};

/** Raised for an address with more holders than can be told apart. */
export class TooManyHolders extends Error {
  override name = 'TooManyHolders';
}

/** Why an address with too many holders names none of them. */
export function tooManyHolders(address: Address): string {
  const kind = 'email' in address ? 'email address' : 'phone number';
  return `more than ${MAX_HOLDERS} profiles have the ${kind}: name the user by another identifier`;
}

/**
 * The one user whom a selector means; undefined when nobody or more than one is left.
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
