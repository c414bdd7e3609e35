import { newId } from '../../../src/platform/ids.ts';
import {
  clearSpamMarks,
  findCrowdedEmails,
  setEmailStates,
  setHardBounces,
  takeEmailStates,
} from '../../../src/store/email-addresses.ts';
import { findHeldEmails, listEmails, readAddressStates } from '../../../src/store/email-listing.ts';
import { readHistory, recordStateChanges } from '../../../src/store/subscription-history.ts';
import {
  dropSubscriptionStates,
  findGroups,
  findStates,
  readProfileStates,
  setSubscriptionStates,
  takeSubscriptionStates,
} from '../../../src/store/subscription-states.ts';
import type { Asking } from './asking.ts';

export const ofSubscriptions: Asking = (store, { workspaceId, users, group }) => {
  const now = new Date().toISOString();
  const workspace = { workspace_id: workspaceId };
  const ids = users.map(({ id }) => id);
  const emails = users.map(({ email }) => email);
  const [{ id, email, phone }] = users as [(typeof users)[0]];
  const said = { ...workspace, email, state: 'subscribed' };
  const groupState = {
    ...workspace,
    ...{ subject_kind: 'email' as const, subject: email, subscription_group_id: group, state: 'subscribed' },
  };
  const page = { from: '-infinity', to: 'infinity', limit: 100, offset: 0 };
  return [
    () => findGroups(store, [group]),
    () =>
      findStates(store, [
        { workspaceId, kind: 'phone', name: phone },
        { workspaceId, kind: 'profile', name: id },
      ]),
    () => findHeldEmails(store, { workspaceIds: users.map(() => workspaceId), emails, except: [] }),
    () => readAddressStates(store, { workspaceId, groupId: group, kind: 'email' }, emails),
    () => readProfileStates(store, { workspaceId, groupId: group, kind: 'email' }, ids),
    () =>
      readHistory(store, workspaceId, {
        subjects: [
          { kind: 'profile', subject: id },
          { kind: 'email', subject: email },
        ],
        limit: 100,
      }),
    ...(['unsubscribed', 'hard_bounced'] as const).flatMap((list) =>
      (['asc', 'desc'] as const).flatMap((direction) => [
        () => listEmails(store, workspaceId, { ...page, list, direction }),
        () => listEmails(store, workspaceId, { ...page, list, direction, email }),
      ]),
    ),
    () => setEmailStates(store, [said], now),
    () => takeEmailStates(store, [said], now),
    () => setHardBounces(store, [{ ...workspace, email, hard_bounced: true }], now),
    () => findCrowdedEmails(store, [workspaceId], [email]),
    () =>
      clearSpamMarks(
        store,
        Array.from({ length: 100 }, (_, n) => ({
          ...workspace,
          email: `user${9 * n}@x.com`,
          request_id: newId(),
        })),
        now,
      ),
    () => setSubscriptionStates(store, [groupState], now),
    () => takeSubscriptionStates(store, [groupState], now),
    () => dropSubscriptionStates(store, [groupState]),
    () =>
      recordStateChanges(
        store,
        [
          {
            ...{ ...workspace, subject_kind: 'email', subject: email, subscription: group },
            ...{ how: 'set', state: 'unsubscribed', request_id: newId() },
          },
        ],
        now,
      ),
  ];
};
