import { readDefinition } from '../../../src/profile/segment.ts';
import { readActivity } from '../../../src/store/export-activity.ts';
import { findKept, findOwners } from '../../../src/store/export-owners.ts';
import { readEmailStates, readGroupStates } from '../../../src/store/export-states.ts';
import { estimateRows } from '../../../src/store/row-estimates.ts';
import type { Asking } from './asking.ts';

const NIL = '00000000-0000-0000-0000-000000000000';

/** What `penstock export` walks. */
export const ofExports: Asking = (store, { workspaceId, users, group }) => {
  const ids = users.map(({ id }) => id);
  const after = { profileId: ids[0]!, id: NIL };
  const part = { workspaceId, after, since: NIL, sinceMonth: NIL, from: null, until: null, limit: 500 };
  const definition = readDefinition({
    any: [{ event: 'event2' }, { attribute: 'email', equals: 'a@x.com' }],
  });
  const state = { kind: 'email' as const, subject: users[0]!.email, groupId: group };
  return [
    () => readActivity(store, 'events', part),
    () => readActivity(store, 'purchases', part),
    () => findKept(store, workspaceId, ids),
    () => findOwners(store, workspaceId, { ids, definition: { all: [] } }),
    () => findOwners(store, workspaceId, { ids, definition }),
    () => readGroupStates(store, workspaceId, { after: state, limit: 2000 }),
    () => readEmailStates(store, workspaceId, { after: users[0]!.email, limit: 2000 }),
    () => estimateRows(store, workspaceId, { table: 'profiles', after: NIL }),
  ];
};
