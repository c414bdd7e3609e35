import type { Json } from '../../../src/profile/json.ts';

/** What an object is; `bad` ones lack their name and are refused by the edge. */
export const kinds = ['attributes', 'events', 'purchases', 'bad'] as const;
export type Kind = (typeof kinds)[number];

export type Wire = Record<string, Json>;

/** Rounds of one person: the array attribute `log` stays far below the 500 elements that an array can hold. */
export const ROUNDS = 100;

/** Times of events are apart, and in the past. */
const EPOCH = Date.UTC(2026, 0, 1);

/** One object as it is sent. */
export interface Made {
  kind: Kind;
  object: Wire;
}

export const nameOf = (person: number) => `person-${person}`;

/** The kinds of the objects of a round, in the order of their numbers. */
export function kindsOf(round: number): Kind[] {
  const list: Kind[] = ['attributes', 'events'];
  if (round % 2 === 1) list.push('events');
  if (round % 3 === 0) list.push('purchases');
  if (round % 5 === 0) list.push('bad');
  return list;
}

/**
 * The objects of one round, from 1, of a person; the same whenever it is asked for. Each carries its number, which
 * occurs nowhere else: an attribute object adds it to the person's array `log`, counts up `seq` and adds 1 to
 * `points`; events and purchases have it as a property.
 *
 * @param first number of the first of them; the others follow
 */
export function makeRound(person: number, round: number, first: number): Made[] {
  const { plain, creating } = addressOf(person);
  return kindsOf(round).map((kind, index) => {
    const n = first + index;
    const time = new Date(EPOCH + n * 1000).toISOString();
    const properties = { n };
    switch (kind) {
      case 'attributes': {
        const name = nameOf(person);
        return { kind, object: { ...creating, name, seq: round, log: { add: [n] }, points: { inc: 1 } } };
      }
      case 'events':
        return { kind, object: { ...plain, name: `event-${round % 3}`, time, properties } };
      case 'purchases': {
        const product = {
          product_id: `product-${round % 4}`,
          currency: 'EUR',
          price: 0.25 * (round % 7),
          quantity: 1 + (round % 5),
        };
        return { kind, object: { ...plain, ...product, time, properties } };
      }
      default:
        return { kind, object: { ...plain, time, properties } };
    }
  });
}

/** By number: one in four is addressed by external id, by alias, by email and by phone. */
function addressOf(person: number): { plain: Wire; creating: Wire } {
  const name = nameOf(person);
  const kinds: Wire[] = [
    { external_id: name },
    // Only the attribute object may create it: what follows counts on their order.
    { user_alias: { alias_name: name, alias_label: 'test' } },
    { email: `${name}@example.com` },
    { phone: `+4420718${String(person).padStart(5, '0')}` },
  ];
  const plain = kinds[person % kinds.length]!;
  return { plain, creating: 'user_alias' in plain ? { ...plain, _update_existing_only: false } : plain };
}
