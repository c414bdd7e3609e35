import { expect, test } from 'vitest';
import { capacityOf } from '../../src/edge/admission.ts';
import { usersTrackBulk } from '../../src/operations/users.track.bulk.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import type { Json } from '../../src/profile/json.ts';
import { callerOf } from './caller.ts';

const bulk = usersTrackBulk('service_id');
const plan = (body: Record<string, Json>) => bulk.plan(callerOf('shop'), body);
const time = '2026-01-31T12:00:00Z';
const seen = (external_id: string) => ({ external_id, name: 'seen', time });
const people = (count: number) => Array.from({ length: count }, (_, n) => `user ${n}`);

// "can include up to 1,000 objects total across attributes, events, and purchases": the public page of
// POST /users/track/bulk, as the next two.
test('accepts 1,000 objects in any arrays, and rejects a request with one more', () => {
  const attributes = people(600).map((external_id) => ({ external_id, first_name: 'A' }));
  const events = people(400).map(seen);
  expect(plan({ attributes, events }).reply.body).toEqual({
    ...{ attributes_processed: 600, events_processed: 400, message: 'success' },
  });
  expect(() => plan({ attributes, events: [...events, seen('one more')] })).toThrow(
    'Max Input Length Exceeded',
  );
});

// "a maximum of 100 objects per user profile across attributes, events, and purchases"
test('accepts 100 objects of one user, and names the rejected ones after them', () => {
  const attributes = Array.from({ length: 60 }, () => ({ external_id: 'ada', points: { inc: 1 } }));
  const events = [...Array.from({ length: 42 }, () => seen('ada')), seen('bob')];
  const { objects, rejected, reply } = plan({ attributes, events });
  expect(objects).toHaveLength(101);
  expect(rejected).toHaveLength(2);
  const type =
    'too many objects for this user: at most 100 objects per request. Send the rest in another request.';
  expect(reply.body).toEqual({
    ...{ attributes_processed: 60, events_processed: 41, message: 'success' },
    errors: [40, 41].map((index) => ({ type, input_array: 'events', index })),
  });
});

// "a payload limit of 2 MB", "requests to /users/track are prioritized over requests to /users/track/bulk", "50 requests
// per second"
test('has a smaller body limit, lower priority, and a limit and permission of its own', () => {
  expect(bulk).toMatchObject({ maxBytes: 2_097_152 });
  expect([capacityOf(bulk), capacityOf(usersTrack('service_id'))]).toEqual(['half-full queue', 'queue']);
  expect(bulk).toMatchObject({ bucket: 'users.track.bulk', permission: 'users.track.bulk' });
});
