import { expect, test } from 'vitest';
import { allOperations } from '../../src/operations/index.ts';
import { type BucketName, buckets } from '../../src/schemas/limits.ts';

/** Returns the requests and seconds of the limit, and the endpoints that share it. */
function limitOf(bucket: BucketName) {
  const { requests, windowSeconds } = buckets[bucket];
  const paths = allOperations('service_id').flatMap((one) => (one.bucket === bucket ? [one.path] : []));
  return { requests, windowSeconds, paths: paths.sort() };
}

test('merge, delete, both alias operations and identify share 20,000 requests a minute', () => {
  expect(limitOf('users.identity')).toEqual({
    requests: 20_000,
    windowSeconds: 60,
    paths: ['/users/alias/new', '/users/alias/update', '/users/delete', '/users/identify', '/users/merge'],
  });
});

test('rename and remove of external ids share 1,000 requests a minute', () => {
  expect(limitOf('users.external_ids')).toEqual({
    requests: 1000,
    windowSeconds: 60,
    paths: ['/users/external_ids/remove', '/users/external_ids/rename'],
  });
});

test('both forms of /subscription/status/set share 5,000 requests a minute', () => {
  expect(limitOf('subscription.status.set')).toEqual({
    requests: 5000,
    windowSeconds: 60,
    paths: ['/subscription/status/set', '/v2/subscription/status/set'],
  });
});

test('state reads, event series, segments and /email share the default 250,000 per hour', () => {
  expect(limitOf('default')).toEqual({
    requests: 250_000,
    windowSeconds: 3600,
    paths: [
      '/campaigns/list',
      '/canvas/list',
      '/email/blacklist',
      '/email/blocklist',
      '/email/bounce/remove',
      '/email/hard_bounces',
      '/email/spam/remove',
      '/email/status',
      '/email/unsubscribes',
      '/events/data_series',
      '/feed/list',
      '/segments/details',
      '/segments/list',
      '/sms/invalid_phone_numbers',
      '/sms/invalid_phone_numbers/remove',
      '/subscription/status/get',
      '/subscription/user/status',
      '/users/export/segment',
    ],
  });
});

test('lists of events, products and attributes and series of purchases share 1,000 an hour', () => {
  expect(limitOf('events.list')).toEqual({
    requests: 1000,
    windowSeconds: 3600,
    paths: [
      '/custom_attributes',
      '/events',
      '/events/list',
      '/purchases/product_list',
      '/purchases/quantity_series',
      '/purchases/revenue_series',
    ],
  });
});

const center = '/preference_center/v1/:preferenceCenterExternalId';

test('preference centers share 1,000 reads (list, view, link) and 10 writes per minute', () => {
  expect(limitOf('preference_center.read')).toEqual({
    requests: 1000,
    windowSeconds: 60,
    paths: [center, `${center}/url/:userId`, `${center}/url/:userId`, '/preference_center/v1/list'],
  });
  expect(limitOf('preference_center.write')).toEqual({
    requests: 10,
    windowSeconds: 60,
    paths: ['/preference_center/v1', center, center],
  });
});

test.each([
  ['POST /subscription/status/set', 'subscription.status.set'],
  ['POST /v2/subscription/status/set', 'subscription.status.set'],
  ['GET /subscription/status/get', 'subscription.status.get'],
  ['GET /subscription/user/status', 'subscription.groups.get'],
  ['POST /email/status', 'email.status'],
  ['POST /email/blocklist', 'email.blacklist'],
  ['POST /email/blacklist', 'email.blacklist'],
  ['GET /email/unsubscribes', 'email.unsubscribe'],
  ['GET /email/hard_bounces', 'email.hard_bounces'],
  ['POST /email/bounce/remove', 'email.bounce.remove'],
  ['POST /email/spam/remove', 'email.spam.remove'],
  ['GET /preference_center/v1/list', 'preference_center.list'],
  [`GET ${center}`, 'preference_center.get'],
  ['POST /preference_center/v1', 'preference_center.update'],
  [`PUT ${center}`, 'preference_center.update'],
  [`POST ${center}`, 'preference_center.update'],
  [`GET ${center}/url/:userId`, 'preference_center.user.get'],
])('%s needs the permission %s', (endpoint, permission) => {
  const match = allOperations('service_id').find(({ method, path }) => `${method} ${path}` === endpoint);
  expect(match?.permission).toBe(permission);
});
