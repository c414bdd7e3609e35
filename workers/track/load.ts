import { namedIdentifiers } from '../../src/jobs/named-identifiers.ts';
import { type Identifier, isAddress } from '../../src/profile/identifier.ts';
import { toProfileId, toServiceId } from '../../src/profile/service-id.ts';
import { identifierKey } from '../../src/queue/lanes.ts';
import { type Connection, sendTogether } from '../../src/store/database.ts';
import { findByAlias } from '../../src/store/profiles/find-by-alias.ts';
import { findByDeprecatedExternalId } from '../../src/store/profiles/find-by-deprecated-external-id.ts';
import { findByEmail } from '../../src/store/profiles/find-by-email.ts';
import { findByExternalId } from '../../src/store/profiles/find-by-external-id.ts';
import { findById } from '../../src/store/profiles/find-by-id.ts';
import { findByPhone } from '../../src/store/profiles/find-by-phone.ts';
import { lockProfiles } from '../../src/store/profiles/lock-profiles.ts';
import type { ProfileRow } from '../../src/store/profiles/profile-row.ts';
import { MAX_SHARING } from '../../src/store/profiles/sharing-statement.ts';
import { candidateLoads } from './load-candidates.ts';
import { Profiles } from './profiles.ts';
import { isSubscription, isTrack, scoped, type Work } from './work.ts';

/** Times that a batch looks again because somebody whom it found was gone when it came to lock them. */
const MAX_LOOKS = 5;

/**
 * Loads everyone whom a batch names, one statement per kind of identifier, and locks those whom an attribute
 * object or an identity operation may change, in id order, and those of whom a state is set: nobody gives them
 * another address meanwhile.
 *
 * @throws when they are merged or deleted faster than they can be locked; trying again later helps
 */
export async function loadProfiles(tx: Connection, works: Work[], now: number): Promise<Profiles> {
  const named = nameOnce(works);
  for (let look = 0; look < MAX_LOOKS; look++) {
    const profiles = new Profiles(now);
    await sendTogether(tx, [
      () => loadExternalIds(tx, profiles, named.external_id),
      () => loadAliases(tx, profiles, named.user_alias),
      () => loadServiceIds(tx, profiles, named.service_id),
      () => loadSharing(tx, profiles, named.email, findByEmail, (row) => ({ email: row.email! })),
      () => loadSharing(tx, profiles, named.phone, findByPhone, (row) => ({ phone: row.phone! })),
      ...candidateLoads(tx, profiles, works),
    ]);
    if (await lockChanged(tx, profiles, works)) return profiles;
  }
  throw new Error('profiles were merged or deleted while they were being locked');
}

interface Named {
  workspaceIds: string[];
  values: string[];
  /** The second half of an alias. */
  names: string[];
}

type Kind = 'external_id' | 'user_alias' | 'service_id' | 'email' | 'phone';

