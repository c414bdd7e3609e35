import type { AcceptedAttributes } from '../../../src/jobs/envelope.ts';
import { GLOBAL, type Group } from '../../../src/store/subscription-states.ts';
import { type Changes, tokenKey } from '../changes.ts';
import type { LoadedProfile } from '../loaded-profile.ts';
import type { RELOAD, WorkItem } from '../work-item.ts';
import { CustomAttributes } from './custom-attributes.ts';
import { moveEmail, movePhone, own, subjectOf } from './states.ts';

/**
 * Folds one attribute object into the profile that it identifies, or into a new one.
 *
 * @returns the reason why the object cannot be applied, or RELOAD; in both cases the object has changed no data
 */
export function foldAttributes(
  existing: LoadedProfile | undefined,
  item: WorkItem<AcceptedAttributes>,
  changes: Changes,
): string | undefined | typeof RELOAD {
  const { workspaceId, object } = item;
  const groups = resolveGroups(workspaceId, object, changes);
  if (typeof groups === 'string') return groups;
  const custom = existing?.custom ?? new CustomAttributes(true);
  const refused = custom.apply(object);
  if (refused !== undefined) return refused;
  const profile = existing ?? changes.profiles.create(workspaceId, object.identifier, custom);
  apply(item, { profile, groups }, changes);
  for (const token of object.push_tokens ?? []) give(token, profile, changes);
  return undefined;
}

/**
 * Creates an anonymous profile with the object's attributes for each unused push token.
 *
 * @returns see `foldAttributes`
 */
export function importTokens(
  item: WorkItem<AcceptedAttributes>,
  changes: Changes,
): string | undefined | typeof RELOAD {
  const { workspaceId, object } = item;
  const groups = resolveGroups(workspaceId, object, changes);
  if (typeof groups === 'string') return groups;
  for (const token of object.push_tokens ?? []) {
    const key = tokenKey({ appId: token.app_id, token: token.token });
    if (changes.ownedTokens.has(workspaceId, key) || changes.pushTokens.has(workspaceId, key)) continue;
    const custom = new CustomAttributes(true);
    // All new profiles get the same attributes, so only the first one can be refused.
    const refused = custom.apply(object);
    if (refused !== undefined) return refused;
    const profile = changes.profiles.create(workspaceId, undefined, custom);
    apply(item, { profile, groups }, changes);
    give(token, profile, changes);
  }
  return undefined;
}

type Token = NonNullable<AcceptedAttributes['push_tokens']>[number];

function give(given: Token, { workspaceId, id: profileId }: LoadedProfile, { pushTokens }: Changes): void {
  const { app_id: appId, token, device_id: deviceId } = given;
  const row = { workspaceId, appId, token, deviceId, profileId };
  pushTokens.set(workspaceId, tokenKey(row), row);
}

/** Applies an object except for its push tokens and custom attributes. */
function apply(
  item: WorkItem<AcceptedAttributes>,
  { profile, groups }: { profile: LoadedProfile; groups: GroupSetting[] },
  changes: Changes,
): void {
  const { object, requestId } = item;
  profile.changeBy(item);
  setStandard(profile, item, changes);
  if (object.push_subscribe) profile.setColumns({ push_subscribe: object.push_subscribe });
  setEmailState(profile, item, changes);
  for (const { group, state } of groups) {
    const { id, channel } = group;
    changes.states.set({ subject: subjectOf(profile, channel), requestId }, id, { channel, state });
  }
}

type GroupSetting = { group: Group; state: string };

/** Returns the group states that an object sets, without archived groups; an error message for an unknown group. */
function resolveGroups(workspaceId: string, object: AcceptedAttributes, changes: Changes) {
  const groups: GroupSetting[] = [];
  for (const { subscription_group_id, subscription_state } of object.subscription_groups ?? []) {
    const group = changes.groups.get(subscription_group_id);
    if (group?.workspaceId !== workspaceId) {
      return `'subscription_groups' is not valid: no subscription group has the id ${subscription_group_id}`;
    }
    if (!group.archived) groups.push({ group, state: subscription_state });
  }
  return groups;
}

function setStandard(
  profile: LoadedProfile,
  { object: { standard }, requestId }: WorkItem<AcceptedAttributes>,
  changes: Changes,
): void {
  if (!standard) return;
  const { email, phone, phone_valid, ...columns } = standard;
  const { marked_email_as_spam_at: spam } = columns;
  if (spam !== undefined) changes.states.mark({ subject: own(profile), requestId }, 'spam', spam !== null);
  profile.setColumns(columns);
  if (email !== undefined) moveEmail(profile, { email, requestId }, changes);
  if (phone !== undefined) movePhone(profile, { phone, phoneValid: phone_valid ?? null, requestId }, changes);
}

/** Sets the email state of the address, and so of all its holders; without an address, of the profile itself. */
function setEmailState(
  profile: LoadedProfile,
  { object: { email_subscribe: state }, requestId }: WorkItem<AcceptedAttributes>,
  { states }: Changes,
): void {
  if (!state) return;
  states.set({ subject: subjectOf(profile, 'email'), requestId }, GLOBAL, { channel: 'email', state });
  if (profile.email === null) profile.setColumns({ email_subscribe: state });
}
