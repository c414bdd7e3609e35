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

/**
 * The earliest time of an event, in epoch milliseconds. Events occur on the day before the simulation begins, because web
 * replaces times in the future.
 */
const FIRST_TIME = Date.UTC(2029, 11, 31);

const aliasOf = (name: string): { alias_label: string; alias_name: string } => ({
  alias_label: ALIAS_LABEL,
  alias_name: name,
});

/** Returns strings of 250 characters that have at least `size` characters in total. */
const textsOf = (size: number): string[] =>
  Array.from({ length: Math.ceil(size / 250) }, () => 'x'.repeat(250));

/** Returns the names of the users in an object. A name is unique in its workspace. */
export function namesOf({ users, alias }: PlannedObject): string[] {
  return [...new Set([...users, ...(alias === undefined ? [] : [`alias ${alias}`])])];
}

/** Converts an object to an element of a request. @param number a different number for each object of a simulation */
export function elementOf(object: PlannedObject, number: number): Element {
  const [first, second = first] = object.users;
  const { alias, size = 0 } = object;
  const identifier: Wire =
    first === undefined
      ? { user_alias: aliasOf(alias!), _update_existing_only: false }
      : { external_id: first };
  const time = new Date(FIRST_TIME + (number % 86_400) * 1000).toISOString();
  switch (object.kind) {
    case 'event': {
      const properties: Record<string, Json> = { number, ...(size > 0 && { texts: textsOf(size) }) };
      return {
        kind: 'events',
        wire: { ...identifier, name: number % 3 === 0 ? 'clicked' : 'seen', time, properties },
      };
    }
    case 'purchase': {
      const item = { product_id: number % 2 === 0 ? 'book' : 'lamp', currency: 'EUR', price: 3, quantity: 2 };
      return { kind: 'purchases', wire: { ...identifier, ...item, time } };
    }
    case 'attributes':
      return {
        kind: 'attributes',
        wire: { ...identifier, visits: { inc: 1 }, last: number, seen: { add: [String(number)] } },
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
  /** Validates an object of `/users/track` with the code of web. */
  accept(kind: 'events' | 'purchases' | 'attributes', wire: Wire, index: number): AcceptedObject;
  newId(): string;
}

/** Converts an element to the object that web adds to the lanes. */
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
