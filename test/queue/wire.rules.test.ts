import { describe, expect, test } from 'vitest';
import type { AcceptedObject, Envelope } from '../../src/jobs/envelope.ts';
import { newId } from '../../src/platform/ids.ts';
import { JsonText } from '../../src/profile/json.ts';
import {
  decodeEnvelope,
  encodeEnvelope,
  versionOf,
  type WireEnvelope,
  WRITES,
} from '../../src/queue/wire.ts';

const time = '2026-01-31T12:00:00.000Z';
const bought = { product_id: 'book', currency: 'EUR', price: -12.5, quantity: 2, time };
const words = 'a "quoted" \\ word, \u2028 and \u{1f600}';

/** One object in each form that /users/track can produce. */
function objects(): AcceptedObject[] {
  const placeOf = (index: number) => ({ id: newId(), index });
  return [
    { kind: 'attributes', ...placeOf(0), identifier: { external_id: '' }, set: { plan: words, gone: null } },
    { kind: 'attributes', ...placeOf(1), identifier: { email: 'a@example.com' }, create: false, change: {} },
    { kind: 'attributes', ...placeOf(74), push_tokens: [{ app_id: 'a', token: 't', device_id: 'd' }] },
    { kind: 'events', ...placeOf(0), identifier: { external_id: '0' }, name: words, time },
    {
      kind: 'events',
      ...placeOf(2),
      identifier: { service_id: 'a'.repeat(24) },
      name: 'n',
      time,
      app_id: '0',
    },
    { kind: 'events', ...placeOf(3), identifier: { phone: '+4915' }, create: false, name: 'n', time },
    {
      ...{ kind: 'events', ...placeOf(4), identifier: { external_id: 'x' }, name: 'n', time, app_id: 'web' },
      ...{ properties: { plan: words, list: [1, { deep: null }] }, create: false },
    },
    { kind: 'purchases', ...placeOf(0), identifier: { external_id: 'x' }, ...bought },
    {
      ...{
        kind: 'purchases',
        ...placeOf(1),
        identifier: { user_alias: { alias_name: 'n', alias_label: 'l' } },
      },
      ...{ ...bought, app_id: 'web', properties: { words }, create: false },
    },
    { kind: 'delete', ...placeOf(0), user: { identifier: { external_id: 'x' } } },
    { kind: 'email_change', ...placeOf(0), email: 'a@example.com', state: 'opted_in' },
  ];
}

function envelopeOf(given: AcceptedObject[]): Envelope {
  const request = { request_id: newId(), workspace_id: newId(), accepted_at: time, count: given.length };
  return { requests: [request], objects: given };
}

/** Encodes an envelope to the text in the lane, and decodes it. */
function travel(envelope: Envelope): Envelope {
  return decodeEnvelope(JSON.parse(JSON.stringify(encodeEnvelope(envelope))));
}

const plain = (value: unknown) => JSON.parse(JSON.stringify(value));

describe('G1: a lane returns accepted objects unchanged', () => {
  test('each form of each object is decoded as it was encoded', () => {
    const envelope = envelopeOf(objects());
    expect(plain(travel(envelope))).toEqual(plain(envelope));
  });

  test('properties are decoded as text, and dead letters contain them completely', () => {
    const [event] = travel(envelopeOf(objects().slice(6, 7))).objects as unknown as [
      { properties: JsonText },
    ];
    expect(event.properties).toBeInstanceOf(JsonText);
    expect(plain(event).properties).toEqual({ plan: words, list: [1, { deep: null }] });
  });
});

describe('other releases', () => {
  test('an envelope has its version; without a valid version it is version 1', () => {
    expect(versionOf(encodeEnvelope(envelopeOf(objects())))).toBe(WRITES);
    expect(versionOf(travel(envelopeOf(objects())))).toBe(1);
    for (const other of [null, undefined, 'x', {}, { version: '9' }, { version: 1.5 }])
      expect(versionOf(other)).toBe(1);
    expect(versionOf({ version: 9 })).toBe(9);
  });

  test('objects of an earlier release are read unchanged', () => {
    const envelope = { ...envelopeOf(objects()), replay: true as const };
    expect(decodeEnvelope(plain(envelope))).toEqual(plain(envelope));
  });

  test('unknown rows and invalid envelopes are returned unchanged', () => {
    const rows = [[9, newId(), 0, 'x'], [], null, 7, 'x'];
    const wire = { requests: [], objects: rows } as unknown as WireEnvelope;
    expect(decodeEnvelope(wire).objects).toEqual(rows);
    for (const other of [null, {}, [], 'x', { objects: 1 }])
      expect(decodeEnvelope(other as unknown as WireEnvelope)).toEqual(other);
  });

  test('a member of a row with a wrong type is kept for validation', () => {
    const id = newId();
    const wire = { requests: [], objects: [[2, id, 'first', 5, 6, 7, '[1]', 8]] } as unknown as WireEnvelope;
    expect(decodeEnvelope(wire).objects).toEqual([
      { kind: 'events', id, index: 'first', identifier: 5, name: 6, time: 7, app_id: 8, properties: '[1]' },
    ]);
  });
});
