import type { AttributesDelta } from '../profile/attributes-delta.ts';
import type { Identifier } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';

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
}

export interface EnvelopeRequest {
  /** The `X-Request-Id` of the answer. */
  request_id: string;
  workspace_id: string;
  /** ISO 8601, the edge's clock: when the request was accepted. */
  accepted_at: string;
}

interface AcceptedBase {
  /** UUIDv7, given at the edge: the id of the row that the object becomes, and of its dead letter. */
  id: string;
  /** Index in `requests`. */
  request: number;
  /** The object's place in the array of the request that held it. */
  index: number;
  /** Whether an identifier that belongs to nobody makes a new profile. */
  create: boolean;
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

export type AcceptedObject = AcceptedAttributes | AcceptedEvent | AcceptedPurchase;
export type ObjectKind = AcceptedObject['kind'];
