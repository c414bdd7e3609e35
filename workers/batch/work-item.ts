import type {
  AcceptedObject,
  SubscriptionObject,
  TrackObject,
  UserSelector,
} from '../../src/jobs/envelope.ts';

/** A work item: one accepted object on its way into the store. */
export interface WorkItem<Accepted extends AcceptedObject = AcceptedObject> extends Partial<Origin> {
  workspaceId: string;
  requestId: string;
  lane: number;
  /** LANES; absent: one. */
  lanes?: number;
  /** Place in the batch; orders what the batch does to several profiles. */
  ordinal: number;
  object: Accepted;
}

/** Where an object came from; of one that came in no envelope both are absent. */
export interface Origin {
  /** Id of its envelope. */
  envelope: string;
  /** Its place in that. */
  place: number;
}

/** Reload: what has been folded is written, and the rest of the batch is loaded anew in the next round. */
export const RELOAD = Symbol('reload');

/** Whether its object came in by /users/track; all others are identity operations or set subscription states. */
export function isTrack(item: WorkItem): item is WorkItem<TrackObject> {
  const { kind } = item.object;
  return kind === 'attributes' || kind === 'events' || kind === 'purchases';
}

/** Whether its object is an event or a purchase, as most are: it changes nobody's profile. */
export function isActivity({ object: { kind } }: WorkItem): boolean {
  return kind === 'events' || kind === 'purchases';
}

/** Whether its object sets a subscription or email state, and nothing else. */
export function isSubscription(item: WorkItem): item is WorkItem<SubscriptionObject> {
  const { kind } = item.object;
  return kind === 'group_state' || kind === 'email_change';
}

const NOBODY: readonly UserSelector[] = [];

/** The users whom an object chooses by a selector. */
export function selectorsOf(object: WorkItem['object']): readonly UserSelector[] {
  if (object.kind === 'merge') return [object.merge, object.keep];
  return object.kind === 'identify' || object.kind === 'delete' ? [object.user] : NOBODY;
}
