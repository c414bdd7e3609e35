import type { AttributesDelta } from '../profile/attribute-rule.ts';
import {
  type Identifier,
  identifierText,
  type Prioritization,
  type UserAlias,
} from '../profile/identifier.ts';
import type { Json, JsonText } from '../profile/json.ts';

/**
 * The unit of work that web enqueues for the workers: accepted objects in the order in which they take
 * effect. Web has already made every decision that does not depend on the stored profile: identifiers are
 * chosen and normalized, times are ISO 8601 in UTC, and rules are checked.
 *
 * The shape is a contract between releases, because a worker may receive envelopes that an older web process
 * wrote.
 */
export interface Envelope {
  requests: EnvelopeRequest[];
  objects: AcceptedObject[];
  /** Set if the objects are dead letters that are being replayed. */
  replay?: true;
  fence?: Fence;
}

/**
 * A fence is added to several lanes at the same position of their common order. Its objects name users of all
 * these lanes. They take effect once every one of the lanes has reached the fence, and later objects of the
 * workspace wait for that in each of these lanes. The entry in the first lane carries the objects; the entries
 * in the other lanes are empty.
 */
export interface Fence {
  /** Id of the envelope in the first lane. The ledger row with this id records that the fence was passed. */
  id: string;
  /** Lane numbers; at least two. The first lane applies the objects. */
  lanes: number[];
  /**
   * The workspace of all its objects. Absent in fences of 1.0.0, which hold objects of several workspaces: all
   * workspaces wait for such a fence.
   */
  workspace_id?: string;
}

/** A request whose objects are accepted. */
export interface AcceptedRequest {
  /** The `X-Request-Id` of the response. */
  request_id: string;
  workspace_id: string;
  /** Time at which the request was accepted, by web's clock, in ISO 8601. */
  accepted_at: string;
  /** Number of accepted objects of the whole request. Absent if all of them are in one envelope. */
  objects?: number;
  /**
   * Id of the API key that sent the request. Absent: the key of the previous request in the envelope, if
   * there is one. Null: the request has no key.
   */
  key_id?: string | null | undefined;
  /** The request's span in W3C Trace Context format. Absent if the request is not traced. */
  traceparent?: string;
}

/** A request in an envelope. */
export interface EnvelopeRequest extends AcceptedRequest {
  /** Number of the request's objects in this envelope, which are consecutive. */
  count: number;
}

/**
 * Returns the API key id of each request of an envelope, or undefined for a request whose key is absent or
 * unknown.
 */
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
 * Returns for each object the index of its request in `requests`; undefined for an object that no request
 * counts, because the envelope is malformed.
 */
export function requestIndexesOf({ requests, objects }: Envelope): (number | undefined)[] {
  const requestIndexes: (number | undefined)[] = [];
  for (let requestIndex = 0; requestIndex < requests.length; requestIndex++) {
    const count: unknown = requests[requestIndex]?.count;
    if (!Number.isSafeInteger(count)) continue;
    const end = Math.min(objects.length, requestIndexes.length + (count as number));
    while (requestIndexes.length < end) requestIndexes.push(requestIndex);
  }
  while (requestIndexes.length < objects.length) requestIndexes.push(undefined);
  return requestIndexes;
}

/** Fields of every object of /users/track. */
interface AcceptedBase {
  /** UUIDv7 assigned by web. The object's row and its dead letter have the same id. */
  id: string;
  /** Index of the object in its array of the request. */
  index: number;
  /** False if an unknown identifier must not create a profile. Omitted if it may, since most objects may. */
  create?: boolean | undefined;
}

export interface AcceptedAttributes extends AcceptedBase, AttributesDelta {
  kind: 'attributes';
  /** Absent only for an import of push tokens, which creates an anonymous profile for each new token. */
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
  /** Amount in the currency's base unit (dollars, not cents); negative for a refund. */
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
 * Returns every identifier that an object names. The object is ordered by each of them: it takes effect after
 * everything that was accepted earlier for one of the identifiers, and before everything that is accepted
 * later.
 *
 * An attribute object that sets an address also names that address, because later objects that use the
 * address have to find the user. The result is empty for an import of push tokens, which has no identifier.
 */
export function namedIdentifiers(object: AcceptedObject): Identifier[] {
  switch (object.kind) {
    case 'attributes':
      // Most attribute objects set no address, and this code runs for every object.
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

/**
 * Returns the identifiers of an object's users, or an empty list if they cannot be read because the object is invalid.
 * An address that an attribute object sets does not count, since another user may have that address.
 */
export function userIdentifiers(object: AcceptedObject): Identifier[] {
  try {
    const named = object.kind === 'attributes' ? addressedBy(object) : namedIdentifiers(object);
    for (const identifier of named) identifierText(identifier);
    return named;
  } catch {
    return [];
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
 * Fields of every identity operation: one object per element of the request's array. Identifiers are
 * normalized; decisions that depend on stored data are left to the worker.
 */
interface IdentityBase {
  /** UUIDv7 assigned by web: the id of the object's dead letter and of its outcome. */
  id: string;
  /** Index of the object in its array of the request. */
  index: number;
}

/**
 * Selects at most one user. If several users share the address, `prioritization` narrows them down, rule by
 * rule.
 */
export interface UserSelector {
  identifier: Identifier;
  /** Present if, and only if, the identifier is an email address or a phone number. */
  prioritization?: Prioritization[];
}

/** /users/alias/new: gives an existing user an alias, or creates an alias-only user. */
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

/** /users/identify: gives a user without an external id one, or merges that user into the user who has it. */
export interface AcceptedIdentify extends IdentityBase {
  kind: 'identify';
  user: UserSelector;
  external_id: string;
  /**
   * Set: do nothing if the user with the external id has an alias with the label of `user`. Absent: that
   * alias wins.
   */
  keeps_labels?: true;
}

/** /users/merge: merges one user into another. */
export interface AcceptedMerge extends IdentityBase {
  kind: 'merge';
  merge: UserSelector;
  keep: UserSelector;
}

/** /users/delete: deletes one user. */
export interface AcceptedDelete extends IdentityBase {
  kind: 'delete';
  user: UserSelector;
}

/** /users/external_ids/rename. The worker records the outcome. */
export interface AcceptedRename extends IdentityBase {
  kind: 'external_id_rename';
  current_external_id: string;
  new_external_id: string;
}

/** /users/external_ids/remove. The worker records the outcome. */
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
  /** UUIDv7 assigned by web: the id of the object's dead letter. */
  id: string;
  /** Index of the object in its array of the request. */
  index: number;
}

/** Sets the state of one subscription group for a user, or for an address whichever user has it. */
export interface AcceptedGroupState extends SubscriptionBase {
  kind: 'group_state';
  /** Array of the request that held the object. Absent: `subscription_groups`. */
  input_array?: 'external_id' | 'external_ids' | 'email' | 'emails' | 'phone' | 'phones';
  identifier: Identifier;
  subscription_group_id: string;
  subscription_state: 'subscribed' | 'unsubscribed';
}

/** Changes the state of an email address, whichever user has it. Omitted fields keep their value. */
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
