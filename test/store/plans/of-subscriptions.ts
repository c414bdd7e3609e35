import { newId } from '../../../src/ids.ts';
import { clearSpamMarks } from '../../../src/store/subscriptions/clear-spam-marks.ts';
import { dropSubscriptionStates } from '../../../src/store/subscriptions/drop-subscription-states.ts';
import { findGroups } from '../../../src/store/subscriptions/find-groups.ts';
import { findHeldEmails } from '../../../src/store/subscriptions/find-held-emails.ts';
import { findStates } from '../../../src/store/subscriptions/find-states.ts';
import { listEmails } from '../../../src/store/subscriptions/list-emails.ts';
import { readAddressStates } from '../../../src/store/subscriptions/read-address-states.ts';
import { readHistory } from '../../../src/store/subscriptions/read-history.ts';
import { readProfileStates } from '../../../src/store/subscriptions/read-profile-states.ts';
import { recordStateChanges } from '../../../src/store/subscriptions/record-state-changes.ts';
import { setEmailStates } from '../../../src/store/subscriptions/set-email-states.ts';
import { setHardBounces } from '../../../src/store/subscriptions/set-hard-bounces.ts';
import { setSubscriptionStates } from '../../../src/store/subscriptions/set-subscription-states.ts';
import { takeEmailStates } from '../../../src/store/subscriptions/take-email-states.ts';
import { takeSubscriptionStates } from '../../../src/store/subscriptions/take-subscription-states.ts';
import type { Asking } from './asking.ts';

export const ofSubscriptions: Asking = (store, { workspaceId, users, group }) => {
  const now = new Date();
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
    () => findStates(store, [workspaceId, workspaceId], ['phone', 'profile'], [phone, id]),
    () =>
      findHeldEmails(
        store,
        users.map(() => workspaceId),
        emails,
        [],
      ),
    () => readAddressStates(store, workspaceId, group, 'email', emails),
    () => readProfileStates(store, workspaceId, group, 'email', ids),
    () =>
      readHistory(
        store,
        workspaceId,
        [
          { kind: 'profile', subject: id },
          { kind: 'email', subject: email },
        ],
        { limit: 100 },
      ),
    ...(['unsubscribed', 'hard_bounced'] as const).flatMap((list) =>
      (['asc', 'desc'] as const).flatMap((direction) => [
        () => listEmails(store, workspaceId, list, { ...page, direction }),
        () => listEmails(store, workspaceId, list, { ...page, direction, email }),
      ]),
    ),
    () => setEmailStates(store, [said], now),
    () => takeEmailStates(store, [said], now),
    () => setHardBounces(store, [{ ...workspace, email, hard_bounced: true }], now),
    () => clearSpamMarks(store, [{ ...workspace, email, request_id: newId() }], now),
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
