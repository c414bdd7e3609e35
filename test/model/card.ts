import { normalizePhone } from '../../src/profile/addresses.ts';
import type { Json } from '../../src/profile/json.ts';

export type Wire = Record<string, Json>;

/** One user of the model. */
export interface Card {
  /** 24 hexadecimal digits, for users that existed from the start. */
  serviceId: string | undefined;
  externalId: string | undefined;
  /** Deprecated external ids of the user. */
  deprecated: Set<string>;
  /** Name by label. */
  aliases: Map<string, string>;
  columns: Map<string, Json>;
  custom: Map<string, Json>;
  events: { name: string; time: string; properties: Json }[];
  purchases: { product: string; currency: string; price: number; quantity: number; time: string }[];
  /** States that the user has without an address. */
  states: Map<string, string>;
  tokens: Set<string>;
  /** Number of the last operation that updated the user. */
  updated: number;
}

export function emptyCard(updated: number): Card {
  return {
    serviceId: undefined,
    externalId: undefined,
    deprecated: new Set(),
    aliases: new Map(),
    columns: new Map(),
    custom: new Map(),
    events: [],
    purchases: [],
    states: new Map(),
    tokens: new Set(),
    updated,
  };
}

/** Copies a card. Values, events and purchases are shared, because they are never changed in place. */
export function copyOf(card: Card): Card {
  return {
    ...card,
    deprecated: new Set(card.deprecated),
    aliases: new Map(card.aliases),
    columns: new Map(card.columns),
    custom: new Map(card.custom),
    events: [...card.events],
    purchases: [...card.purchases],
    states: new Map(card.states),
    tokens: new Set(card.tokens),
  };
}

/** @param value undefined: the stored value stays */
export function setColumn({ columns }: Card, name: string, value: Json | undefined): void {
  if (value === undefined) return;
  if (value === null) columns.delete(name);
  else columns.set(name, value);
}

export function setPhone(card: Card, sent: string | null): void {
  const number = sent === null ? undefined : normalizePhone(sent)!;
  setColumn(card, 'phone', number?.phone ?? null);
  setColumn(card, 'phone_valid', number?.valid ?? null);
}

/** Returns the valid number of the user, if there is one. */
export function numberOf({ columns }: Card): Json | undefined {
  return columns.get('phone_valid') === true ? columns.get('phone') : undefined;
}

/** Summary of events or purchases as the store keeps it. */
export interface Sum {
  count: number;
  revenue: number;
  first: string;
  last: string;
}

/** Returns the summaries by event name. */
export function eventSums({ events }: Card): Map<string, Sum> {
  return sumUp(events.map(({ name, time }) => ({ key: name, count: 1, revenue: 0, time })));
}

/** Returns the summaries by product and currency. */
export function purchaseSums({ purchases }: Card): Map<string, Sum> {
  return sumUp(
    purchases.map(({ product, currency, price, quantity, time }) => ({
      key: `${product} ${currency}`,
      count: quantity,
      revenue: quantity * price,
      time,
    })),
  );
}

function sumUp(rows: { key: string; count: number; revenue: number; time: string }[]): Map<string, Sum> {
  const sums = new Map<string, Sum>();
  for (const { key, count, revenue, time } of rows) {
    const sum = sums.get(key);
    if (!sum) sums.set(key, { count, revenue, first: time, last: time });
    else {
      sum.count += count;
      sum.revenue += revenue;
      if (time < sum.first) sum.first = time;
      if (time > sum.last) sum.last = time;
    }
  }
  return sums;
}
