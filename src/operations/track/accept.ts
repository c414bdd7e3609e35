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
import { noObject } from '../identity/elements.ts';
import { BLOCKED_ID, type Caller } from '../operation.ts';

/** Pieces of one purchase. */
const MAX_QUANTITY = 100;

const refusals = {
  time: invalid('time', "it must be a time in ISO 8601 or as yyyy-MM-dd'T'HH:mm:ss:SSSZ"),
  currency: invalid('currency', 'it must be an ISO 4217 currency code'),
  price: invalid('price', 'it must be a number'),
  // Clients match on this text.
  quantity: refuse('invalid', 'quantity', "'quantity' is not valid"),
};

/** Judges one object of an array, by its place there. */
type Accept = (value: Json, index: number, caller: Caller) => Verdict;

/**
 * Returns the rules for rows of imports and syncs. VENDOR_RULES is about requests of the API: a row of an export has every
 * identifier of its user. The size of events is the exception, so that an export can be imported again.
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
 * By array, what judges its objects: storable values, identifier, shape, then the rules of the kind. The validators are
 * compiled here, once.
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
        return noObject(kind);
      }
      const unstorable = findUnstorable(value);
      if (unstorable) return unstorable;
      if (kind === 'attributes' && value.push_token_import === true) {
        return judgeTokenImport(value, {
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
      const judge: Judge = {
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
      if (kind === 'events') return judgeEvent(value, judge, eventRules);
      if (kind === 'purchases') return judgePurchase(value, judge, purchaseRules);
      return judgeAttributes(value, judge);
    };

  return {
    attributes: acceptOf('attributes'),
    events: acceptOf('events'),
    purchases: acceptOf('purchases'),
  };
}

/** Returns the check that an object carries at most one of the identifiers that belong to one user alone. */
function createSeveralFinder(serviceIdField: string): (object: Record<string, Json>) => Refusal | undefined {
  const fields = ['external_id', 'user_alias', serviceIdField];
  // The vendor's service answers with this text. Its pages state the rule without a text.
  const refusal = refuse(
    'conflict',
    fields.join('|'),
    `You must specify only one of 'external_id', 'user_alias' or '${serviceIdField}'`,
  );
  return (object) => (countPrimary(object, serviceIdField) > 1 ? refusal : undefined);
}

/** A phone that addresses nobody is an attribute, and costs the object nothing when it cannot be read. */
function withoutPhone(schema: Schema): Schema {
  const { phone: _phone, ...properties } = schema.properties as Record<string, Schema>;
  return { ...schema, properties };
}

/** What is known of an object before its own rules are looked at. */
interface Judge {
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

/** An object that can be applied, and what was cut or left out of it if anything was; or why it cannot. */
type Verdict = { object: TrackObject; warnings?: readonly string[] } | Refusal;

/** Judges an attribute object whose shape and identifier are right already. */
function judgeAttributes(object: Record<string, Json>, base: Judge): Verdict {
  const normalized = normalizeAttributes(object, base);
  if ('error' in normalized) return normalized;
  const stranger = strangeGroup(normalized.delta, base);
  if (stranger) return stranger;
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
 * Judges an import of push tokens: at least one token, and nothing that names one user. Each token that nobody
 * has becomes an anonymous profile with the object's attributes.
 */
function judgeTokenImport(object: Record<string, Json>, base: Omit<Judge, 'identifier' | 'create'>): Verdict {
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
  const stranger = strangeGroup(normalized.delta, base);
  if (stranger) return stranger;
  const attributes: AcceptedAttributes = {
    kind: 'attributes',
    id: newId(),
    index: base.index,
    ...normalized.delta,
  };
  return normalized.warnings ? { object: attributes, warnings: normalized.warnings } : { object: attributes };
}

/** Refuses the first group that the workspace does not have, if there is one. */
function strangeGroup(
  { subscription_groups }: AttributesDelta,
  { hasGroup }: Pick<Judge, 'hasGroup'>,
): Refusal | undefined {
  const id = subscription_groups?.find(
    (group) => !hasGroup(group.subscription_group_id),
  )?.subscription_group_id;
  return id === undefined
    ? undefined
    : invalid('subscription_groups', `no subscription group has the id ${id}`, 'unknown_group');
}

/** Judges an event whose shape and identifier are right already. */
function judgeEvent(object: Record<string, Json>, base: Judge, rules: PropertyRules): Verdict {
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

/** Judges a purchase whose shape and identifier are right already. */
function judgePurchase(object: Record<string, Json>, base: Judge, rules: PropertyRules): Verdict {
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

/** ISO 8601 in UTC; a time in the future becomes now. */
function readTime(object: Record<string, Json>, { now }: Judge): string | undefined {
  return pastIso(object.time as string, now);
}

type Activity = { time: string; app_id?: string; properties?: Record<string, Json> };

/** What events and purchases have in common: when, in which app, with which properties. */
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
