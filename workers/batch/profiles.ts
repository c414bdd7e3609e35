import type { UserSelector } from '../../src/jobs/payloads.ts';
import {
  type Address,
  type Identifier,
  isAddress,
  newProfileId,
  type Prioritization,
  type UserAlias,
} from '../../src/profile/identifier.ts';
import { identifierKey } from '../../src/queue/lanes.ts';
import type { NewAlias } from '../../src/store/aliases.ts';
import { MAX_HOLDERS, type ProfileRow, type SharingRow } from '../../src/store/identifiers.ts';
import type { CustomAttributes } from './fold/custom-attributes.ts';
import { HeldProfile, Sharing } from './held-profile.ts';
import { RELOAD, scoped } from './work-item.ts';

/** What a look-up in memory can end with; undefined: nobody. */
type Found = HeldProfile | undefined | typeof RELOAD;

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
  /** Addresses by which a refused object named its user. */
  readonly #pinned = new Set<string>();
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

  /** Takes in those who share an address, best match first: all of them, or the first of many. */
  addSharing(identifier: string, rows: SharingRow[]): void {
    const profiles = rows.map((row) => this.add(row));
    const { workspaceId, holders } = rows[0]!;
    this.#sharing.rank(scoped(workspaceId, identifier), profiles, holders);
  }

  /** Takes in everyone who has an address, the one updated longest ago first. */
  addCandidates(workspaceId: string, identifier: string, rows: ProfileRow[]): void {
    const profiles = rows.map((row) => this.add(row));
    this.#sharing.rankAll(scoped(workspaceId, identifier), profiles);
  }

  /** Who an identifier means now. */
  find(workspaceId: string, identifier: Identifier): Found {
    const key = scoped(workspaceId, identifierKey(identifier));
    if (this.#sealed.has(key)) return RELOAD;
    if (isAddress(identifier)) return this.#findSharing(key);
    const profile = this.#byIdentifier.get(key);
    return profile?.sealed ? RELOAD : profile;
  }

  /** Everyone who has an address now, the one updated longest ago first. */
  candidates(workspaceId: string, address: Identifier): HeldProfile[] | typeof RELOAD {
    const key = scoped(workspaceId, identifierKey(address));
    if (this.#sealed.has(key) || this.#hasSealedHolder(key)) return RELOAD;
    return this.#sharing.candidates(key) ?? RELOAD;
  }

  /** Whether more profiles have the address than can be told apart: it names none of them. */
  isCrowded(workspaceId: string, address: Address): boolean {
    return this.#sharing.isCrowded(scoped(workspaceId, identifierKey(address)));
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

  /**
   * From now on nobody gets or loses the address before the round is written: the dead letter of an object that it named
   * says whom that object meant, and is written with the round.
   */
  pin(workspaceId: string, address: Address): void {
    this.#pinned.add(scoped(workspaceId, identifierKey(address)));
  }

  isPinned(workspaceId: string, address: Address): boolean {
    return this.#pinned.size > 0 && this.#pinned.has(scoped(workspaceId, identifierKey(address)));
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
  create(workspaceId: string, identifier: Identifier | undefined, custom?: CustomAttributes): HeldProfile {
    const id = newProfileId(this.#now);
    const externalId = identifier && 'external_id' in identifier ? identifier.external_id : null;
    const row: ProfileRow = { workspaceId, id, externalId, email: null, phone: null, phoneValid: null };
    const profile = new HeldProfile(row, true, custom);
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
    if (this.#hasSealedHolder(key)) return RELOAD;
    return this.#sharing.best(key) ?? (this.#sharing.isCut(key) ? RELOAD : undefined);
  }

  #hasSealedHolder(key: string): boolean {
    if (!this.#anySealed) return false;
    for (const profile of this.#sharing.holders(key)) if (profile.sealed) return true;
    return false;
  }
}

/** Narrows those who are left, the one updated longest ago first. */
const narrow: Record<Prioritization, (left: HeldProfile[]) => HeldProfile[]> = {
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
