import { toProfileId, toServiceId } from '../../profile/identifier.ts';
import type { StoredUser } from '../../store/export.ts';
import { findKeptProfile } from '../../store/preference-centers.ts';
import { isAddress, searchUsers } from '../../store/profile-search.ts';
import type { Workspace } from '../access.ts';
import { chosenWorkspace, PageError, type PageServices, type Visit } from '../console.ts';

/** Maximum number of workspaces in which a merged user is searched. */
const MAX_WORKSPACES = 25;

const SERVICE_ID = /^[0-9a-f]{24}$/;

/** A user and the workspace in which the viewer may see this user. */
export interface Seen {
  workspace: Workspace;
  /** The profile's UUID. */
  id: string;
  /** Whether the viewer may see personal data. */
  pii: boolean;
}

/**
 * Finds the user of the request. If the user was merged, returns the user that was kept.
 * @throws {PageError} if no workspace of the viewer contains the user
 */
export async function findUser({
  services,
  viewer,
  workspaces,
  findWorkspace,
  params,
  query,
}: Visit<PageServices>): Promise<Seen> {
  const nobody = new PageError(404, 'User not found in your workspaces. Deleted users cannot be restored.');
  const given = params.service_id ?? '';
  if (!SERVICE_ID.test(given)) throw nobody;
  const { pool } = services.database;
  const id = toProfileId(given);
  const chosen = await chosenWorkspace({ findWorkspace, query });
  const among = chosen ? [chosen] : workspaces;
  const [match] = await searchUsers(
    pool,
    among.map((one) => one.id),
    { search: { id }, limit: 1 },
  );
  let workspace = among.find((one) => one.id === match?.workspaceId);
  let present = match?.id;
  // A missing user may have been merged. Few viewers have several workspaces to search.
  for (const one of workspace ? [] : among.slice(0, MAX_WORKSPACES)) {
    present = await findKeptProfile(pool, one.id, id);
    workspace = present === undefined ? undefined : one;
    if (workspace) break;
  }
  if (!workspace || present === undefined) throw nobody;
  return { workspace, id: present, pii: viewer.can('pii', workspace.id) };
}

/** Returns a title for a user: the name, email address, external id or service id. */
export function headingOf(
  user: Pick<StoredUser, 'id' | 'first_name' | 'last_name' | 'email' | 'external_id'>,
  pii: boolean,
): string {
  const name = [user.first_name, user.last_name].filter(Boolean).join(' ');
  if (pii && name !== '') return name;
  if (pii && user.email !== null) return user.email;
  const { external_id: externalId } = user;
  return externalId === null || (!pii && isAddress(externalId)) ? toServiceId(user.id) : externalId;
}
