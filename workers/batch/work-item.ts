import type {
  AcceptedObject,
  SubscriptionObject,
  TrackObject,
  UserSelector,
} from '../../src/jobs/envelope.ts';

/** A work item: one accepted object that is being applied. */
export interface WorkItem<Accepted extends AcceptedObject = AcceptedObject> extends Partial<Origin> {
  workspaceId: string;
  requestId: string;
  lane: number;
  /** Number of lanes (LANES); 1 by default. */
  lanes?: number;
  /** Place in the batch; orders its changes to several profiles. */
  ordinal: number;
  object: Accepted;
}

/** Source of an object. A work item that did not come in an envelope lacks both fields. */
export interface Origin {
  /** Id of the object's envelope. */
  envelope: string;
  /** Index of the object in the envelope. */
  index: number;
}

/** Requests a reload: the objects folded so far are written, and the others are loaded again in the next round. */
export const RELOAD = Symbol('reload');

/** Returns whether the object came from /users/track. All others are identity operations or set subscription states. */
export function isTrack(item: WorkItem): item is WorkItem<TrackObject> {
  const { kind } = item.object;
  return kind === 'attributes' || kind === 'events' || kind === 'purchases';
}

/** Returns whether the object is an event or a purchase, as most are: these do not change an existing profile. */
export function isActivity({ object: { kind } }: WorkItem): boolean {
  return kind === 'events' || kind === 'purchases';
}

/** Returns whether the object only sets a subscription or email state. */
export function isSubscription(item: WorkItem): item is WorkItem<SubscriptionObject> {
  const { kind } = item.object;
  return kind === 'group_state' || kind === 'email_change';
}

const NOBODY: readonly UserSelector[] = [];

/** Returns the selectors by which an object chooses users. */
export function selectorsOf(object: WorkItem['object']): readonly UserSelector[] {
  if (object.kind === 'merge') return [object.merge, object.keep];
  return object.kind === 'identify' || object.kind === 'delete' ? [object.user] : NOBODY;
}
