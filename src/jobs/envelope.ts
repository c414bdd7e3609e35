import type { AttributesDelta } from '../profile/attributes-delta.ts';
import type { Identifier } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import type { IdentityKind, IdentityObject } from './identity.ts';
import type { SubscriptionKind, SubscriptionObject } from './subscription.ts';

/**
 * What the edge hands to the workers: an envelope of accepted objects, in the order in which they take
 * effect. Everything that can be decided without the stored profile has been decided: identifiers are
 * chosen and normalised, times are ISO 8601 in UTC, rules are checked.
 *
 * The shape is a contract between releases: a worker meets envelopes that an older edge wrote.
 */
export interface Envelope {
  requests: EnvelopeRequest[];
  objects: AcceptedObject[];
  /** The objects are dead letters that are tried again. */
  replay?: true;
  fence?: Fence;
}

/**
 * A fence stands in several lanes at the same place of their common order. Its objects name users of all of
 * them: they take effect when every one of the lanes has come to the fence, and none goes on before they have.
 * The entry of the first lane carries the objects, those of the others none.
 */
export interface Fence {
  /** Id of the first lane's envelope, and so of the ledger row that says that the fence is passed. */
  id: string;
  /** Ascending, two at least. */
  lanes: number[];
}

export interface EnvelopeRequest {
  /** The `X-Request-Id` of the answer. */
  request_id: string;
  workspace_id: string;
  /** ISO 8601, the edge's clock: when the request was accepted. */
  accepted_at: string;
  /** Accepted objects of the whole request; absent: all of them are in one envelope. */
  objects?: number;
}

/** What every object of /users/track carries. */
export interface AcceptedBase {
  /** UUIDv7, given at the edge: the id of the row that the object becomes, and of its dead letter. */
  id: string;
  /** Index in `requests`. */
  request: number;
  /** The object's place in the array of the request that held it. */
  index: number;
  /** False: an identifier that belongs to nobody makes no new profile. Said only then: most objects make one. */
  create?: boolean | undefined;
}

export interface AcceptedAttributes extends AcceptedBase, AttributesDelta {
  kind: 'attributes';
  /** Absent only for an import of push tokens, which makes an anonymous profile for each new token. */
  identifier?: Identifier;
}

export interface AcceptedEvent extends AcceptedBase {
  kind: 'events';
  identifier: Identifier;
  name: string;
  /** ISO 8601, UTC. */
  time: string;
  app_id?: string;
  properties?: Record<string, Json>;
}

export interface AcceptedPurchase extends AcceptedBase {
  kind: 'purchases';
  identifier: Identifier;
  product_id: string;
  /** ISO 4217, upper-case. */
  currency: string;
  /** In the currency's base unit (dollars, not cents); negative for a refund. */
  price: number;
  /** 1 to 100. */
  quantity: number;
  /** ISO 8601, UTC. */
  time: string;
  app_id?: string;
  properties?: Record<string, Json>;
}

export type TrackObject = AcceptedAttributes | AcceptedEvent | AcceptedPurchase;
export type TrackKind = TrackObject['kind'];

export type AcceptedObject = TrackObject | IdentityObject | SubscriptionObject;
export type ObjectKind = TrackKind | IdentityKind | SubscriptionKind;
