import type { IncomingMessage } from 'node:http';
import { Registry } from 'prom-client';
import { describe, expect, test } from 'vitest';
import { createCopies } from '../../src/edge/copies.ts';
import { copiedOperations, mayChangeUsers } from '../../src/edge/proxy.ts';
import { allOperations } from '../../src/operations/index.ts';
import { createLog } from '../../src/platform/log.ts';
import { rulesOf } from '../../src/schemas/vendor-rules.ts';

const operations = allOperations('service_id');
const copied = copiedOperations(operations);

describe('the set of copied operations', () => {
  test('contains queued operations, /users/track/sync and the removal of invalid numbers', () => {
    const queued = operations
      .filter(({ kind }) => kind === 'queued')
      .map(({ method, path }) => `${method} ${path}`);
    expect([...copied.keys()].sort()).toEqual(
      [...queued, 'POST /users/track/sync', 'POST /sms/invalid_phone_numbers/remove'].sort(),
    );
    expect(copied.get('POST /users/track/sync')).toEqual({ id: 'users.track.sync', path: '/users/track' });
  });

  test('contains /users/track/sync under its own path with VENDOR_RULES=current', () => {
    const current = copiedOperations(allOperations('service_id', { rules: rulesOf.current }));
    const path = '/users/track/sync';
    expect(current.get(`POST ${path}`)).toEqual({ id: 'users.track.sync', path });
  });

  test('covers all operations under user paths, except those that read or are logged', () => {
    const rooms = /^\/(v2\/)?(users|sms|email|subscription|preference_center|scim|cdi)\//;
    const silent = operations.filter(
      ({ method, path }) =>
        rooms.test(path) && !copied.has(`${method} ${path}`) && !mayChangeUsers(method, path),
    );
    const reading = (id: string) => silent.find((one) => one.id === id)?.readsOnly;
    for (const { id, method } of silent)
      expect([id, method === 'GET' || reading(id) || id === 'users.export.segment']).toEqual([id, true]);
  });

  test.each([
    ['POST', '/users/unheard_of', true],
    ['POST', '/Users//TRACK/', true],
    ['POST', '/users/%74rack', true],
    ['POST', '/%zz/users', false],
    ['DELETE', '/scim/v2/Users/1', true],
    ['PUT', '/preference_center/v1/1', true],
    ['POST', '/v2/subscription/anything', true],
    ['POST', '/email/new', true],
    ['POST', '/sms/new', true],
    ['POST', '/cdi/integrations/1/sync', true],
    ['GET', '/users/track', false],
    ['POST', '/users/export/ids', false],
    ['POST', '/users/export/global_control_group', false],
    ['POST', '/messages/send', false],
    ['POST', '/usersettings', false],
    ['POST', '/catalogs/users/items', false],
  ])('%s %s, which is not copied, is logged: %s', (method, path, isTold) => {
    expect(mayChangeUsers(method, path)).toBe(isTold);
  });
});

test('a copy that is dropped because too many bytes wait is counted as not kept', async () => {
  const registry = new Registry();
  const log = createLog('test', 'silent');
  const copies = createCopies({ port: 1, maxBytes: 9, registry, log });
  const request = { method: 'POST', url: '/users/track', headers: {}, socket: {} } as IncomingMessage;
  const operation = copied.get('POST /users/track')!;
  const there = { status: 201, headers: {}, body: Buffer.from('{}') };
  await copies.keep({ request, operation, body: Buffer.alloc(10) }, there).done;
  await copies.stop();
  expect(await registry.metrics()).toContain('{operation="users.track",outcome="not_kept"} 1');
});
