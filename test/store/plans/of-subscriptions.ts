import { newId } from '../../../src/platform/ids.ts';
import {
  clearSpamMarks,
  findCrowdedEmails,
  setEmailStates,
  setHardBounces,
  takeEmailStates,
} from '../../../src/store/email-addresses.ts';
import { readHistory, recordStateChanges } from '../../../src/store/subscription-history.ts';
import {
  countStates,
  dropSubscriptionStates,
  findGroups,
  findStates,
  readAddressStates,
  readProfileStates,
  setSubscriptionStates,
  takeSubscriptionStates,
} from '../../../src/store/subscription-states.ts';
import { findHeldEmails, listEmails } from '../../../src/store/suppression-lists.ts';
import type { Asking } from './asking.ts';

export const ofSubscriptions: Asking = (store, { workspaceId, users, group }) => {
  const now = new Date().toISOString();
  const ids = users.map(({ id }) => id);
  const emails = users.map(({ email }) => email);
  const [{ id, email, phone }] = users as [(typeof users)[0]];
  const statement = { workspaceId, email, state: 'subscribed' };
  const groupState = {
    ...{ workspaceId, subjectKind: 'email' as const, subject: email },
    ...{ subscriptionGroupId: group, state: 'subscribed' },
  };
  const page = { from: '-infinity', to: 'infinity', limit: 100, offset: 0 };
  return [
    () => findGroups(store, [group]),
    () => countStates(store, workspaceId, [group]),
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
    () => setEmailStates(store, [statement], now),
    () => takeEmailStates(store, [statement], now),
    () => setHardBounces(store, [{ workspaceId, email, hardBounced: true }], now),
    () => findCrowdedEmails(store, [workspaceId], [email]),
    () =>
      clearSpamMarks(
        store,
        Array.from({ length: 100 }, (_, n) => ({
          workspaceId,
          email: `user${9 * n}@x.com`,
          requestId: newId(),
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
            ...{ workspaceId, subjectKind: 'email', subject: email, subscription: group },
            ...{ how: 'set', state: 'unsubscribed', requestId: newId() },
          },
        ],
        now,
      ),
  ];
};
