import type { SubscriptionObject } from '../../src/jobs/subscription.ts';
import type { Changes } from '../track/fold.ts';
import type { LOOK_AGAIN } from '../track/profiles.ts';
import type { Work } from '../track/work.ts';
import { foldEmailChange } from './fold-email-change.ts';
import { foldGroupState } from './fold-group-state.ts';

/** A text: why the state cannot be set; undefined: it is folded, even if it does nothing. */
export type FoldedSubscription = string | undefined | typeof LOOK_AGAIN;

/**
 * Plays one setting of a subscription or email state, in memory.
 *
 * @param place of the object in its round
 */
export function foldSubscription(
  { workspaceId, object }: Work<SubscriptionObject>,
  place: number,
  changes: Changes,
): FoldedSubscription {
  return object.kind === 'group_state'
    ? foldGroupState(workspaceId, object, changes)
    : foldEmailChange(workspaceId, object, place, changes);
}
