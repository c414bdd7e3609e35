import { describe, expect, test } from 'vitest';
import { permissions } from '../../src/admin/arguments.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import { createCompany } from '../setup/access.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { acceptedStatuses, expectError } from './expected.ts';
import { contractScene, operations } from './scene.ts';

const withApiKey = operations.filter(({ auth }) => auth === undefined);
const withPermission = withApiKey.filter(({ permission }) => permission !== undefined);

describe.each(eitherBackend)('who is admitted to every operation, with the queue in %s', (backend) => {
  const { accept, access, fleet, makeKey, port, staysPrivate } = contractScene(backend, { edges: 2 });

  describe.each(operations)('$id', (operation) => {
    const status = expect.toBeOneOf(acceptedStatuses(operation));

    test('refuses a request without a key, with another scheme and with an unknown key: 401', async () => {
      const { key: good } = await access().admit(operation, fleet().workspace);
      const unknown = `pk_${'x'.repeat(43)}`;
      const basic = Buffer.from(`user:${good}`).toString('base64');
      for (const change of [
        { key: undefined },
        { key: unknown },
        { key: `${good}x` },
        { key: good.toUpperCase() },
        { key: undefined, headers: { authorization: `Basic ${basic}` } },
      ]) {
        const answer = await accept(operation, change);
        expectError(operation, answer, operation.auth === 'scim' ? 'scimUnauthorized' : 'invalidKey');
        expect(answer.headers.get('x-ratelimit-limit')).toBe('');
      }
    });

    test('takes the scheme in any case', async () => {
      const { key } = await access().admit(operation, fleet().workspace);
      const headers = { authorization: `bEARER ${key}` };
      expect(await accept(operation, { key: undefined, headers })).toMatchObject({ status });
    });

    test('refuses what is over the limit of its workspace: 429 with Retry-After', async () => {
      const workspace = await createWorkspace(fleet().pool, `limited-${operation.id}`);
      const company = await createCompany(fleet().pool, `limited-${operation.id}`);
      await fleet().pool.query('update workspaces set company_id = $1 where id = $2', [
        company,
        workspace.id,
      ]);
      await fleet().pool.query('insert into rate_limits values ($1, $2, 1, 3600)', [
        workspace.id,
        operation.bucket,
      ]);
      const first = await accept(operation, {}, port(), workspace);
      expect(first).toMatchObject({ status });
      expect(first.headers.get('x-ratelimit-limit')).toBe('1');
      expect(first.headers.get('x-ratelimit-remaining')).toBe('0');
      const second = await accept(operation, {}, port(), workspace);
      expectError(operation, second, 'rateLimited');
      expect(second.body.message ?? second.body.detail).toBe('Rate Limited');
      expect(Number(second.headers.get('retry-after'))).toBeGreaterThan(3000);
      expect(second.headers.get('x-ratelimit-remaining')).toBe('0');
    });
  });

  describe.each(withApiKey)('$id, which takes an API key,', (operation) => {
    const status = expect.toBeOneOf(acceptedStatuses(operation));

    test('refuses a revoked key on every edge within seconds: 401', async () => {
      const key = await makeKey(operation.permission ? [operation.permission] : []);
      const ports = fleet().edges.map((edge) => edge.port);
      expect(ports).toHaveLength(2);
      const statuses = () =>
        Promise.all(ports.map(async (to) => (await accept(operation, { key }, to)).status));
      expect(await statuses()).toEqual([status, status]);
      await fleet().pool.query('update api_keys set revoked_at = now() where identifier = $1', [
        key.slice(0, 8),
      ]);
      const refused = async () => (await statuses()).every((answer) => answer === 401);
      await waitUntil(refused, { what: 'the revoked key to be refused by both', deadline: 3000 });
    });

    test("refuses an address outside the key's allowlist: 403", async () => {
      const key = await makeKey(permissions, ['10.0.0.0/8', '192.0.2.1']);
      expectError(operation, await accept(operation, { key }), 'accessDenied');
      const local = await makeKey(permissions, ['127.0.0.0/8', '::1/128']);
      expect(await accept(operation, { key: local })).toMatchObject({ status });
    });
  });

  test.each(withPermission)('$id refuses a key without its permission: 403', async (operation) => {
    const key = await makeKey(permissions.filter((permission) => permission !== operation.permission));
    expectError(operation, await accept(operation, { key }), 'accessDenied');
  });

  staysPrivate();
});
