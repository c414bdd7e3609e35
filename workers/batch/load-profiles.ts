import { namedIdentifiers, type TrackObject } from '../../src/jobs/envelope.ts';
import {
  type Address,
  type Identifier,
  isAddress,
  toProfileId,
  toServiceId,
} from '../../src/profile/identifier.ts';
import { findAliasLabels, findByAlias } from '../../src/store/aliases.ts';
import type { Connection } from '../../src/store/database.ts';
import { countDeprecated, findByDeprecatedExternalId } from '../../src/store/external-ids.ts';
import {
  findByEmail,
  findByExternalId,
  findById,
  findByPhone,
  findIdsByExternalId,
  type ProfileRow,
  type SharingRow,
} from '../../src/store/identifiers.ts';
import { sendTogether } from '../../src/store/send-together.ts';
import { ByIdentifier, type Kind, kindOf } from './by-identifier.ts';
import { candidateLoads } from './load-candidates.ts';
import type { LoadedProfile } from './loaded-profile.ts';
import { lockChanged } from './lock.ts';
import { Profiles } from './profiles.ts';
import { isTrack, type WorkItem } from './work-item.ts';

/** Times that a round is loaded again because somebody whom it found was gone when it came to lock them. */
const MAX_LOOKS = 5;

/**
 * Loads everyone whom a round names, one statement per kind of identifier. Locks those whom an attribute object or an
 * identity operation may change, in id order. Also those of whom a state is set: nobody gives them another address
 * meanwhile.
 *
 * @returns beside them, how many of the objects a round may be about
 * @throws when they are merged or deleted faster than they can be locked; trying again later helps
 */
export async function loadProfiles(
  tx: Connection,
  items: WorkItem[],
  now: number,
): Promise<{ profiles: Profiles; count: number }> {
  const named = nameOnce(items);
  for (let look = 0; look < MAX_LOOKS; look++) {
    const profiles = new Profiles(now);
    await sendTogether(tx, [
      () => loadExternalIds(tx, profiles, named.external_id),
      () => loadPlain(tx, profiles, named.plain),
      () => loadAliases(tx, profiles, named.user_alias),
      () => loadServiceIds(tx, profiles, named.service_id),
      () => loadSharing(tx, profiles, { named: named.email, ...byEmail }),
      () => loadSharing(tx, profiles, { named: named.phone, ...byPhone }),
      ...candidateLoads(tx, profiles, items),
    ]);
    // Among more than are looked at, one who is touched here may be the one whom the address means.
    if (profiles.anyCut) await loadExternalIds(tx, profiles, named.plain);
    const count = await lockChanged(tx, items, profiles);
    if (count !== undefined) return { profiles, count };
  }
  throw new Error('profiles were merged or deleted while they were being locked');
}

/** The identifiers of a round, by their kinds. */
interface AllNamed extends Record<Kind, Named> {
  /** External ids that only events and purchases name: of their users nothing but the id is needed. */
  plain: Named;
}

interface Named {
  workspaceIds: string[];
  values: string[];
  /** The second half of an alias. */
  names: string[];
}

