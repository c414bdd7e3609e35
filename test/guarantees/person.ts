/** Rounds of one user: its array attribute `log` stays below the 500 elements that an array can hold. */
const MOST_ROUNDS = 100;

type Identifiers = Record<string, unknown>;

/** One object as it was sent, in the words of the one who checks. */
export type Sent =
  | { kind: 'attributes'; user: string; seq: number }
  | { kind: 'events' | 'purchases'; user: string; tag: string }
  /** Refused by the edge, and so nowhere to be found. */
  | { kind: 'bad'; tag: string };

/** Objects that the edge takes when it takes the request. */
export function countGood(sent: Sent[]): number {
  return sent.filter(({ kind }) => kind !== 'bad').length;
}

export interface Round {
  attributes: object[];
  events: object[];
  purchases: object[];
  sent: Sent[];
}

/** A user whose every round counts up `seq`, adds it to `log`, and adds 1 to `points`. */
export interface Person {
  name: string;
  /** Whether all its rounds are played. */
  done(): boolean;
  /** Adds the objects of its next round, with ids that occur nowhere else. */
  play(round: Round): void;
}

/** By number: one in four is addressed by external id, by alias, by email and by phone. */
export function createPerson(number: number, owner: number): Person {
  const name = `user-${owner}-${number}`;
  const address = addressOf(name, number, owner);
  let seq = 0;
  return {
    name,
    done: () => seq >= MOST_ROUNDS,
    play(round) {
      seq++;
      const time = new Date().toISOString();
      round.attributes.push({ ...address.creating, name, seq, log: { add: [seq] }, points: { inc: 1 } });
      round.sent.push({ kind: 'attributes', user: name, seq });
      for (let index = 0; index < 1 + (seq % 2); index++) {
        const tag = `${name}/${seq}/event/${index}`;
        round.events.push({ ...address.plain, name: `event-${seq % 3}`, time, properties: { tag } });
        round.sent.push({ kind: 'events', user: name, tag });
      }
      if (seq % 3 === 0) {
        const tag = `${name}/${seq}/purchase`;
        const product = {
          product_id: `product-${seq % 4}`,
          currency: 'EUR',
          price: 0.1 * (seq % 7),
          quantity: 1 + (seq % 5),
        };
        round.purchases.push({ ...address.plain, ...product, time, properties: { tag } });
        round.sent.push({ kind: 'purchases', user: name, tag });
      }
      if (seq % 5 === 0) {
        const tag = `${name}/${seq}/bad`;
        round.events.push({ ...address.plain, time, properties: { tag } });
        round.sent.push({ kind: 'bad', tag });
      }
    },
  };
}

function addressOf(
  name: string,
  number: number,
  owner: number,
): { plain: Identifiers; creating: Identifiers } {
  const kinds: Identifiers[] = [
    { external_id: name },
    // Only the attribute object may create it: the event behind it counts on their order.
    { user_alias: { alias_name: name, alias_label: 'test' } },
    { email: `${name}@example.com` },
    { phone: `+4420718${String(owner).padStart(2, '0')}${String(number).padStart(3, '0')}` },
  ];
  const plain = kinds[number % kinds.length]!;
  return { plain, creating: 'user_alias' in plain ? { ...plain, _update_existing_only: false } : plain };
}
