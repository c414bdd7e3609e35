import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { whyUnavailable } from '../../src/edge/unavailable.ts';
import { ApiError, type ErrorName, errors, explain } from '../../src/errors.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { QueueUnavailable } from '../../src/queue/lanes.ts';
import { RedisUnavailable } from '../../src/queue/open-redis.ts';
import { errorsPage } from '../../tools/generate/errors.ts';

const names = Object.keys(errors) as ErrorName[];

describe('the catalogue of errors', () => {
  test('gives each error outside SCIM a code in snake_case and a detail', () => {
    for (const name of names.filter((one) => !one.startsWith('scim')))
      expect({ name, ...explain(name) }).toEqual({
        name,
        code: expect.stringMatching(/^[a-z]+(_[a-z]+)*$/),
        detail: expect.stringMatching(/^\S.+\.$/),
      });
  });

  test('gives no two errors the same code', () => {
    const codes = names.flatMap((name) => explain(name)?.code ?? []);
    expect(new Set(codes).size).toBe(codes.length);
  });

  test('matches docs/errors.md, which npm run generate writes', () => {
    expect(readFileSync(path.join(packageRoot, 'docs/errors.md'), 'utf8')).toBe(errorsPage());
  });
});

describe('the code of a 503', () => {
  test.each([
    [new QueueUnavailable('x'), 'queue_unavailable'],
    [new QueueUnavailable('x', { limit: 'pending_objects' }), 'too_many_pending_objects'],
    [new QueueUnavailable('x', { limit: 'pending_bytes' }), 'too_many_pending_bytes'],
    [new QueueUnavailable('x', { limit: 'queue_depth' }), 'queue_full'],
    [new QueueUnavailable('x', { limit: 'share' }), 'workspace_over_share'],
    [new QueueUnavailable('x', { limit: 'half' }), 'queue_half_full'],
    [new ApiError('tooManyUnreadResponses'), 'too_many_unread_responses'],
    [new ApiError('tooManyBodyBytes'), 'too_many_body_bytes'],
    [
      Object.assign(new Error('refused'), { code: 'ECONNREFUSED', syscall: 'connect' }),
      'database_unavailable',
    ],
    [new RedisUnavailable('connect ECONNREFUSED 127.0.0.1:6379'), 'redis_unavailable'],
  ])('names the cause of %s: %s', (error, code) => {
    expect(explain(whyUnavailable(error))).toMatchObject({ code });
  });
});
