import type { AcceptedEmailChange, AcceptedGroupState } from '../jobs/envelope.ts';
import type { Json } from '../profile/json.ts';
import { textAttributes } from '../profile/segment.ts';
import {
  type Field,
  type Form,
  GLOBAL_FIELD,
  type GlobalState,
  type GroupStateName,
  globalStates,
  groupOfField,
  groupStates,
} from './page.ts';

/** A subscription group of the workspace that is not archived. */
export interface LiveGroup {
  id: string;
  channel: string;
}

/** The states that a user has chosen. Other states do not change. */
export interface Choice {
  emailGlobal?: GlobalState;
  groups: Record<string, GroupStateName>;
}

/** A form with a value that is not a state. The author of the template must fix it. */
export class NotAChoice extends Error {
  override name = 'NotAChoice';
}

/**
 * Reads a submitted form. A browser does not send an unticked box, so a missing box for being subscribed means
 * unsubscribed. This applies to the boxes of the submitted form only. If a field has several values, the last one
 * counts. A user who unsubscribes globally is unsubscribed from every email group.
 *
 * @param sent names and values of the form, in order
 * @param forms the forms of the page as this user sees it
 * @throws {NotAChoice} with the field
 */
export function readChoice(
  sent: Iterable<[name: string, value: string]>,
  forms: Form[],
  groups: LiveGroup[],
): Choice {
  const values = new Map<string, string>(sent);
  for (const name of untickedOf(forms, values)) values.set(name, 'unsubscribed');

  const live = new Set(groups.map(({ id }) => id));
  const choice: Choice = { groups: {} };
  for (const [name, value] of values) {
    const group = groupOfField(name);
    if (name === GLOBAL_FIELD) choice.emailGlobal = oneOf(globalStates, name, value);
    else if (group && live.has(group)) choice.groups[group] = oneOf(groupStates, name, value);
  }
  if (choice.emailGlobal === 'unsubscribed') {
    for (const { id, channel } of groups) if (channel === 'email') choice.groups[id] = 'unsubscribed';
  }
  return choice;
}

/** Returns the names of the boxes for being subscribed that were shown but not sent. */
function untickedOf(forms: Form[], values: ReadonlyMap<string, string>): string[] {
  const names = (fields: Field[]) => new Set(fields.map(({ name }) => name));
  // Computed once, because a hostile page may have thousands of forms, and a hostile visitor may send thousands of
  // values.
  const sent = [...values.keys()];
  const mayBeSent = forms.filter(({ fields }) => {
    const own = names(fields);
    return own.size > 0 && sent.every((name) => own.has(name));
  });
  const boxes = mayBeSent.map(({ fields }) => {
    const shown = fields.filter(({ name, checkbox, value }) => checkbox && isSubscribing(name, value));
    return new Set([...names(shown)].filter((name) => !values.has(name)));
  });
  const [first = [], ...others] = boxes;
  // If the sent fields match several forms, a box counts as unticked only if it is unticked in all of them.
  return [...first].filter((name) => others.every((other) => other.has(name)));
}

function isSubscribing(name: string, value: string): boolean {
  const isState = name === GLOBAL_FIELD || groupOfField(name) !== undefined;
  return isState && (value === 'subscribed' || value === 'opted_in');
}

function oneOf<T extends string>(states: readonly T[], field: string, value: string): T {
  const state = states.find((name) => name === value);
  if (state === undefined) throw new NotAChoice(`the field ${field} must be one of ${states.join(', ')}`);
  return state;
}

/**
 * Creates the objects that apply a choice: the global email state first, then the groups in the order of the page.
 *
 * @param newId returns a new object id
 */
export function objectsOf(
  choice: Choice,
  user: { externalId: string; email: string },
  newId: () => string,
): (AcceptedEmailChange | AcceptedGroupState)[] {
  const objects: (AcceptedEmailChange | AcceptedGroupState)[] = [];
  const nextPosition = () => ({ id: newId(), index: objects.length });
  if (choice.emailGlobal) {
    objects.push({ kind: 'email_change', ...nextPosition(), email: user.email, state: choice.emailGlobal });
  }
  for (const [group, state] of Object.entries(choice.groups)) {
    objects.push({
      kind: 'group_state',
      ...nextPosition(),
      identifier: { external_id: user.externalId },
      subscription_group_id: group,
      subscription_state: state,
    });
  }
  return objects;
}

/** The data of a user that a template can use. It must be plain data, because it is sent to another process. */
export interface View {
  /** Attributes by the names in `attributeNames`. */
  attributes: Record<string, string>;
  customAttributes: Record<string, Json>;
  emailGlobal: GlobalState;
  /** States by group id. */
  groups: Record<string, GroupStateName>;
  submitUrl: string;
}

/** The attributes that a template can use as `${…}`, with the name of the stored member. */
export const attributeNames: Record<string, string> = {
  email_address: 'email',
  user_id: 'external_id',
  phone_number: 'phone',
  date_of_birth: 'dob',
  city: 'home_city',
  ...Object.fromEntries(textAttributes.map((name) => [name, name])),
};

/** The user of test renderings, who has a value for each attribute. */
export const sampleView: View = {
  attributes: Object.fromEntries(Object.keys(attributeNames).map((name) => [name, 'sample'])),
  customAttributes: {},
  emailGlobal: 'subscribed',
  groups: {},
  submitUrl: 'https://penstock.example/preferences/sample',
};

/**
 * Converts a stored user to the data for templates. If the user has no state for a group, it counts as unsubscribed.
 *
 * @param groups the groups of the workspace that are not archived
 * @param submitUrl URL to which the page sends its form
 */
export function viewOf(user: Record<string, unknown>, groups: LiveGroup[], submitUrl: string): View {
  const stored = (user.subscription_groups ?? []) as { id: string; status: string }[];
  const states = new Map(stored.map(({ id, status }) => [id, status.toLowerCase() as GroupStateName]));
  return {
    attributes: Object.fromEntries(
      Object.entries(attributeNames).flatMap(([name, member]) => {
        const value = user[member];
        return typeof value === 'string' ? [[name, value]] : [];
      }),
    ),
    customAttributes: (user.custom_attributes ?? {}) as Record<string, Json>,
    emailGlobal: user.email_subscribe as GlobalState,
    groups: Object.fromEntries(groups.map(({ id }) => [id, states.get(id) ?? 'unsubscribed'])),
    submitUrl,
  };
}
