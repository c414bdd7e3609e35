import type { Json } from '../../../src/profile/json.ts';

/** Kinds of objects. `bad` objects lack their name and are rejected by web. */
export const kinds = ['attributes', 'events', 'purchases', 'bad'] as const;
export type Kind = (typeof kinds)[number];

export type Wire = Record<string, Json>;

/**
 * Maximum rounds of a person, so that its array attribute `log` stays far below the limit of 500 elements.
 */
export const ROUNDS = 100;

/** Start of the times of events, which are all different and in the past. */
const EPOCH = Date.UTC(2026, 0, 1);

/** An object as it is sent. */
export interface Made {
  kind: Kind;
  object: Wire;
}

export const nameOf = (person: number) => `person-${person}`;

/** Returns the kinds of the objects of a round, in the order of their numbers. */
export function kindsOf(round: number): Kind[] {
  const list: Kind[] = ['attributes', 'events'];
  if (round % 2 === 1) list.push('events');
  if (round % 3 === 0) list.push('purchases');
  if (round % 5 === 0) list.push('bad');
  return list;
}

/**
 * Returns the objects of a round of a person; rounds begin at 1. The result depends only on the arguments.
 * Each object contains its unique number: an attribute object adds it to the person's array `log`, sets `seq`
 * and adds 1 to `points`; events and purchases have it as a property.
 *
 * @param first number of the first object; the others follow
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

/**
 * Returns the identifier of a person. External id, alias, email and phone are used by a quarter of the people
 * each.
 */
function addressOf(person: number): { plain: Wire; creating: Wire } {
  const name = nameOf(person);
  const kinds: Wire[] = [
    { external_id: name },
    // Only the attribute object may create the user: the following objects depend on their order.
    { user_alias: { alias_name: name, alias_label: 'test' } },
    { email: `${name}@example.com` },
    { phone: `+4420718${String(person).padStart(5, '0')}` },
  ];
  const plain = kinds[person % kinds.length]!;
  return { plain, creating: 'user_alias' in plain ? { ...plain, _update_existing_only: false } : plain };
}
