import type {
  AcceptedAttributes,
  AcceptedEvent,
  AcceptedPurchase,
  TrackKind,
  TrackObject,
} from '../../jobs/envelope.ts';
import { newId } from '../../platform/ids.ts';
import {
  type AttributesDelta,
  cutWarning,
  type LongStrings,
  withWarning,
} from '../../profile/attribute-rule.ts';
import { type AttributeRules, attributeRulesOf, normalizeAttributes } from '../../profile/attributes.ts';
import {
  countPrimary,
  createsProfile,
  type Identifier,
  identifierOf,
  isGiven,
  namesOneUser,
} from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { normalizeCurrency } from '../../profile/locale.ts';
import { checkProperties, MAX_PROPERTY_BYTES, type PropertyRules } from '../../profile/properties.ts';
import { invalid, type Refusal, refuse, required } from '../../profile/refusal.ts';
import { pastIso } from '../../profile/time.ts';
import { cutText, findUnstorable, hasAny, MAX_CHARACTERS, numberOf } from '../../profile/values.ts';
import { compile, describeError, type Schema } from '../../schemas/compile.ts';
import { attributesSchema, eventSchema, purchaseSchema } from '../../schemas/track.ts';
import { rulesOf, type VendorRules } from '../../schemas/vendor-rules.ts';
import { notAnObject } from '../identity/elements.ts';
import { BLOCKED_ID, type Caller } from '../operation.ts';

/** Maximum quantity of one purchase. */
const MAX_QUANTITY = 100;

const refusals = {
  time: invalid('time', "it must be a time in ISO 8601 or as yyyy-MM-dd'T'HH:mm:ss:SSSZ"),
  currency: invalid('currency', 'it must be an ISO 4217 currency code'),
  price: invalid('price', 'it must be a number'),
  // Clients match on this text.
  quantity: refuse('invalid', 'quantity', "'quantity' is not valid"),
};

/** Validates one object of an array. `index` is its position in the array. */
type Accept = (value: Json, index: number, caller: Caller) => Verdict;

/**
 * Returns the rules for rows of imports and syncs. VENDOR_RULES applies to requests of the API only, because a row of
 * an export has every identifier of its user. The size of events is the exception, so that an export can be imported
 * again.
 */
export const rowRulesOf = ({ eventPropertyBytes }: VendorRules): VendorRules => ({
  ...rulesOf.spec,
  eventPropertyBytes,
});

interface AcceptOptions {
  longStrings?: LongStrings | undefined;
  rules?: VendorRules | undefined;
}

/**
 * Creates the validators of the three arrays. Each checks first that the values can be stored, then the identifier, the
 * shape and the rules of the kind. The schemas are compiled once, in this call.
 *
 * @param serviceIdField wire name of the service id
 */
export function createAccept(
  serviceIdField: string,
  { longStrings = 'cut', rules = rulesOf.spec }: AcceptOptions = {},
): Record<TrackKind, Accept> {
  const attributeRules = attributeRulesOf(rules);
  const findSeveral = rules.primaryIdentifiers === 'one' ? createSeveralFinder(serviceIdField) : undefined;
  const eventRules = { kind: 'events', longStrings, maxBytes: rules.eventPropertyBytes } as const;
  const purchaseRules = { kind: 'purchases', longStrings, maxBytes: MAX_PROPERTY_BYTES } as const;
  const shapes = {
    attributes: compile(withoutPhone(attributesSchema(serviceIdField))),
    events: compile(eventSchema(serviceIdField)),
    purchases: compile(purchaseSchema(serviceIdField)),
  };

  const acceptOf = (kind: TrackKind): Accept =>
    function accept(value, index, caller) {
      const { now, hasGroup } = caller;
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        return notAnObject(kind);
      }
      const unstorable = findUnstorable(value);
      if (unstorable) return unstorable;
      if (kind === 'attributes' && value.push_token_import === true) {
        return acceptTokenImport(value, {
          id: newId(),
          index,
          serviceIdField,
          now,
          hasGroup,
          longStrings,
          attributeRules,
        });
      }
      const several = findSeveral?.(value);
      if (several) return several;
      const chosen = identifierOf(value, serviceIdField);
      if ('error' in chosen) return chosen;
      const { identifier } = chosen;
      if ('external_id' in identifier && caller.isBlocked(identifier.external_id)) return BLOCKED_ID;
      const shape = shapes[kind];
      if (!shape(value)) return describeError(shape.errors![0]!);
      const create = createsProfile(identifier, value._update_existing_only) ? undefined : false;
      const context: ObjectContext = {
        id: newId(),
        index,
        identifier,
        create,
        serviceIdField,
        now,
        hasGroup,
        longStrings,
        attributeRules,
      };
      if (kind === 'events') return acceptEvent(value, context, eventRules);
      if (kind === 'purchases') return acceptPurchase(value, context, purchaseRules);
      return acceptAttributes(value, context);
    };

  return {
    attributes: acceptOf('attributes'),
    events: acceptOf('events'),
    purchases: acceptOf('purchases'),
  };
}

