import type { AcceptedObject } from '../jobs/envelope.ts';
import type { Caller } from '../operations/operation.ts';
import { now } from '../platform/clock.ts';
import type { Config } from '../platform/config.ts';
import { newId } from '../platform/ids.ts';
import type { LongStrings } from '../profile/attribute-rule.ts';
import { toServiceId } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import { type AuditEntry, recordAudit } from '../store/audit.ts';
import { readProfiles } from '../store/export.ts';
import { byNameOrId } from '../store/name-or-id.ts';
import { requireLinkKey } from '../store/preference-centers.ts';
import { choice, type Fields, text, type ValuesOf, withDefault } from './fields.ts';
import { InvalidValue, Refusal } from './refusal.ts';
import { type Action, action, type Context, type Resource } from './resource.ts';
import { type NamedUser, userNaming } from './user-selector.ts';

/** Subscription states that an operator can set. For groups, `opted_in` means subscribed. */
export const STATES = ['subscribed', 'unsubscribed', 'opted_in'] as const;

/** Types of attribute values, with their texts in the console. */
export const TYPES = { text: 'text', number: 'number', boolean: 'true or false', json: 'JSON' };

type ValueType = keyof typeof TYPES;

/** Maximum length of the name of an attribute in characters. */
const MAX_ATTRIBUTE = 255;

/** Maximum length of a value in characters. */
const MAX_VALUE = 2000;

const DAY_MS = 86_400_000;

/** Sentence after a change that waits in the queue. */
const ACCEPTED = 'The change takes effect when a worker has applied everything that was accepted before.';

/** Objects that change a user, with the entry of the audit. */
export interface PreparedChange {
  requestId: string;
  objects: AcceptedObject[];
  entry: Pick<AuditEntry, 'action' | 'detail'>;
  /** Question that the console asks before the change. */
  question: string;
}

/** An action that changes a user through the queue. */
export interface UserChange<F extends Fields = Fields> extends Action<NamedUser, F> {
  /**
   * Validates the change with the rules of POST /users/track.
   * @throws {Refusal} naming the field and the rule that it breaks
   */
  prepare(context: Context, given: { one: NamedUser; values: ValuesOf<F> }): Promise<PreparedChange>;
}

type Described = 'verb' | 'button' | 'sentence' | 'example' | 'permit' | 'fields' | 'prepare';

function userChange<F extends Fields>(described: Pick<UserChange<F>, Described>): UserChange {
  const made: UserChange<F> = {
    ...described,
    done: 'The change was accepted.',
    async run(context, { one, values }) {
      const prepared = await described.prepare(context, { one, values });
      const { row } = await applyToUser(context, one, prepared);
      return { row, note: ACCEPTED };
    },
  };
  return made as unknown as UserChange;
}

/**
 * Enqueues objects about a user. The audit entry is written first, because an enqueued job cannot be withdrawn.
 * @returns the result for the caller, and the ids of the envelopes that hold the objects
 */
export async function applyToUser(
  { database, actor, enqueue }: Context,
  { id, workspaceId }: NamedUser,
  { requestId, objects, entry }: Omit<PreparedChange, 'question'>,
): Promise<{ row: { service_id: string; request_id: string; state: string }; envelopeIds: string[] }> {
  const serviceId = toServiceId(id);
  const detail = { request_id: requestId, ...entry.detail };
  await recordAudit(database.pool, actor, [
    { ...entry, subject: { kind: 'user', id: serviceId }, workspaceId, detail },
  ]);
  const envelopeIds = await enqueue({ workspaceId, requestId, objects });
  return { row: { service_id: serviceId, request_id: requestId, state: 'accepted' }, envelopeIds };
}

const subscriptionFields = {
  subscription: text(
    {
      label: 'Subscription',
      help: 'email, push, or the name or id of a subscription group',
      value: 'subscription',
    },
    (given) => given,
  ),
  state: choice({ label: 'State', help: 'state to set; opted_in subscribes to a group' }, STATES),
};

