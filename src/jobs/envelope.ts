import type { AttributesDelta } from '../profile/attribute-rule.ts';
import type { Identifier, Prioritization, UserAlias } from '../profile/identifier.ts';
import type { Json, JsonText } from '../profile/json.ts';

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
  /** Its objects in this envelope, which follow each other; absent in what a release before 0.2 wrote. */
  count?: number;
  /** Accepted objects of the whole request; absent: all of them are in one envelope. */
  objects?: number;
  /** The API key that sent it; absent: that of the request before it in the envelope, if there is one; null: none. */
  key_id?: string | null | undefined;
  /** The request's span, as W3C Trace Context writes it; absent: it is not traced. */
  traceparent?: string;
}

/** The id of the API key that sent each of the requests of an envelope; undefined: none, or nobody says. */
export function keysOf(requests: EnvelopeRequest[]): (string | undefined)[] {
  let key: unknown;
  const keys: (string | undefined)[] = [];
  for (const request of requests) {
    key = request?.key_id === undefined ? key : request.key_id;
    keys.push(typeof key === 'string' ? key : undefined);
  }
  return keys;
}

/**
 * The place in `requests` of each object's request.
 *
 * @returns for each object; what names no place, or a place that is none, is the caller's to judge
 */
export function requestPlaces({ requests, objects }: Envelope): unknown[] {
  if (requests.length === 0 || !requests.every((request) => Number.isSafeInteger(request?.count)))
    return objects.map((object) => object?.request);
  const places: number[] = [];
  for (let place = 0; place < requests.length; place++) {
    const end = Math.min(objects.length, places.length + requests[place]!.count!);
    while (places.length < end) places.push(place);
  }
  return places;
}

/** What every object of /users/track carries. */
interface AcceptedBase {
  /** UUIDv7, given at the edge: the id of the row that the object becomes, and of its dead letter. */
  id: string;
  /** Index in `requests`, in what a release before 0.2 wrote. */
  request?: number;
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
  app_id?: string | undefined;
  properties?: Record<string, Json> | JsonText | undefined;
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
  app_id?: string | undefined;
  properties?: Record<string, Json> | JsonText | undefined;
}

export type TrackObject = AcceptedAttributes | AcceptedEvent | AcceptedPurchase;
export type TrackKind = TrackObject['kind'];

export type AcceptedObject = TrackObject | IdentityObject | SubscriptionObject;
export type ObjectKind = TrackKind | IdentityKind | SubscriptionKind;

/**
 * Every identifier that an object names, each of which orders it. It takes effect after all that was accepted before it
 * for any of them, and before all that is accepted after it.
 *
 * An attribute object that sets an address names that address too: what is addressed to it afterwards has to find
 * the user. Empty for an import of push tokens, which names nobody.
 */
export function namedIdentifiers(object: AcceptedObject): Identifier[] {
  switch (object.kind) {
    case 'attributes':
      // Most set no address, and there are many of them.
      return object.standard?.email || object.standard?.phone
        ? [...addressedBy(object), ...newAddresses(object)]
        : addressedBy(object);
    case 'events':
    case 'purchases':
      return [object.identifier];
    case 'alias_new':
      return [
        { user_alias: object.user_alias },
        ...(object.external_id === undefined ? [] : [{ external_id: object.external_id }]),
      ];
    case 'alias_update': {
      const { alias_label, old_alias_name, new_alias_name } = object;
      return [
        { user_alias: { alias_name: old_alias_name, alias_label } },
        { user_alias: { alias_name: new_alias_name, alias_label } },
      ];
    }
    case 'identify':
      return [object.user.identifier, { external_id: object.external_id }];
    case 'merge':
      return [object.merge.identifier, object.keep.identifier];
    case 'delete':
      return [object.user.identifier];
    case 'external_id_rename':
      return [{ external_id: object.current_external_id }, { external_id: object.new_external_id }];
    case 'group_state':
      return [object.identifier];
    case 'email_change':
      return [{ email: object.email }];
    case 'external_id_remove':
      return [{ external_id: object.external_id }];
  }
}

