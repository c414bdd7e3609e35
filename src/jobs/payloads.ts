import type { Identifier, Prioritization, UserAlias } from '../profile/identifier.ts';

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
export type IdentityKind = IdentityObject['kind'];

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
export type SubscriptionKind = SubscriptionObject['kind'];