/** The identifiers of a batch, each once. */
function nameOnce(works: Work[]): Record<Kind, Named> {
  const empty = (): Named => ({ workspaceIds: [], values: [], names: [] });
  const named = {
    external_id: empty(),
    user_alias: empty(),
    service_id: empty(),
    email: empty(),
    phone: empty(),
  };
  const seen = new Set<string>();
  const name = (workspaceId: string, identifier: Identifier) => {
    const key = scoped(workspaceId, identifierKey(identifier));
    if (seen.has(key)) return;
    seen.add(key);
    const kind = Object.keys(identifier)[0] as Kind;
    named[kind].workspaceIds.push(workspaceId);
    named[kind].values.push(addressOf(identifier));
    if ('user_alias' in identifier) named[kind].names.push(identifier.user_alias.alias_name);
  };
  for (const work of works) {
    const { workspaceId, object } = work;
    if (!isTrack(work)) {
      for (const identifier of namedIdentifiers(object)) {
        // An identity operation chooses from all holders of an address; a state belongs to the address itself.
        if (!isAddress(identifier)) name(workspaceId, identifier);
      }
    } else if (work.object.identifier) name(workspaceId, work.object.identifier);
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
  for (const { place, id, email, phone, phoneValid } of found) {
    const workspaceId = workspaceIds[place - 1]!;
    const externalId = values[place - 1]!;
    const row = { workspaceId, id, externalId, email, phone, phoneValid };
    profiles.addUnder(identifierKey({ external_id: externalId }), row);
  }
  if (found.length === values.length) return;
  const places = new Set(found.map(({ place }) => place));
  const isMissing = (_: string, index: number) => !places.has(index + 1);
  const renamed = await findByDeprecatedExternalId(
    tx,
    workspaceIds.filter(isMissing),
    values.filter(isMissing),
  );
  for (const row of renamed) profiles.addUnder(identifierKey({ external_id: row.deprecatedId }), row);
}

async function loadAliases(
  tx: Connection,
  profiles: Profiles,
  { workspaceIds, values, names }: Named,
): Promise<void> {
  if (values.length === 0) return;
  for (const row of await findByAlias(tx, workspaceIds, values, names)) {
    const user_alias = { alias_label: row.aliasLabel, alias_name: row.aliasName };
    profiles.addUnder(identifierKey({ user_alias }), row);
  }
}

async function loadServiceIds(
  tx: Connection,
  profiles: Profiles,
  { workspaceIds, values }: Named,
): Promise<void> {
  if (values.length === 0) return;
  for (const row of await findById(tx, workspaceIds, values)) {
    profiles.addUnder(identifierKey({ service_id: toServiceId(row.id) }), row);
  }
}

async function loadSharing(
  tx: Connection,
  profiles: Profiles,
  { workspaceIds, values }: Named,
  find: typeof findByEmail,
  identifier: (row: ProfileRow) => Identifier,
): Promise<void> {
  if (values.length === 0) return;
  const lists = new Map<string, ProfileRow[]>();
  for (const row of await find(tx, workspaceIds, values)) {
    const key = scoped(row.workspaceId, identifierKey(identifier(row)));
    const list = lists.get(key);
    if (list) list.push(row);
    else lists.set(key, [row]);
  }
  for (const rows of lists.values())
    profiles.addSharing(identifierKey(identifier(rows[0]!)), rows, rows.length === MAX_SHARING);
}

/**
 * Locks whom the attribute objects and identity operations name, and reads the custom attributes that changes
 * start from.
 *
 * @returns false when one of them is gone: merged into somebody or deleted by another lane since it was found
 */
async function lockChanged(tx: Connection, profiles: Profiles, works: Work[]): Promise<boolean> {
  const wanted = new Map<string, { workspace_id: string; id: string; keys: string[] }>();
  const want = (workspaceId: string, identifier: Identifier, change: object | undefined) => {
    for (const profile of profiles.reachable(workspaceId, identifier)) {
      const key = scoped(workspaceId, profile.id);
      let entry = wanted.get(key);
      if (!entry) {
        entry = { workspace_id: workspaceId, id: profile.id, keys: [] };
        wanted.set(key, entry);
      }
      if (change) entry.keys.push(...Object.keys(change));
    }
  };
  for (const work of works) {
    const { workspaceId, object } = work;
    if (!isTrack(work)) {
      for (const identifier of namedIdentifiers(object)) {
        if (!(isSubscription(work) && isAddress(identifier))) want(workspaceId, identifier, undefined);
      }
    } else if (work.object.kind === 'attributes' && work.object.identifier) {
      want(workspaceId, work.object.identifier, work.object.change);
    }
  }
  if (wanted.size === 0) return true;
  const locked = await lockProfiles(tx, [...wanted.values()]);
  for (const row of locked) {
    const profile = profiles.get(row.workspaceId, row.id)!;
    profiles.refresh(profile, row);
    profile.hold(wanted.get(scoped(row.workspaceId, row.id))!.keys, row.custom ?? {});
  }
  return locked.length === wanted.size;
}
