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

/** One of each form that an object of /users/track can have. */
function objects(): AcceptedObject[] {
  const place = (index: number) => ({ id: newId(), index });
  return [
    { kind: 'attributes', ...place(0), identifier: { external_id: '' }, set: { plan: words, gone: null } },
    { kind: 'attributes', ...place(1), identifier: { email: 'a@example.com' }, create: false, change: {} },
    { kind: 'attributes', ...place(74), push_tokens: [{ app_id: 'a', token: 't', device_id: 'd' }] },
    { kind: 'events', ...place(0), identifier: { external_id: '0' }, name: words, time },
    { kind: 'events', ...place(2), identifier: { service_id: 'a'.repeat(24) }, name: 'n', time, app_id: '0' },
    { kind: 'events', ...place(3), identifier: { phone: '+4915' }, create: false, name: 'n', time },
    {
      ...{ kind: 'events', ...place(4), identifier: { external_id: 'x' }, name: 'n', time, app_id: 'web' },
      ...{ properties: { plan: words, list: [1, { deep: null }] }, create: false },
    },
    { kind: 'purchases', ...place(0), identifier: { external_id: 'x' }, ...bought },
    {
      ...{
        kind: 'purchases',
        ...place(1),
        identifier: { user_alias: { alias_name: 'n', alias_label: 'l' } },
      },
      ...{ ...bought, app_id: 'web', properties: { words }, create: false },
    },
    { kind: 'delete', ...place(0), user: { identifier: { external_id: 'x' } } },
    { kind: 'email_change', ...place(0), email: 'a@example.com', state: 'opted_in' },
  ];
}

function envelopeOf(given: AcceptedObject[]): Envelope {
  const request = { request_id: newId(), workspace_id: newId(), accepted_at: time, count: given.length };
  return { requests: [request], objects: given };
}

/** Through the lane's text and back. */
function travel(envelope: Envelope): Envelope {
  return decodeEnvelope(JSON.parse(JSON.stringify(encodeEnvelope(envelope))));
}

const plain = (value: unknown) => JSON.parse(JSON.stringify(value));

describe('G1: what a lane holds is what was accepted', () => {
  test('each form of each object comes out as it went in', () => {
    const envelope = envelopeOf(objects());
    expect(plain(travel(envelope))).toEqual(plain(envelope));
  });

  test('properties are handed on as their text, and dead letters have them whole', () => {
    const [event] = travel(envelopeOf(objects().slice(6, 7))).objects as unknown as [
      { properties: JsonText },
    ];
    expect(event.properties).toBeInstanceOf(JsonText);
    expect(plain(event).properties).toEqual({ plan: words, list: [1, { deep: null }] });
  });
});

describe('other releases', () => {
  test('what is written says its version; what does not say one, or nothing like one, is of the first', () => {
    expect(versionOf(encodeEnvelope(envelopeOf(objects())))).toBe(WRITES);
    expect(versionOf(travel(envelopeOf(objects())))).toBe(1);
    for (const other of [null, undefined, 'x', {}, { version: '9' }, { version: 1.5 }])
      expect(versionOf(other)).toBe(1);
    expect(versionOf({ version: 9 })).toBe(9);
  });

  test('objects of an earlier one are read as they stand', () => {
    const envelope = { ...envelopeOf(objects()), replay: true as const };
    expect(decodeEnvelope(plain(envelope))).toEqual(plain(envelope));
  });

  test('a row that this one does not know, and what is no envelope, stay as they are', () => {
    const rows = [[9, newId(), 0, 'x'], [], null, 7, 'x'];
    const wire = { requests: [], objects: rows } as unknown as WireEnvelope;
    expect(decodeEnvelope(wire).objects).toEqual(rows);
    for (const other of [null, {}, [], 'x', { objects: 1 }])
      expect(decodeEnvelope(other as unknown as WireEnvelope)).toEqual(other);
  });

  test('a member of a row that has another type is there for its check', () => {
    const id = newId();
    const wire = { requests: [], objects: [[2, id, 'first', 5, 6, 7, '[1]', 8]] } as unknown as WireEnvelope;
    expect(decodeEnvelope(wire).objects).toEqual([
      { kind: 'events', id, index: 'first', identifier: 5, name: 6, time: 7, app_id: 8, properties: '[1]' },
    ]);
  });
});
