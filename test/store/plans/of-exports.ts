import { NIL_UUID } from '../../../src/platform/ids.ts';
import { readDefinition } from '../../../src/profile/segment.ts';
import {
  estimateRows,
  findOwners,
  followMerges,
  readActivity,
  readEmailStates,
  readGroupStates,
} from '../../../src/store/bulk-export.ts';
import type { Asking } from './asking.ts';

/** Statements that page through rows for `penstock export`. */
export const ofExports: Asking = (store, { workspaceId, users, group }) => {
  const ids = users.map(({ id }) => id);
  const after = { profileId: ids[0]!, id: NIL_UUID };
  const part = {
    workspaceId,
    after,
    since: NIL_UUID,
    sinceMonth: NIL_UUID,
    from: null,
    until: null,
    limit: 500,
  };
  const definition = readDefinition({
    any: [{ event: 'event2' }, { attribute: 'email', equals: 'a@x.com' }],
  });
  const state = { kind: 'email' as const, subject: users[0]!.email, groupId: group };
  return [
    () => readActivity(store, 'events', part),
    () => readActivity(store, 'purchases', part),
    () => followMerges(store, workspaceId, ids),
    () => findOwners(store, workspaceId, { ids, definition: { all: [] } }),
    () => findOwners(store, workspaceId, { ids, definition }),
    () => readGroupStates(store, workspaceId, { after: state, limit: 2000 }),
    () => readEmailStates(store, workspaceId, { after: users[0]!.email, limit: 2000 }),
    () => estimateRows(store, workspaceId, { table: 'profiles', after: NIL_UUID }),
  ];
};