const setSubscription = userChange({
  verb: 'set-subscription',
  button: 'Set…',
  sentence: 'Set the subscription state of a user for email, push, or a subscription group.',
  example:
    'users set-subscription --workspace default --external-id ada --subscription email --state unsubscribed',
  permit: ['users', 'change'],
  fields: subscriptionFields,
  async prepare(context, { one, values: { subscription, state } }) {
    if (subscription === 'email' || subscription === 'push') {
      const attributes = { [`${subscription}_subscribe`]: state };
      const entry = { action: 'users.set_subscription', detail: { subscription, state } } as const;
      return plan(context, one, { attributes, entry, question: `Set ${subscription} to ${state}?` });
    }
    const group = await context.database.prisma.subscriptionGroup.findFirst({
      where: { workspaceId: one.workspaceId, archivedAt: null, ...byNameOrId(subscription) },
      select: { id: true },
    });
    if (!group)
      throw new Refusal(
        `the subscription must be email, push, or the name or the id of a group of the workspace (it is '${subscription.slice(0, 80)}')`,
        'subscription',
      );
    const groupState = state === 'unsubscribed' ? state : 'subscribed';
    return plan(context, one, {
      attributes: {
        subscription_groups: [{ subscription_group_id: group.id, subscription_state: groupState }],
      },
      entry: { action: 'users.set_subscription', detail: { subscription: group.id, state } },
      question: `Set the group to ${groupState}?`,
      groupId: group.id,
    });
  },
});

/** Matches members of a track request that are not custom attributes or that identify the user. */
const RESERVED = /^(?:external_id|user_alias|email|phone|subscription_groups|push_tokens|_.*)$/;

function readAttribute(given: string): string {
  const name = given.trim();
  if (name === '' || name.length > MAX_ATTRIBUTE)
    throw new InvalidValue(`The name of an attribute must have 1 to ${MAX_ATTRIBUTE} characters.`);
  if (RESERVED.test(name)) throw new InvalidValue(reservedName(name));
  return name;
}

const reservedName = (name: string) =>
  `The attribute cannot be ${name.slice(0, 80)}. Use the API to change identifiers.`;

function readText(given: string): string {
  if (given.length > MAX_VALUE) throw new InvalidValue(`A value can have at most ${MAX_VALUE} characters.`);
  return given;
}

/** @throws {Refusal} if the text is not a value of the type */
function readValue(type: ValueType, given: string): Json {
  switch (type) {
    case 'text':
      return given;
    case 'number': {
      const number = Number(given);
      if (given.trim() === '' || !Number.isFinite(number))
        throw new Refusal('the value must be a number', 'value');
      return number;
    }
    case 'boolean':
      if (given !== 'true' && given !== 'false')
        throw new Refusal('the value must be true or false', 'value');
      return given === 'true';
    case 'json':
      try {
        return JSON.parse(given) as Json;
      } catch {
        throw new Refusal('the value must be JSON, for example [1, 2]', 'value');
      }
  }
}

/** @throws {Refusal} if the name is the member that identifies users in requests */
function requireNoIdentifier({ SERVICE_ID_FIELD }: Config, name: string): void {
  if (name === SERVICE_ID_FIELD) throw new Refusal(reservedName(name), 'attribute');
}

const attribute = text(
  { label: 'Attribute', help: 'name of the attribute, which identifies no user', value: 'name' },
  readAttribute,
);

const setAttribute = userChange({
  verb: 'set-attribute',
  button: 'Set…',
  sentence: 'Set an attribute of a user, with the rules of POST /users/track.',
  example:
    'users set-attribute --workspace default --external-id ada --attribute seats --type number --value 4',
  permit: ['users', 'pii', 'change'],
  fields: {
    attribute,
    type: withDefault(
      choice({ label: 'Type', help: 'type of the value' }, Object.keys(TYPES) as ValueType[]),
      'text',
    ),
    value: text({ label: 'Value', help: 'value of the attribute', value: 'value' }, readText, {
      maxLength: MAX_VALUE,
    }),
  },
  async prepare(context, { one, values: { attribute: name, type, value: given } }) {
    requireNoIdentifier(context.config, name);
    const value = readValue(type, given);
    return plan(context, one, {
      attributes: { [name]: value },
      // The value is not recorded, because it may be personal data.
      entry: { action: 'users.set_attribute', detail: { attribute: name } },
      question: `Set the attribute ${name} to ${JSON.stringify(value)}?`,
    });
  },
});

const removeAttribute = userChange({
  verb: 'remove-attribute',
  button: 'Remove…',
  sentence: 'Remove an attribute of a user.',
  example: 'users remove-attribute --workspace default --external-id ada --attribute seats',
  permit: ['users', 'pii', 'change'],
  fields: { attribute },
  async prepare(context, { one, values: { attribute: name } }) {
    requireNoIdentifier(context.config, name);
    return plan(context, one, {
      attributes: { [name]: null },
      entry: { action: 'users.set_attribute', detail: { attribute: name, removed: true } },
      question: `Remove the attribute ${name}?`,
    });
  },
});

interface Wanted extends Pick<PreparedChange, 'entry' | 'question'> {
  /** Members of an `attributes` element in a track request. */
  attributes: Record<string, Json>;
  /** The group whose state changes. */
  groupId?: string;
}

/**
 * Plans the change with the rules of a track request. A value that the API would shorten or omit with a warning is
 * refused, because the operator would not see the warning.
 */
