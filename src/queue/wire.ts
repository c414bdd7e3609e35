import type { AcceptedAttributes, AcceptedObject, Envelope } from '../jobs/envelope.ts';
import type { AttributesDelta } from '../profile/attribute-rule.ts';
import type { Identifier } from '../profile/identifier.ts';
import { type Json, JsonText } from '../profile/json.ts';

/**
 * An envelope as stored in a lane. Objects of /users/track are stored as arrays of values without member names, which
 * takes two thirds of the bytes and half of the parse time. Identity operations and subscription states are rare and
 * are stored as plain objects.
 *
 * Codes and array positions are permanent, and rows only grow at the end, because a worker also reads what an older
 * web process wrote.
 */
export interface WireEnvelope extends Omit<Envelope, 'objects'> {
  /** Version of the stored form; absent: 1. */
  version?: number;
  objects: (AcceptedObject | Row)[];
}

/**
 * The version that is written. 1: objects with member names; 2: rows. Anything that a worker of the previous release
 * would not apply as intended needs a new version, for example a new form of a row or a new kind of object. A release
 * writes only what the workers of the previous release can read: one release reads a new version, and the next
 * release writes it. Processes can then be replaced in any order, forward and back
 * (test/upgrade/previous.rules.test.ts).
 */
export const WRITES = 2;

/** The latest version that this release reads. */
export const READS = 2;

/** Reads the version of a stored envelope. Without a valid version it is 1. */
export function versionOf(wire: unknown): number {
  const version = (wire as { version?: unknown } | null | undefined)?.version;
  return Number.isSafeInteger(version) ? (version as number) : 1;
}

/**
 * Code, id, index, identifier, then the members of the kind. Absent values are omitted at the end of a row and are 0
 * elsewhere.
 */
type Row = unknown[];

const CODES = { attributes: 1, events: 2, purchases: 3 } as const;

/** Marks an object that must not create a profile. */
const NO_NEW = 1;

/** Writes the objects of an envelope as rows. A replay keeps its object, which another release may have accepted. */
export function encodeEnvelope(envelope: Envelope): WireEnvelope {
  const { replay, objects } = envelope;
  // A fence mark has no objects to encode.
  if (objects.length === 0) return envelope;
  if (replay) return envelope;
  return { version: WRITES, ...envelope, objects: objects.map(encodeObject) };
}

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
      // Build the row in one step: pushing to an array allocates more room than needed.
      const row = [CODES[kind], id, index, who, product_id, currency, price, quantity, time, text, app_id];
      return rowOf(row, create);
    }
    default:
      return object;
  }
}

/**
 * Copies the members one by one, which is much faster than a copy without the members that are in other fields of the
 * row.
 */
function deltaOf(object: AcceptedAttributes): AttributesDelta {
  const { standard, set, change, email_subscribe, push_subscribe, subscription_groups, push_tokens } = object;
  // JSON.stringify omits undefined members.
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

/** Most users are identified by their external id, which is stored as a plain string. */
function whoOf(identifier: Identifier | undefined): string | Identifier | 0 {
  return identifier === undefined ? 0 : 'external_id' in identifier ? identifier.external_id : identifier;
}

function textOf(properties: Record<string, Json> | JsonText | undefined): string | 0 {
  if (properties === undefined) return 0;
  return properties instanceof JsonText ? properties.text : JSON.stringify(properties);
}

/**
 * Reads a stored envelope. Objects that are not a known row are returned unchanged; the code that opens the envelope
 * reports the error.
 */
export function decodeEnvelope(wire: WireEnvelope): Envelope {
  if (!Array.isArray(wire?.objects)) return wire as unknown as Envelope;
  const { version: _, ...envelope } = wire;
  return { ...envelope, objects: wire.objects.map(decodeObject) as AcceptedObject[] };
}

const decodeObject = (object: unknown) => (Array.isArray(object) ? decodeRow(object) : object);

/** Does not check the types of the members: one check validates all objects, whichever release wrote them. */
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