/** Returns a check that an object has at most one of the identifiers that belong to a single user. */
function createSeveralFinder(serviceIdField: string): (object: Record<string, Json>) => Refusal | undefined {
  const fields = ['external_id', 'user_alias', serviceIdField];
  // The vendor's service answers with this text. The vendor's pages state the rule without a text.
  const refusal = refuse(
    'conflict',
    fields.join('|'),
    `You must specify only one of 'external_id', 'user_alias' or '${serviceIdField}'`,
  );
  return (object) => (countPrimary(object, serviceIdField) > 1 ? refusal : undefined);
}

/**
 * Removes `phone` from the schema. Unless it is the identifier, a phone is an attribute, and an invalid phone must not
 * refuse the object.
 */
function withoutPhone(schema: Schema): Schema {
  const { phone: _phone, ...properties } = schema.properties as Record<string, Schema>;
  return { ...schema, properties };
}

/** Facts about an object that the validators of all kinds need. */
interface ObjectContext {
  id: string;
  index: number;
  identifier: Identifier;
  create: false | undefined;
  serviceIdField: string;
  /** Epoch milliseconds. */
  now: number;
  hasGroup: Caller['hasGroup'];
  longStrings: LongStrings;
  attributeRules: AttributeRules;
}

/** A valid object, with warnings if something was cut or omitted, or the reason of its refusal. */
type Verdict = { object: TrackObject; warnings?: readonly string[] } | Refusal;

/** Validates an attribute object with a valid shape and identifier. */
function acceptAttributes(object: Record<string, Json>, base: ObjectContext): Verdict {
  const normalized = normalizeAttributes(object, base);
  if ('error' in normalized) return normalized;
  const refusal = refuseUnknownGroup(normalized.delta, base);
  if (refusal) return refusal;
  const attributes: AcceptedAttributes = {
    kind: 'attributes',
    id: base.id,
    index: base.index,
    create: base.create,
    identifier: base.identifier,
    ...normalized.delta,
  };
  return normalized.warnings ? { object: attributes, warnings: normalized.warnings } : { object: attributes };
}

/**
 * Validates an import of push tokens. It needs at least one token and must not have an identifier of a single user.
 * Each token that no user has becomes an anonymous profile with the attributes of the object.
 */
function acceptTokenImport(
  object: Record<string, Json>,
  base: Omit<ObjectContext, 'identifier' | 'create'>,
): Verdict {
  if (namesOneUser(object, base.serviceIdField)) {
    return invalid(
      'push_token_import',
      `it must not carry 'external_id', 'user_alias' or '${base.serviceIdField}'`,
      'conflict',
    );
  }
  const normalized = normalizeAttributes(object, base);
  if ('error' in normalized) return normalized;
  if (!normalized.delta.push_tokens?.length) return required('push_tokens');
  const refusal = refuseUnknownGroup(normalized.delta, base);
  if (refusal) return refusal;
  const attributes: AcceptedAttributes = {
    kind: 'attributes',
    id: newId(),
    index: base.index,
    ...normalized.delta,
  };
  return normalized.warnings ? { object: attributes, warnings: normalized.warnings } : { object: attributes };
}