async function plan(
  { config }: Context,
  { id, workspaceId }: NamedUser,
  { attributes, groupId, ...change }: Wanted,
): Promise<PreparedChange> {
  // Loaded only by the changes, because each command of users loads this file.
  const [{ usersTrack }, { rulesOf }, { ApiError }] = await Promise.all([
    import('../operations/users.track.ts'),
    import('../schemas/vendor-rules.ts'),
    import('../errors.ts'),
  ]);
  const { SERVICE_ID_FIELD, LONG_STRINGS, VENDOR_RULES } = config;
  const track = usersTrack(SERVICE_ID_FIELD, {
    longStrings: LONG_STRINGS as LongStrings,
    rules: rulesOf[VENDOR_RULES],
  });
  const requestId = newId();
  const caller = {
    ...{ workspaceId, requestId, now: now() },
    ...{ hasGroup: (one: string) => one === groupId, isBlocked: () => false },
  } as unknown as Caller;
  const element = { ...attributes, _update_existing_only: true, [SERVICE_ID_FIELD]: toServiceId(id) };
  const field = groupId === undefined && 'attribute' in (change.entry.detail ?? {}) ? 'value' : undefined;
  try {
    const { objects, reply } = track.plan(caller, { attributes: [element] });
    const { warnings: [warning] = [] } = reply.body as { warnings?: { type: string }[] };
    if (warning) throw new Refusal(warning.type, field);
    return { ...change, requestId, objects };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw new Refusal(String(error.rejected[0]?.type ?? error.message), field);
  }
}

/** Creates a link with which a user chooses subscriptions. The link needs no sign-in. */
export const preferenceLink = action({
  verb: 'preference-link',
  button: 'Create link',
  sentence: 'Print a link with which a user sees and changes their subscriptions in a preference center.',
  example: 'users preference-link --workspace default --external-id ada --center Newsletters',
  permit: ['users', 'change'],
  done: 'Link created.',
  fields: {
    center: text(
      { label: 'Preference center', help: 'name or id of an active preference center', value: 'center' },
      (given) => given,
    ),
  },
  async run({ database, config, actor }, { one, values }: { one: NamedUser; values: { center: string } }) {
    // Loaded only here, because each command of users loads this file.
    const [{ signLink }, { createLinkSettings }] = await Promise.all([
      import('../preferences/link.ts'),
      import('../preferences/settings.ts'),
    ]);
    const { id, workspaceId } = one;
    const center = await database.prisma.preferenceCenter.findFirst({
      where: { workspaceId, state: 'active', ...byNameOrId(values.center) },
      select: { id: true, name: true },
    });
    if (!center)
      throw new Refusal(
        `the workspace has no active preference center with the name or the id '${values.center.slice(0, 80)}'`,
        'center',
      );
    const serviceId = toServiceId(id);
    const [user] = await readProfiles(database.pool, workspaceId, { ids: [id], fields: [] });
    if (!user) throw new Refusal(`the user ${serviceId} was deleted`);
    if (user.email === null)
      throw new Refusal('the user has no email address, and a preference center needs one');
    await recordAudit(database.pool, actor, [
      {
        ...{ action: 'users.preference_link', subject: { kind: 'user', id: serviceId }, workspaceId },
        detail: { preference_center: center.id },
      },
    ]);
    const links = createLinkSettings(config);
    const madeAt = now();
    const expiresAt = madeAt + links.days * DAY_MS;
    const secret = await requireLinkKey(database, workspaceId);
    const token = signLink({ workspaceId, centerId: center.id, profileId: id, madeAt, expiresAt }, secret);
    return {
      secret: { name: 'url', value: links.urlOf(token), what: 'link' },
      row: {
        service_id: serviceId,
        preference_center: center.name,
        expires_at: new Date(expiresAt).toISOString(),
      },
      note: `Everyone who has the link can see and change the subscriptions of this user. It is valid for ${links.days} days, unless it is revoked with penstock preference-centers revoke.`,
    };
  },
});

/** Changes of a user, by the value of the form's `action` field. */
export const userChanges: Record<string, UserChange> = {
  set_subscription: setSubscription,
  set_attribute: setAttribute,
  remove_attribute: removeAttribute,
};

/** A user as the commands name one. The console has a page of its own for users, with the forms of these actions. */
export const users = {
  noun: 'users',
  one: 'user',
  scope: 'workspace',
  columns: [],
  naming: userNaming,
  actions: [setSubscription, setAttribute, removeAttribute, preferenceLink],
} satisfies Pick<Resource<NamedUser>, 'noun' | 'one' | 'scope' | 'columns' | 'naming' | 'actions'>;
