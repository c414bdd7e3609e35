import { namedIdentifiers, type TrackObject } from '../../src/jobs/envelope.ts';
import {
  type Address,
  type ExternalId,
  type Identifier,
  isAddress,
  toProfileId,
  toServiceId,
} from '../../src/profile/identifier.ts';
import { findByAlias, findByDeprecatedExternalId } from '../../src/store/alternate-identifiers.ts';
import type { Connection } from '../../src/store/database.ts';
import {
  type FoundProfile,
  findByEmail,
  findByExternalId,
  findById,
  findByPhone,
  findCandidates,
  findIdsByExternalId,
  type ProfileRow,
  type SharingRow,
} from '../../src/store/identifiers.ts';
import { sendPipelined } from '../../src/store/transactions.ts';
import { ByIdentifier, ByWorkspace, type Kind, kindOf } from './by-workspace.ts';
import { lockChanged } from './lock.ts';
import { Profiles } from './profiles.ts';
import { isTrack, selectorsOf, type WorkItem } from './work-item.ts';

/** Maximum attempts to load a round; it is loaded again if a profile that it found is gone before it can be locked. */
const MAX_ATTEMPTS = 5;

/**
 * Loads the profiles that a round names, with one statement per kind of identifier. Locks, in id order, the profiles
 * that an attribute object or an identity operation may change. Also locks profiles whose subscription state is set, so
 * that their addresses do not change at the same time.
 *
 * @returns the profiles, and how many of the objects, from the first, fit into the round
 * @throws if profiles are merged or deleted faster than they can be locked; a later retry helps
 */
export async function loadProfiles(
  tx: Connection,
  items: WorkItem[],
  now: number,
): Promise<{ profiles: Profiles; count: number }> {
  const named = nameOnce(items);
  const chosen = chosenAddresses(items);
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const profiles = new Profiles(now);
    const missing = takeIn(profiles, named, await findNamed(tx, named, chosen));
    for (const row of isAny(missing) ? await findByDeprecatedExternalId(tx, ...argumentsOf(missing)) : [])
      profiles.addUnder({ external_id: row.deprecatedId }, row);
    // With more holders than were loaded, an address may mean a profile that this round touches by external id.
    if (profiles.anyCut && isAny(named.plain))
      addFound(profiles, named.plain, await findByExternalId(tx, ...argumentsOf(named.plain)));
    const count = await lockChanged(tx, items, profiles);
    if (count !== undefined) return { profiles, count };
  }
  throw new Error('profiles were merged or deleted while they were being locked');
}

/** Identifiers of a round, by kind. */
interface AllNamed extends Record<Kind, Named> {
  /** External ids that only events and purchases name: only the profile id is needed for their users. */
  plain: Named;
}

interface Named {
  workspaceIds: string[];
  values: string[];
  /** Alias names; `values` has the alias labels. */
  names: string[];
}

const emptyNamed = (): Named => ({ workspaceIds: [], values: [], names: [] });

/** Collects the identifiers of a round, each once. */
function nameOnce(items: WorkItem[]): AllNamed {
  const named = {
    external_id: emptyNamed(),
    user_alias: emptyNamed(),
    service_id: emptyNamed(),
    email: emptyNamed(),
    phone: emptyNamed(),
    plain: emptyNamed(),
  };
  const seen = new ByIdentifier<true>();
  const activity: WorkItem<TrackObject>[] = [];
  const name = (workspaceId: string, identifier: Identifier) => {
    if (seen.has(workspaceId, identifier)) return;
    seen.set(workspaceId, identifier, true);
    const { workspaceIds, values, names } = named[kindOf(identifier)];
    workspaceIds.push(workspaceId);
    values.push(addressOf(identifier));
    if ('user_alias' in identifier) names.push(identifier.user_alias.alias_name);
  };
  for (const item of items) {
    const { workspaceId, object } = item;
    if (!isTrack(item)) {
      for (const identifier of namedIdentifiers(object)) {
        // An identity operation chooses from all holders of an address; a state belongs to the address itself.
        if (!isAddress(identifier)) name(workspaceId, identifier);
      }
    } else if (item.object.kind !== 'attributes' && 'external_id' in item.object.identifier)
      activity.push(item);
    else if (item.object.identifier) name(workspaceId, item.object.identifier);
  }
  const { workspaceIds, values } = named.plain;
  for (const { workspaceId, object } of activity) {
    const identifier = object.identifier as ExternalId;
    if (seen.has(workspaceId, identifier)) continue;
    seen.set(workspaceId, identifier, true);
    workspaceIds.push(workspaceId);
    values.push(identifier.external_id);
  }
  return named;
}

function addressOf(identifier: Identifier): string {
  if ('external_id' in identifier) return identifier.external_id;
  if ('user_alias' in identifier) return identifier.user_alias.alias_label;
  if ('service_id' in identifier) return toProfileId(identifier.service_id);
  return 'email' in identifier ? identifier.email : identifier.phone;
}

/** Finds the profiles that a round names, with one statement per kind of identifier that occurs. */
async function findNamed(tx: Connection, named: AllNamed, chosen: Chosen) {
  const { external_id, plain, user_alias, service_id, email, phone } = named;
  const [external, ids, aliased, ofServices, withEmail, withPhone, byEmail, byPhone] = await sendPipelined(
    tx,
    [
      () => isAny(external_id) && findByExternalId(tx, ...argumentsOf(external_id)),
      () => isAny(plain) && findIdsByExternalId(tx, ...argumentsOf(plain)),
      () => isAny(user_alias) && findByAlias(tx, { ...user_alias, labels: user_alias.values }),
      () => isAny(service_id) && findById(tx, ...argumentsOf(service_id)),
      () => isAny(email) && findByEmail(tx, ...argumentsOf(email)),
      () => isAny(phone) && findByPhone(tx, ...argumentsOf(phone)),
      () => isAny(chosen.email) && findChosen(tx, 'email', chosen.email),
      () => isAny(chosen.phone) && findChosen(tx, 'phone', chosen.phone),
    ],
  );
  return {
    ...{ external: external || [], ids: ids || [], aliased: aliased || [], ofServices: ofServices || [] },
    ...{ withEmail: withEmail || [], withPhone: withPhone || [] },
    chosen: [...(byEmail || []), ...(byPhone || [])],
  };
}

