import { eventSums, purchaseSums } from '../../../test/model/card.ts';
import { SequentialModel } from '../../../test/model/sequential-model.ts';
import type { Journal } from '../load/journal.ts';
import { type Made, makeRound } from '../load/people.ts';
import type { StoredPerson } from './stored-people.ts';

/**
 * Returns the state of a person in the sequential model, in the form of `describePerson`. The model applies
 * the objects that took effect, with attributes in the order in which they took effect. Checks I1 to I4
 * verify that these are the right objects in the right order. Each object is applied once, even if it is
 * stored several times.
 */
export function expectedPerson(
  journal: Journal,
  { custom }: StoredPerson,
  objects: number[],
  counts: Uint8Array,
): string {
  const made = new Map<number, Made>();
  let first = -1;
  for (const object of objects) {
    if (journal.kindOf(object) === 'attributes') {
      first = object;
      const round = makeRound(journal.userOf(object), journal.roundOf(object), first);
      for (let index = 0; index < round.length; index++) made.set(first + index, round[index]!);
    }
  }
  const model = new SequentialModel();
  const apply = (object: number) => {
    const { kind, object: wire } = made.get(object)!;
    if (kind !== 'bad') model.apply(kind, wire);
  };
  for (const object of custom.log) if (made.has(object)) apply(object);
  for (const object of objects) {
    if (counts[object]! > 0 && journal.kindOf(object) !== 'attributes') apply(object);
  }
  if (model.cards.length !== 1) return `${model.cards.length} users`;
  const card = model.cards[0]!;
  return describe({
    externalId: card.externalId ?? null,
    aliases: [...card.aliases].map(([label, name]) => `${label}:${name}`),
    email: (card.columns.get('email') as string | undefined) ?? null,
    phone: (card.columns.get('phone') as string | undefined) ?? null,
    custom: Object.fromEntries(card.custom),
    events: [...eventSums(card)].map(
      ([name, { count, first, last }]) =>
        `${name} ${count} ${Date.parse(first) / 1000} ${Date.parse(last) / 1000}`,
    ),
    purchases: [...purchaseSums(card)].map(([key, { count, revenue }]) => `${key} ${count} ${revenue}`),
  });
}

/** Formats a person as one line of text. */
export function describePerson(person: StoredPerson): string {
  return describe(person);
}

function describe(
  person: Omit<StoredPerson, 'name' | 'custom'> & { custom: Record<string, unknown> },
): string {
  const { externalId, aliases, email, phone, custom, events, purchases } = person;
  const sortedCustom = Object.fromEntries(Object.entries(custom).sort(([a], [b]) => (a < b ? -1 : 1)));
  return JSON.stringify([
    ...[externalId, [...aliases].sort(), email, phone, sortedCustom],
    ...[[...events].sort(), [...purchases].sort()],
  ]);
}