/** The identifiers of a round, each once. */
function nameOnce(items: WorkItem[]): AllNamed {
  const empty = (): Named => ({ workspaceIds: [], values: [], names: [] });
  const named = {
    external_id: empty(),
    user_alias: empty(),
    service_id: empty(),
    email: empty(),
    phone: empty(),
    plain: empty(),
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
    const identifier = object.identifier as { external_id: string };
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

async function loadExternalIds(
  tx: Connection,
  profiles: Profiles,
  { workspaceIds, values }: Named,
): Promise<void> {
  if (values.length === 0) return;
  const found = await findByExternalId(tx, workspaceIds, values);
  for (const { place, id, email, phone, phoneValid, isLittle } of found) {
    const workspaceId = workspaceIds[place - 1]!;
    const externalId = values[place - 1]!;
    const row = { workspaceId, id, externalId, email, phone, phoneValid };
    profiles.addUnder({ external_id: externalId }, row).isLittle = isLittle;
  }
  if (found.length === values.length) return;
  const places = new Set<number>();
  for (const { place } of found) places.add(place);
  const missing = nobody();
  for (let index = 0; index < values.length; index++)
    if (!places.has(index + 1)) addMissing(missing, workspaceIds[index]!, values[index]!);
  await loadRenamed(tx, profiles, missing);
}

async function loadPlain(tx: Connection, profiles: Profiles, { workspaceIds, values }: Named): Promise<void> {
  if (values.length === 0) return;
  const ids = await findIdsByExternalId(tx, workspaceIds, values);
  const missing = nobody();
  for (let index = 0; index < ids.length; index++) {
    const id = ids[index];
    if (id == null) addMissing(missing, workspaceIds[index]!, values[index]!);
    else profiles.addPlain(workspaceIds[index]!, values[index]!, id);
  }
  if (missing.values.length > 0) await loadRenamed(tx, profiles, missing);
}

/** External ids that nobody goes by. */
type Missing = Omit<Named, 'names'>;

const nobody = (): Missing => ({ workspaceIds: [], values: [] });

function addMissing({ workspaceIds, values }: Missing, workspaceId: string, value: string): void {
  workspaceIds.push(workspaceId);
  values.push(value);
}

/** Those whom nobody goes by now may have been renamed. */
async function loadRenamed(
  tx: Connection,
  profiles: Profiles,
  { workspaceIds, values }: Missing,
): Promise<void> {
  const renamed = await findByDeprecatedExternalId(tx, workspaceIds, values);
  for (const row of renamed) profiles.addUnder({ external_id: row.deprecatedId }, row);
}

async function loadAliases(
  tx: Connection,
  profiles: Profiles,
  { workspaceIds, values, names }: Named,
): Promise<void> {
  if (values.length === 0) return;
  for (const row of await findByAlias(tx, { workspaceIds, labels: values, names })) {
    const user_alias = { alias_label: row.aliasLabel, alias_name: row.aliasName };
    profiles.addUnder({ user_alias }, row);
  }
}

async function loadServiceIds(
  tx: Connection,
  profiles: Profiles,
  { workspaceIds, values }: Named,
): Promise<void> {
  if (values.length === 0) return;
  for (const row of await findById(tx, workspaceIds, values)) {
    profiles.addUnder({ service_id: toServiceId(row.id) }, row);
  }
}

/** How those who share an address are found, and which it is. */
interface ByAddress {
  find: typeof findByEmail;
  addressOfRow(row: ProfileRow): Address;
}

const byEmail: ByAddress = { find: findByEmail, addressOfRow: ({ email }) => ({ email: email! }) };
const byPhone: ByAddress = { find: findByPhone, addressOfRow: ({ phone }) => ({ phone: phone! }) };

async function loadSharing(
  tx: Connection,
  profiles: Profiles,
  { named: { workspaceIds, values }, find, addressOfRow }: ByAddress & { named: Named },
): Promise<void> {
  if (values.length === 0) return;
  const lists = new ByIdentifier<SharingRow[]>();
  for (const row of await find(tx, workspaceIds, values)) {
    const list = lists.get(row.workspaceId, addressOfRow(row));
    if (list) list.push(row);
    else lists.set(row.workspaceId, addressOfRow(row), [row]);
  }
  for (const rows of lists.values()) profiles.addSharing(addressOfRow(rows[0]!), rows);
}

/** Looks up under which labels the profiles have aliases that an operation may give another one. */
export async function loadLabels(tx: Connection, items: WorkItem[], profiles: Profiles): Promise<void> {
  const wanted = new Set<LoadedProfile>();
  for (const { workspaceId, object } of items) {
    if (object.kind !== 'alias_new') continue;
    const { external_id } = object;
    if (external_id === undefined) continue;
    for (const profile of profiles.reachable(workspaceId, { external_id })) wanted.add(profile);
  }
  if (wanted.size === 0) return;
  for (const profile of wanted) profile.labels ??= new Set();
  const keys = [...wanted].map(({ workspaceId, id }) => ({ workspace_id: workspaceId, id }));
  for (const { workspaceId, id, label } of await findAliasLabels(tx, keys)) {
    profiles.get(workspaceId, id)!.labels!.add(label);
  }
}

/** Looks up how many external ids lead to the profiles that an operation may give another one. */
export async function loadDeprecated(tx: Connection, items: WorkItem[], profiles: Profiles): Promise<void> {
  const wanted = new Set<LoadedProfile>();
  for (const { workspaceId, object } of items) {
    if (object.kind !== 'external_id_rename') continue;
    const external_id = object.current_external_id;
    for (const profile of profiles.reachable(workspaceId, { external_id })) wanted.add(profile);
  }
  if (wanted.size === 0) return;
  const keys = [...wanted].map(({ workspaceId, id }) => ({ workspace_id: workspaceId, id }));
  for (const { workspaceId, id, number } of await countDeprecated(tx, keys)) {
    profiles.get(workspaceId, id)!.deprecated = number;
  }
}
