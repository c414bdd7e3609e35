import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Json } from '../../src/profile/json.ts';
import type { Wire } from '../../test/model/card.ts';
import type { Kind } from '../../test/model/identity-model.ts';
import type { PlannedObject } from './plan.ts';

/** An element of a request, as a client writes it. */
export interface Element {
  kind: Kind;
  wire: Wire;
}

const ALIAS_LABEL = 'shop';

/** Times of events are seconds of the day before the simulation begins: web sets later times to its own. */
const FIRST_TIME = Date.UTC(2029, 11, 31);

const aliasOf = (name: string): { alias_label: string; alias_name: string } => ({
  alias_label: ALIAS_LABEL,
  alias_name: name,
});

/** Strings with so many characters in all. */
const textsOf = (size: number): string[] =>
  Array.from({ length: Math.ceil(size / 250) }, () => 'x'.repeat(250));

/** Names of the users that an object names, within its workspace. */
export function namesOf({ users, alias }: PlannedObject): string[] {
  return [...new Set([...users, ...(alias === undefined ? [] : [`alias ${alias}`])])];
}

/** Writes an object as an element of a request. @param number differs for each object of a simulation */
export function elementOf(object: PlannedObject, number: number): Element {
  const [first, second = first] = object.users;
  const { alias, size = 0 } = object;
  const who: Wire =
    first === undefined
      ? { user_alias: aliasOf(alias!), _update_existing_only: false }
      : { external_id: first };
  const time = new Date(FIRST_TIME + (number % 86_400) * 1000).toISOString();
  switch (object.kind) {
    case 'event': {
      const properties: Record<string, Json> = { number, ...(size > 0 && { texts: textsOf(size) }) };
      return {
        kind: 'events',
        wire: { ...who, name: number % 3 === 0 ? 'clicked' : 'seen', time, properties },
      };
    }
    case 'purchase': {
      const what = { product_id: number % 2 === 0 ? 'book' : 'lamp', currency: 'EUR', price: 3, quantity: 2 };
      return { kind: 'purchases', wire: { ...who, ...what, time } };
    }
    case 'attributes':
      return {
        kind: 'attributes',
        wire: { ...who, visits: { inc: 1 }, last: number, seen: { add: [String(number)] } },
      };
    case 'identify':
      return { kind: 'identify', wire: { external_id: first!, user_alias: aliasOf(alias!) } };
    case 'delete':
      return { kind: 'delete', wire: { external_id: first! } };
    case 'merge':
      return {
        kind: 'merge',
        wire: { identifier_to_merge: { external_id: first! }, identifier_to_keep: { external_id: second! } },
      };
  }
}

interface Acceptance {
  /** Judges an object of `/users/track` with the code of web. */
  accept(kind: 'events' | 'purchases' | 'attributes', wire: Wire, index: number): AcceptedObject;
  newId(): string;
}

/** Makes the object that web hands to the lanes. */
export function acceptedOf(
  { kind, wire }: Element,
  index: number,
  { accept, newId }: Acceptance,
): AcceptedObject {
  switch (kind) {
    case 'events':
    case 'purchases':
    case 'attributes':
      return accept(kind, wire, index);
    case 'identify': {
      const identifier = { user_alias: wire.user_alias as { alias_label: string; alias_name: string } };
      return {
        ...{ kind, id: newId(), index, user: { identifier } },
        external_id: wire.external_id as string,
      };
    }
    case 'delete': {
      const identifier = { external_id: wire.external_id as string };
      return { kind, id: newId(), index, user: { identifier } };
    }
    case 'merge': {
      const identifierOf = (value: Json | undefined) => value as { external_id: string };
      return {
        ...{ kind, id: newId(), index },
        merge: { identifier: identifierOf(wire.identifier_to_merge) },
        keep: { identifier: identifierOf(wire.identifier_to_keep) },
      };
    }
    default:
      throw new Error(`no simulation sends ${kind}`);
  }
}
