import type { AcceptedAttributes, AcceptedObject, Envelope, EnvelopeRequest } from '../jobs/envelope.ts';
import type { AttributesDelta } from '../profile/attribute-rule.ts';
import type { Identifier } from '../profile/identifier.ts';
import { type Json, JsonText } from '../profile/json.ts';

/**
 * Envelopes as they lie in the lanes. An object of /users/track is a row of values there instead of members with names,
 * which takes two thirds of the bytes and half of the time to be read. Identity operations and subscription states are
 * few, and stand as they are. So does every object that an earlier release wrote.
 *
 * Codes and places are permanent, and rows only grow: a worker meets what an older edge wrote.
 */
export interface WireEnvelope extends Omit<Envelope, 'objects'> {
  /** Of how it lies in the lane; absent: 1. */
  version?: number;
  objects: (AcceptedObject | Row)[];
}

/**
 * The version that is written. 1: objects with the names of their members; 2: rows. A new form of a row, a new kind of
 * object, whatever a worker of the release before would not apply as it is meant, is a new version. A release writes
 * only what the workers of the release before it read: first one reads it, the next one writes it. So their processes
 * can be replaced in any order, forward and back (test/upgrade/previous.rules.test.ts).
 */
export const WRITES = 2;

/** The latest version that is read. */
export const READS = 2;

/** Of an envelope as it lies in a lane. What names no version is of the first, whatever it is. */
export function versionOf(wire: unknown): number {
  const version = (wire as { version?: unknown } | null | undefined)?.version;
  return Number.isSafeInteger(version) ? (version as number) : 1;
}

/** Code, id, index, identifier, and what the kind has. What is absent at a row's end is left out; elsewhere it is 0. */
type Row = unknown[];

const CODES = { attributes: 1, events: 2, purchases: 3 } as const;

/** Of an object that makes no new profile. */
const NO_NEW = 1;

/**
 * Writes the objects of an envelope as rows. What another release may have accepted stands as it is: what is replayed, and
 * what it packed itself.
 */
export function encodeEnvelope(envelope: Envelope): WireEnvelope {
  const { replay, requests, objects } = envelope;
  // A fence mark holds nothing that would have a form.
  if (objects.length === 0) return envelope;
  if (replay || requests.some(isUncounted)) return envelope;
  return { version: WRITES, ...envelope, objects: objects.map(encodeObject) };
}

const isUncounted = ({ count }: EnvelopeRequest): boolean => count === undefined;

function encodeObject(object: AcceptedObject): AcceptedObject | Row {
  switch (object.kind) {
    case 'attributes': {
      const { kind, id, index, create, identifier } = object;
      const [code, who, delta] = [CODES[kind], whoOf(identifier), deltaOf(object)];
      return create === false ? [code, id, index, who, delta, NO_NEW] : [code, id, index, who, delta];
    }
    case 'events': {
      const { kind, id, index, create, identifier, name, time, app_id = 0, properties } = object;
      const row = [CODES[kind], id, index, whoOf(identifier), name, time, textOf(properties), app_id];
      return rowOf(row, create);
    }
    case 'purchases': {
      const { kind, id, index, create, identifier, product_id, currency, price, quantity } = object;
      const { time, app_id = 0, properties } = object;
      const [who, text] = [whoOf(identifier), textOf(properties)];
      // All at once: an array that grows by one makes room for many.
      const row = [CODES[kind], id, index, who, product_id, currency, price, quantity, time, text, app_id];
      return rowOf(row, create);
    }
    default:
      return object;
  }
}

/** Member by member: to leave out those that a row has elsewhere takes much longer. */
function deltaOf(object: AcceptedAttributes): AttributesDelta {
  const { standard, set, change, email_subscribe, push_subscribe, subscription_groups, push_tokens } = object;
  // What is undefined is not written.
  return {
    standard,
    set,
    change,
    email_subscribe,
    push_subscribe,
    subscription_groups,
    push_tokens,
  } as AttributesDelta;
}

function rowOf(row: Row, create: boolean | undefined): Row {
  if (create === false) row.push(NO_NEW);
  else while (row.at(-1) === 0) row.pop();
  return row;
}

/** Most users are named by their external id. */
function whoOf(identifier: Identifier | undefined): string | Identifier | 0 {
  return identifier === undefined ? 0 : 'external_id' in identifier ? identifier.external_id : identifier;
}

function textOf(properties: Record<string, Json> | JsonText | undefined): string | 0 {
  if (properties === undefined) return 0;
  return properties instanceof JsonText ? properties.text : JSON.stringify(properties);
}

/**
 * Reads what a lane held. What is no row that this release knows stays as it is: whoever opens the envelope says what is
 * wrong with it.
 */
export function decodeEnvelope(wire: WireEnvelope): Envelope {
  if (!Array.isArray(wire?.objects)) return wire as unknown as Envelope;
  const { version: _, ...envelope } = wire;
  return { ...envelope, objects: wire.objects.map(decodeObject) as AcceptedObject[] };
}

const decodeObject = (object: unknown) => (Array.isArray(object) ? decodeRow(object) : object);

/** Whether each member has the type that it should have is asked of all objects alike, whoever wrote them. */
function decodeRow(row: Row): unknown {
  const [code, id, index, who] = row;
  const identifier = typeof who === 'string' ? { external_id: who } : memberOf(who);
  switch (code) {
    case CODES.attributes:
      return {
        kind: 'attributes',
        id,
        index,
        create: createOf(row[5]),
        identifier,
        ...(row[4] as object),
      };
    case CODES.events:
      return {
        kind: 'events',
        id,
        index,
        create: createOf(row[8]),
        identifier,
        name: row[4],
        time: row[5],
        app_id: memberOf(row[7]),
        properties: propertiesOf(row[6]),
      };
    case CODES.purchases:
      return {
        kind: 'purchases',
        id,
        index,
        create: createOf(row[11]),
        identifier,
        product_id: row[4],
        currency: row[5],
        price: row[6],
        quantity: row[7],
        time: row[8],
        app_id: memberOf(row[10]),
        properties: propertiesOf(row[9]),
      };
    default:
      return row;
  }
}

function createOf(written: unknown): false | undefined {
  return written === NO_NEW ? false : undefined;
}

function memberOf(written: unknown): unknown {
  return written === 0 ? undefined : written;
}

function propertiesOf(written: unknown): unknown {
  return typeof written === 'string' && written.startsWith('{') ? new JsonText(written) : memberOf(written);
}