/** Refuses the first subscription group that the workspace does not have. */
function refuseUnknownGroup(
  { subscription_groups }: AttributesDelta,
  { hasGroup }: Pick<ObjectContext, 'hasGroup'>,
): Refusal | undefined {
  const id = subscription_groups?.find(
    (group) => !hasGroup(group.subscription_group_id),
  )?.subscription_group_id;
  return id === undefined
    ? undefined
    : invalid('subscription_groups', `no subscription group has the id ${id}`, 'unknown_group');
}

/** Validates an event with a valid shape and identifier. */
function acceptEvent(object: Record<string, Json>, base: ObjectContext, rules: PropertyRules): Verdict {
  const sent = object.name as string;
  const name = cutText(sent);
  if (name !== sent && base.longStrings === 'refuse') return refusedLong('name');
  const time = readTime(object, base);
  if (time === undefined) return refusals.time;
  const checked = checkProperties(object.properties, rules);
  if ('error' in checked) return checked;
  const event: AcceptedEvent = {
    kind: 'events',
    id: base.id,
    index: base.index,
    create: base.create,
    identifier: base.identifier,
    name,
    ...activityOf(object, time, checked.properties),
  };
  const warnings = name === sent ? checked.warnings : withCut('name', checked.warnings);
  return warnings ? { object: event, warnings } : { object: event };
}

/** Validates a purchase with a valid shape and identifier. */
function acceptPurchase(object: Record<string, Json>, base: ObjectContext, rules: PropertyRules): Verdict {
  const sent = String(object.product_id);
  const product_id = cutText(sent);
  if (product_id !== sent && base.longStrings === 'refuse') return refusedLong('product_id');
  const currency = normalizeCurrency(object.currency as string);
  if (!currency) return refusals.currency;
  const price = numberOf(object.price);
  if (price === undefined) return refusals.price;
  const quantity = numberOf(object.quantity ?? 1);
  if (quantity === undefined || !isQuantity(quantity)) return refusals.quantity;
  const time = readTime(object, base);
  if (time === undefined) return refusals.time;
  const checked = checkProperties(object.properties, rules);
  if ('error' in checked) return checked;
  const purchase: AcceptedPurchase = {
    kind: 'purchases',
    id: base.id,
    index: base.index,
    create: base.create,
    identifier: base.identifier,
    product_id,
    currency,
    price,
    quantity,
    ...activityOf(object, time, checked.properties),
  };
  const warnings = product_id === sent ? checked.warnings : withCut('product_id', checked.warnings);
  return warnings ? { object: purchase, warnings } : { object: purchase };
}

/** Reads the time as ISO 8601 in UTC. A time in the future is replaced by the current time. */
function readTime(object: Record<string, Json>, { now }: ObjectContext): string | undefined {
  return pastIso(object.time as string, now);
}

type Activity = { time: string; app_id?: string; properties?: Record<string, Json> };

/** Returns the members that events and purchases share. */
function activityOf(
  object: Record<string, Json>,
  time: string,
  properties: Record<string, Json> | undefined,
): Activity {
  const activity: Activity = { time };
  if (isGiven(object.app_id)) activity.app_id = object.app_id as string;
  if (properties && hasAny(properties)) activity.properties = properties;
  return activity;
}

function isQuantity(value: number): boolean {
  return Number.isInteger(value) && value >= 1 && value <= MAX_QUANTITY;
}

function withCut(member: string, warnings: readonly string[] | undefined): readonly string[] {
  return withWarning(warnings, cutWarning(`'${member}'`, { name: false, value: true }));
}

function refusedLong(member: string): Refusal {
  return invalid(member, `it must be a string of 1 to ${MAX_CHARACTERS} characters`, 'too_large');
}
