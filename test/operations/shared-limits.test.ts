import { expect, test } from 'vitest';
import { allOperations } from '../../src/operations/index.ts';
import { type BucketName, buckets } from '../../src/schemas/limits.ts';

/** Requests and seconds of the limit, and which endpoints share it. */
function limitOf(bucket: BucketName) {
  const { requests, windowSeconds } = buckets[bucket];
  const paths = allOperations('service_id').flatMap((one) => (one.bucket === bucket ? [one.path] : []));
  return { requests, windowSeconds, paths: paths.sort() };
}

test('merge, delete, both of aliases and identify share 20,000 requests a minute', () => {
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
