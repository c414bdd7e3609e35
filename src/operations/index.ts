import type { Operation } from './operation.ts';
import { discoveryOperations } from './scim/discovery.ts';
import { scimUsersCreate } from './scim.users.create.ts';
import { scimUsersDelete } from './scim.users.delete.ts';
import { scimUsersGet } from './scim.users.get.ts';
import { scimUsersList } from './scim.users.list.ts';
import { scimUsersPatch } from './scim.users.patch.ts';
import { scimUsersReplace } from './scim.users.replace.ts';
import { usersAliasNew } from './users.alias.new.ts';
import { usersAliasUpdate } from './users.alias.update.ts';
import { usersDelete } from './users.delete.ts';
import { usersExportIds } from './users.export.ids.ts';
import { usersExternalIdsRemove } from './users.external_ids.remove.ts';
import { usersExternalIdsRename } from './users.external_ids.rename.ts';
import { usersIdentify } from './users.identify.ts';
import { usersMerge } from './users.merge.ts';
import { usersTrack } from './users.track.ts';

/**
 * Every endpoint, in the order of the specification.
 *
 * @param serviceIdField wire name of the service id
 */
export function allOperations(serviceIdField: string): Operation[] {
  return [
    usersTrack(serviceIdField),
    usersMerge(),
    usersDelete(serviceIdField),
    usersAliasNew(),
    usersAliasUpdate(),
    usersIdentify(),
    usersExternalIdsRename(),
    usersExternalIdsRemove(),
    usersExportIds(serviceIdField),
    scimUsersGet(),
    scimUsersList(),
    scimUsersCreate(),
    scimUsersReplace(),
    scimUsersPatch(),
    scimUsersDelete(),
    ...discoveryOperations(),
  ];
}
