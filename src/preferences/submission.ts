import type { AcceptedEmailChange, AcceptedGroupState } from '../jobs/envelope.ts';
import type { Json } from '../profile/json.ts';
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

/** A subscription group of the workspace that still changes. */
export interface LiveGroup {
  id: string;
  channel: string;
}

/** What a user has chosen; what is not named stays as it is. */
export interface Choice {
  emailGlobal?: GlobalState;
  groups: Record<string, GroupStateName>;
}

/** A form whose fields have other values than states: whoever wrote the template has to mend it. */
export class NotAChoice extends Error {
  override name = 'NotAChoice';
}

/**
 * Reads a sent form. A browser does not send a box that is not ticked. So a box for being subscribed which is missing
 * means unsubscribed: in the form that was sent, and no other of the page. Of several values of one field the last
 * counts. Whoever unsubscribes from email as a whole is unsubscribed from every email group.
 *
 * @param sent the pairs of the form, in order
 * @param forms those of the page as this user sees it
 * @throws {NotAChoice} naming the field
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

/** The boxes for being subscribed that were shown and not sent. */
function untickedOf(forms: Form[], values: ReadonlyMap<string, string>): string[] {
  const names = (fields: Field[]) => new Set(fields.map(({ name }) => name));
  // Once: a hostile page has thousands of forms, and a hostile visitor sends thousands of values.
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
  // Where the sent fields leave it open which form it was, only what every one of them says counts.
  return [...first].filter((name) => others.every((other) => other.has(name)));
}

function isSubscribing(name: string, value: string): boolean {
  const known = name === GLOBAL_FIELD || groupOfField(name) !== undefined;
  return known && (value === 'subscribed' || value === 'opted_in');
}

function oneOf<T extends string>(states: readonly T[], field: string, value: string): T {
  const state = states.find((name) => name === value);
  if (state === undefined) throw new NotAChoice(`the field ${field} must be one of ${states.join(', ')}`);
  return state;
}

/**
 * The objects that bring a choice about, in the order of the page: email as a whole first.
 *
 * @param newId gives each its id
 */
export function objectsOf(
  choice: Choice,
  user: { externalId: string; email: string },
  newId: () => string,
): (AcceptedEmailChange | AcceptedGroupState)[] {
  const objects: (AcceptedEmailChange | AcceptedGroupState)[] = [];
  const place = () => ({ id: newId(), index: objects.length });
  if (choice.emailGlobal) {
    objects.push({ kind: 'email_change', ...place(), email: user.email, state: choice.emailGlobal });
  }
  for (const [group, state] of Object.entries(choice.groups)) {
    objects.push({
      kind: 'group_state',
      ...place(),
      identifier: { external_id: user.externalId },
      subscription_group_id: group,
      subscription_state: state,
    });
  }
  return objects;
}

/** What a template is told of its user. Plain data: it is handed to another process. */
export interface View {
  /** By the names that templates know; see `attributeNames`. */
  attributes: Record<string, string>;
  customAttributes: Record<string, Json>;
  emailGlobal: GlobalState;
  /** By group id. */
  groups: Record<string, GroupStateName>;
  submitUrl: string;
}

/** The attributes that a template may name as `${…}`, with the stored member that each of them shows. */
export const attributeNames: Record<string, string> = {
  email_address: 'email',
  email: 'email',
  user_id: 'external_id',
  external_id: 'external_id',
  first_name: 'first_name',
  last_name: 'last_name',
  phone_number: 'phone',
  phone: 'phone',
  date_of_birth: 'dob',
  dob: 'dob',
  city: 'home_city',
  home_city: 'home_city',
  country: 'country',
  language: 'language',
  time_zone: 'time_zone',
  gender: 'gender',
};

/** The user of a trial: everything that a template may ask for has some value. */
export const sampleView: View = {
  attributes: Object.fromEntries(Object.keys(attributeNames).map((name) => [name, 'sample'])),
  customAttributes: {},
  emailGlobal: 'subscribed',
  groups: {},
  submitUrl: 'https://penstock.example/preferences/sample',
};

/**
 * What a template is told of a user as the store has it. A group without any word of the user is one that the user is
 * not in.
 *
 * @param groups those of the workspace that are not archived
 * @param submitUrl where the form of the page goes
 */
export function viewOf(user: Record<string, unknown>, groups: LiveGroup[], submitUrl: string): View {
  const told = (user.subscription_groups ?? []) as { id: string; status: string }[];
  const states = new Map(told.map(({ id, status }) => [id, status.toLowerCase() as GroupStateName]));
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
