import type { Json } from '../../src/profile/json.ts';
import { pick } from './random.ts';

export type TrafficKind = 'attributes' | 'events' | 'purchases';
export type TrafficObject = Record<string, Json>;

/** Kinds of objects, which take turns in this order. */
export const trafficKinds: readonly TrafficKind[] = ['attributes', 'events', 'purchases'];

/**
 * Placeholder for a user's number. It is as wide as every number, so that a body is patched in place.
 * External ids are `load-00000042`; one user in twenty has an alias of the same text instead.
 */
export const USER_MARK = 'load-########';
const ALIAS_SHARE = 0.05;

const eventNames = Array.from({ length: 30 }, (_, index) => `event_${index}`);
const products = Array.from({ length: 200 }, (_, index) => `sku-${1000 + index}`);
const attributeNames = Array.from({ length: 20 }, (_, index) => `attribute_${index}`);
const countries = ['DE', 'FR', 'US', 'JP', 'BR'];
const plans = ['free', 'basic', 'pro', 'business'];
const pages = ['/', '/pricing', '/docs/getting-started', '/account/settings', '/search?q=boots'];

/** Returns a valid object as an application would send it; `now` is in epoch milliseconds. */
export function goodObject(kind: TrafficKind, random: () => number, now: number): TrafficObject {
  const user: TrafficObject =
    random() < ALIAS_SHARE
      ? { user_alias: { alias_name: USER_MARK, alias_label: 'device' }, _update_existing_only: false }
      : { external_id: USER_MARK };
  if (kind === 'attributes') return { ...user, ...attributes(random, now) };
  const time = new Date(now - Math.floor(random() * 600_000)).toISOString();
  return { ...user, time, ...(kind === 'events' ? event(random) : purchase(random)) };
}

/** Returns an object that breaks one of the rules of its kind. */
export function badObject(kind: TrafficKind, random: () => number, now: number): TrafficObject {
  const object = goodObject(kind, random, now);
  const spoil: Record<TrafficKind, (() => void)[]> = {
    attributes: [() => removeIdentifiers(object), () => Object.assign(object, { email: 'not an address' })],
    events: [() => delete object.name, () => Object.assign(object, { time: 'yesterday' })],
    purchases: [
      () => Object.assign(object, { currency: 'XX' }),
      () => Object.assign(object, { quantity: 101 }),
    ],
  };
  pick(random, spoil[kind])();
  return object;
}

function removeIdentifiers(object: TrafficObject): void {
  delete object.external_id;
  delete object.user_alias;
}

function attributes(random: () => number, now: number): TrafficObject {
  const object: TrafficObject = {};
  for (let count = 2 + Math.floor(random() * 3); count > 0; count--) {
    object[pick(random, attributeNames)] = pick(random, [Math.floor(random() * 1000), 'some value', true]);
  }
  const more = random();
  if (more < 0.2)
    Object.assign(object, { first_name: 'Ada', country: pick(random, countries), language: 'en' });
  else if (more < 0.35) object.visits = { inc: 1 };
  else if (more < 0.45) object.interests = { add: [pick(random, plans)] };
  else if (more < 0.5) object.last_seen = { $time: new Date(now).toISOString() };
  return object;
}

function event(random: () => number): TrafficObject {
  return {
    name: pick(random, eventNames),
    app_id: 'web',
    properties: {
      plan: pick(random, plans),
      page: pick(random, pages),
      duration_ms: Math.floor(random() * 30_000),
      first_visit: random() < 0.1,
    },
  };
}

function purchase(random: () => number): TrafficObject {
  return {
    product_id: pick(random, products),
    currency: pick(random, ['EUR', 'USD', 'JPY']),
    price: Math.floor(random() * 20_000) / 100,
    quantity: 1 + Math.floor(random() * 3),
    ...(random() < 0.3 && { properties: { coupon: 'SPRING', gift: true } }),
  };
}
