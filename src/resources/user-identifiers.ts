import { type Identifier, MAX_EXTERNAL_ID_BYTES, toServiceId } from '../profile/identifier.ts';
import type { Database } from '../store/database.ts';
import { readProfiles, type StoredUser } from '../store/export.ts';
import { isAddress, parseUserSearch, searchUsers, type UserSearch } from '../store/profile-search.ts';
import type { NamedUntil } from '../store/refused-of-users.ts';
import { MAX_MERGED, type MergedProfile, selectMerged, selectRenamed } from '../store/timeline.ts';

/** Maximum number of identifiers by which objects of a user are looked up. */
const MAX_IDENTIFIERS = 200;

/** Maximum number of aliases, and of former external ids, among them. */
const MAX_NAMES = 25;

/** Returns the identifiers by which an object may have named the user, also before a merge or a new external id. */
export function identifiersOf(
  user: StoredUser,
  { merged, renamed }: { merged: readonly MergedProfile[]; renamed: readonly { externalId: string }[] },
): NamedUntil[] {
  const own: Identifier[] = [
    { service_id: toServiceId(user.id) },
    ...(user.external_id === null ? [] : [{ external_id: user.external_id }]),
    ...(user.email === null ? [] : [{ email: user.email }]),
    ...(user.phone === null ? [] : [{ phone: user.phone }]),
    ...(user.user_aliases ?? []).slice(0, MAX_NAMES).map((user_alias) => ({ user_alias })),
    ...renamed.slice(0, MAX_NAMES).map(({ externalId }) => ({ external_id: externalId })),
  ];
  const former = merged.flatMap(({ id, externalId, mergedAt }): NamedUntil[] => [
    { identifier: { service_id: toServiceId(id) } },
    // Another user may have the external id since.
    ...(externalId === null ? [] : [{ identifier: { external_id: externalId }, until: mergedAt }]),
  ]);
  return [...former, ...own.map((identifier) => ({ identifier }))].slice(-MAX_IDENTIFIERS);
}

/**
 * Returns the identifiers by which requests may have named the user with an identifier. If no user has it, or several
 * have it, only this identifier.
 *
 * @param given.text external id, service id, alias as `label:name`, email address or phone number
 * @param given.pii whether users are found by personal data. Otherwise only by ids that do not look like an address
 * @returns undefined if the identifier needs `pii`
 */
export async function findIdentifiers(
  { pool }: Pick<Database, 'pool'>,
  { workspaceId, text, pii }: { workspaceId: string; text: string; pii: boolean },
): Promise<NamedUntil[] | undefined> {
  if (!pii && isAddress(text)) return undefined;
  const { id, alias, email, phone } = parseUserSearch(text);
  const isExternalId = Buffer.byteLength(text) <= MAX_EXTERNAL_ID_BYTES;
  const search: UserSearch = {
    ...(id !== undefined && { id }),
    ...(isExternalId && { externalId: text }),
    ...(pii && {
      ...(alias && { alias }),
      ...(email !== undefined && { email }),
      ...(phone !== undefined && { phone }),
    }),
  };
  const given: Identifier[] = [
    ...(isExternalId ? [{ external_id: text }] : []),
    ...(id === undefined ? [] : [{ service_id: toServiceId(id) }]),
    ...(search.alias
      ? [{ user_alias: { alias_label: search.alias.label, alias_name: search.alias.name } }]
      : []),
    ...(search.email === undefined ? [] : [{ email: search.email }]),
    ...(search.phone === undefined ? [] : [{ phone: search.phone }]),
  ];
  const own = given.map((identifier) => ({ identifier }));
  const [first, second] = await searchUsers(pool, [workspaceId], { search, limit: 2 });
  if (!first || second) return own;
  const [[user], merged, renamed] = await Promise.all([
    readProfiles(pool, workspaceId, { ids: [first.id], fields: ['user_aliases'] }),
    selectMerged(pool, workspaceId, first.id),
    selectRenamed(pool, { workspaceId, profileId: first.id, limit: MAX_NAMES }),
  ]);
  return user ? [...own, ...identifiersOf(user, { merged: merged.slice(0, MAX_MERGED), renamed })] : own;
}