type FoundProfiles = Awaited<ReturnType<typeof findNamed>>;

/** Adds the found profiles. @returns external ids without a profile, which may have been renamed */
function takeIn(profiles: Profiles, named: AllNamed, loaded: FoundProfiles): Missing {
  const missing = addFound(profiles, named.external_id, loaded.external);
  const missingPlain = addPlain(profiles, named.plain, loaded.ids);
  for (const row of loaded.aliased) {
    const user_alias = { alias_label: row.aliasLabel, alias_name: row.aliasName };
    profiles.addUnder({ user_alias }, row);
  }
  for (const row of loaded.ofServices) profiles.addUnder({ service_id: toServiceId(row.id) }, row);
  addSharing(profiles, loaded.withEmail, emailOf);
  addSharing(profiles, loaded.withPhone, phoneOf);
  for (const { workspaceId, address, rows } of loaded.chosen)
    profiles.addCandidates(workspaceId, address, rows);
  return {
    workspaceIds: [...missing.workspaceIds, ...missingPlain.workspaceIds],
    values: [...missing.values, ...missingPlain.values],
  };
}

/** External ids without a profile. */
type Missing = Omit<Named, 'names'>;

const isAny = ({ values }: Missing): boolean => values.length > 0;

const argumentsOf = ({ workspaceIds, values }: Missing) => [workspaceIds, values] as const;

function addName({ workspaceIds, values }: Missing, workspaceId: string, value: string): void {
  workspaceIds.push(workspaceId);
  values.push(value);
}

/** Adds profiles that were found by external id. @returns the external ids without a profile */
function addFound(profiles: Profiles, { workspaceIds, values }: Named, rows: FoundProfile[]): Missing {
  for (const { place: ordinal, id, email, phone, phoneValid, isLittle } of rows) {
    const workspaceId = workspaceIds[ordinal - 1]!;
    const externalId = values[ordinal - 1]!;
    const row = { workspaceId, id, externalId, email, phone, phoneValid };
    profiles.addUnder({ external_id: externalId }, row).knowLittle(isLittle);
  }
  const missing: Missing = { workspaceIds: [], values: [] };
  if (rows.length === values.length) return missing;
  const foundRows = new Set<number>();
  for (const { place: ordinal } of rows) foundRows.add(ordinal);
  for (let index = 0; index < values.length; index++)
    if (!foundRows.has(index + 1)) addName(missing, workspaceIds[index]!, values[index]!);
  return missing;
}

/** Adds profiles of which only the id was read. @param ids one per external id; null without a profile */
function addPlain(profiles: Profiles, { workspaceIds, values }: Named, ids: (string | null)[]): Missing {
  const missing: Missing = { workspaceIds: [], values: [] };
  for (let index = 0; index < ids.length; index++) {
    const id = ids[index];
    if (id == null) addName(missing, workspaceIds[index]!, values[index]!);
    else profiles.addPlain(workspaceIds[index]!, values[index]!, id);
  }
  return missing;
}

const emailOf = ({ email }: ProfileRow): Address => ({ email: email! });
const phoneOf = ({ phone }: ProfileRow): Address => ({ phone: phone! });

/** Adds the holders of addresses, grouped by address. */
function addSharing(
  profiles: Profiles,
  rows: SharingRow[],
  addressOfRow: (row: ProfileRow) => Address,
): void {
  const lists = new ByIdentifier<SharingRow[]>();
  for (const row of rows) {
    const list = lists.get(row.workspaceId, addressOfRow(row));
    if (list) list.push(row);
    else lists.set(row.workspaceId, addressOfRow(row), [row]);
  }
  for (const list of lists.values()) profiles.addSharing(addressOfRow(list[0]!), list);
}

/** Addresses for which the `prioritization` of an identity operation chooses a holder, each once. */
type Chosen = Pick<AllNamed, 'email' | 'phone'>;

function chosenAddresses(items: WorkItem[]): Chosen {
  const chosen = { email: emptyNamed(), phone: emptyNamed() };
  const seen = new ByIdentifier<true>();
  for (const { workspaceId, object } of items) {
    for (const { identifier: address } of selectorsOf(object)) {
      if (!isAddress(address) || seen.has(workspaceId, address)) continue;
      seen.set(workspaceId, address, true);
      addName('email' in address ? chosen.email : chosen.phone, workspaceId, addressOf(address));
    }
  }
  return chosen;
}

/** Finds all holders of each address; an address without holders has an empty list. */
async function findChosen(tx: Connection, column: 'email' | 'phone', { workspaceIds, values }: Named) {
  const rows = new ByWorkspace<ProfileRow[]>();
  for (const row of await findCandidates(tx, column, { workspaceIds, addresses: values })) {
    const others = rows.get(row.workspaceId, row.address);
    if (others) others.push(row);
    else rows.set(row.workspaceId, row.address, [row]);
  }
  return values.map((value, index) => {
    const workspaceId = workspaceIds[index]!;
    const address: Address = column === 'email' ? { email: value } : { phone: value };
    return { workspaceId, address, rows: rows.get(workspaceId, value) ?? [] };
  });
}
