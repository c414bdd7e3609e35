import type { AcceptedEvent, AcceptedPurchase } from '../../jobs/envelope.ts';
import { normalizeCurrency } from '../../profile/currency.ts';
import type { Json } from '../../profile/json.ts';
import { checkProperties } from '../../profile/properties.ts';
import { parseTime, toIso } from '../../profile/time.ts';
import { isPresent, type Judge, type Verdict } from './accept.ts';

/** Judges an event whose shape and identifier are right already. */
export function judgeEvent(object: Record<string, Json>, base: Judge): Verdict {
  const activity = judgeActivity(object, 'events', base.now);
  if ('error' in activity) return activity;
  const event: AcceptedEvent = {
    kind: 'events',
    id: base.id,
    request: 0,
    index: base.index,
    create: base.create,
    identifier: base.identifier,
    name: object.name as string,
    ...activity,
  };
  return { object: event };
}

/** Judges a purchase whose shape and identifier are right already. */
export function judgePurchase(object: Record<string, Json>, base: Judge): Verdict {
  const currency = normalizeCurrency(object.currency as string);
  if (!currency) return { error: "'currency' is not valid: it must be an ISO 4217 currency code" };
  const activity = judgeActivity(object, 'purchases', base.now);
  if ('error' in activity) return activity;
  const purchase: AcceptedPurchase = {
    kind: 'purchases',
    id: base.id,
    request: 0,
    index: base.index,
    create: base.create,
    identifier: base.identifier,
    product_id: object.product_id as string,
    currency,
    price: object.price as number,
    quantity: (object.quantity as number | null | undefined) ?? 1,
    ...activity,
  };
  return { object: purchase };
}

type Activity = { time: string; app_id?: string; properties?: Record<string, Json> };

/** What events and purchases have in common: when, in which app, with which properties. */
function judgeActivity(
  object: Record<string, Json>,
  kind: 'events' | 'purchases',
  now: number,
): Activity | { error: string } {
  const time = parseTime(object.time as string);
  if (time === undefined) {
    return { error: "'time' is not valid: it must be a time in ISO 8601 or as yyyy-MM-dd'T'HH:mm:ss:SSSZ" };
  }
  const checked = checkProperties(object.properties, kind);
  if ('error' in checked) return checked;
  const activity: Activity = { time: toIso(Math.min(time, now)) };
  if (isPresent(object.app_id)) activity.app_id = object.app_id as string;
  if (checked.properties && Object.keys(checked.properties).length > 0)
    activity.properties = checked.properties;
  return activity;
}