function addressedBy({ identifier }: AcceptedAttributes): Identifier[] {
  return identifier ? [identifier] : [];
}

function newAddresses({ standard }: AcceptedAttributes): Identifier[] {
  const addresses: Identifier[] = [];
  if (standard?.email) addresses.push({ email: standard.email });
  if (standard?.phone && standard.phone_valid) addresses.push({ phone: standard.phone });
  return addresses;
}

/**
 * The identity operations as the edge hands them to the workers: one object per element of the request's array.
 * Identifiers are normalised; what can only be known from the store is decided by the worker.
 */
interface IdentityBase {
  /** UUIDv7, given at the edge: names its dead letter and its outcome. */
  id: string;
  /** Index in the envelope's `requests`, in what a release before 0.2 wrote. */
  request?: number;
  /** The object's place in the array of the request that held it. */
  index: number;
}

/** Names one user, or nobody: an address that several have is narrowed by `prioritization`, in its order. */
export interface UserSelector {
  identifier: Identifier;
  /** Present exactly with an email or a phone. */
  prioritization?: Prioritization[];
}

/** /users/alias/new: gives an existing user an alias, or makes an alias-only user. */
export interface AcceptedAliasNew extends IdentityBase {
  kind: 'alias_new';
  user_alias: UserAlias;
  external_id?: string;
}

/** /users/alias/update: renames an alias. */
export interface AcceptedAliasUpdate extends IdentityBase {
  kind: 'alias_update';
  alias_label: string;
  old_alias_name: string;
  new_alias_name: string;
}

/** /users/identify: gives a user without an external id one, or merges that user into who has it. */
export interface AcceptedIdentify extends IdentityBase {
  kind: 'identify';
  user: UserSelector;
  external_id: string;
  /** Has no effect if the user with the external id has an alias with the label of `user`. Absent: that alias wins. */
  keeps_labels?: true;
}

/** /users/merge. */
export interface AcceptedMerge extends IdentityBase {
  kind: 'merge';
  merge: UserSelector;
  keep: UserSelector;
}

/** /users/delete: one user. */
export interface AcceptedDelete extends IdentityBase {
  kind: 'delete';
  user: UserSelector;
}

/** /users/external_ids/rename. The worker writes down how it went. */
export interface AcceptedRename extends IdentityBase {
  kind: 'external_id_rename';
  current_external_id: string;
  new_external_id: string;
}

/** /users/external_ids/remove. The worker writes down how it went. */
export interface AcceptedRemove extends IdentityBase {
  kind: 'external_id_remove';
  external_id: string;
}

export type IdentityObject =
  | AcceptedAliasNew
  | AcceptedAliasUpdate
  | AcceptedIdentify
  | AcceptedMerge
  | AcceptedDelete
  | AcceptedRename
  | AcceptedRemove;
type IdentityKind = IdentityObject['kind'];

interface SubscriptionBase {
  /** UUIDv7, given at the edge: names its dead letter. */
  id: string;
  /** Index in the envelope's `requests`, in what a release before 0.2 wrote. */
  request?: number;
  /** The object's place in the array of the request that held it. */
  index: number;
}

/** What one user, or whoever has an address, wants of one subscription group. */
export interface AcceptedGroupState extends SubscriptionBase {
  kind: 'group_state';
  /** Where the object stood in the request; absent: an element of `subscription_groups`. */
  input_array?: 'external_id' | 'external_ids' | 'email' | 'emails' | 'phone' | 'phones';
  identifier: Identifier;
  subscription_group_id: string;
  subscription_state: 'subscribed' | 'unsubscribed';
}

/** What is said of one email address, whoever has it. What is not named stays. */
export interface AcceptedEmailChange extends SubscriptionBase {
  kind: 'email_change';
  /** Lower-case. */
  email: string;
  state?: 'subscribed' | 'unsubscribed' | 'opted_in';
  hard_bounced?: boolean;
  marked_as_spam?: false;
}

export type SubscriptionObject = AcceptedGroupState | AcceptedEmailChange;
type SubscriptionKind = SubscriptionObject['kind'];
