import { describe, expect, test } from 'vitest';
import { namedIdentifiers } from '../../src/jobs/envelope.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import type { Json } from '../../src/profile/json.ts';
import { callerOf } from './caller.ts';

const type = 'provided external_id is blacklisted and disallowed';
const time = '2026-01-31T12:00:00Z';
const track = usersTrack('service_id');

/** Plans the body for a workspace in which these external ids are blocked. */
function plan(body: Record<string, Json>, ...blocked: string[]) {
  return track.plan(callerOf('shop', { isBlocked: (externalId) => blocked.includes(externalId) }), body);
}

describe('objects for a blocked external id', () => {
  test('are rejected one by one in each array, and the others of the request are accepted', () => {
    const { objects, rejected, reply } = plan(
      {
        attributes: [
          { external_id: 'ada', first_name: 'Ada' },
          { external_id: 'dummy', first_name: 'D' },
        ],
        events: [
          { external_id: 'dummy', name: 'seen', time },
          { external_id: 'ada', name: 'seen', time },
        ],
        purchases: [{ external_id: 'dummy', product_id: 'book', currency: 'EUR', price: 1, time }],
      },
      'dummy',
    );
    expect(reply).toEqual({
      status: 201,
      body: {
        attributes_processed: 1,
        events_processed: 1,
        message: 'success',
        errors: [
          { type, input_array: 'attributes', index: 1 },
          { type, input_array: 'events', index: 0 },
          { type, input_array: 'purchases', index: 0 },
        ],
      },
    });
    expect(rejected).toHaveLength(3);
    expect(objects.flatMap(namedIdentifiers)).toEqual([{ external_id: 'ada' }, { external_id: 'ada' }]);
  });

  test('are a request without any valid object if no others are sent', () => {
    const refused = () => plan({ events: [{ external_id: 'dummy', name: 'seen', time }] }, 'dummy');
    expect(refused).toThrow(
      expect.objectContaining({
        entry: 'nothingValid',
        rejected: [{ type, input_array: 'events', index: 0, reason: 'blocked', field: 'external_id' }],
      }),
    );
  });

  test('are rejected as blocked, also if they have other errors', () => {
    const { reply } = plan(
      { events: [{ external_id: 'dummy' }, { external_id: 'ada', name: 'a', time }] },
      'dummy',
    );
    expect(reply.body).toMatchObject({ errors: [{ type, input_array: 'events', index: 0 }] });
  });

  test('are rejected when the id is sent as a number', () => {
    const { reply } = plan(
      {
        attributes: [{ external_id: 7 }, { external_id: 70 }],
        events: [{ external_id: '7', name: 'a', time }],
      },
      '7',
    );
    expect(reply.body).toEqual({
      attributes_processed: 1,
      message: 'success',
      errors: [
        { type, input_array: 'attributes', index: 0 },
        { type, input_array: 'events', index: 0 },
      ],
    });
  });
});

describe('other users are accepted', () => {
  test('an id that differs in case, blanks or length is not blocked', () => {
    const ids = ['Dummy', ' dummy', 'dummy ', 'dumm', 'dummy2'];
    const { rejected } = plan({ attributes: ids.map((external_id) => ({ external_id })) }, 'dummy');
    expect(rejected).toHaveLength(0);
  });

  test('an alias, an address or a service id of the same text is not blocked', () => {
    const { rejected } = plan(
      {
        attributes: [
          { user_alias: { alias_name: 'dummy', alias_label: 'dummy' }, _update_existing_only: false },
          { email: 'dummy@example.com' },
          { service_id: 'a'.repeat(24) },
        ],
      },
      'dummy',
      'dummy@example.com',
      'a'.repeat(24),
    );
    expect(rejected).toHaveLength(0);
  });
});
