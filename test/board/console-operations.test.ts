import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { searchAudit } from '../../src/store/audit-list.ts';
import { type Console, openConsole, page, post } from './console-scene.ts';
import { log } from './installation.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene?.installation.stop());

const textOf = async (path: string) => (await page(scene.operator, path)).text;

/** Returns the action of the latest audit entry. */
const latestAction = async () =>
  (await searchAudit(scene.installation.database.pool, { limit: 1 })).rows[0]!.action;

test('an external id is blocked with a reason and unblocked in the list', async () => {
  const path = `/blocked-ids?workspace=${scene.shop}`;
  const long = await post(scene.operator, '/blocked-ids', {
    ...{ workspace: scene.shop, external_id: 'x'.repeat(1000), reason: 'a bug' },
  });
  expect(long.status).toBe(400);
  expect(await long.text()).toMatch(/name="external_id"[^>]*aria-invalid="true".*An external id must have/s);
  await post(scene.operator, '/blocked-ids', {
    ...{ workspace: scene.shop, external_id: 'undefined', reason: 'a bug of the shop' },
  });
  const text = await textOf(path);
  expect(text).toMatch(/undefined<\/.*a bug of the shop/s);
  expect(text).not.toContain('href="/blocked-ids/');
  expect(await latestAction()).toBe('users.block');
  const action = /action="(\/blocked-ids\/[^"]+)"/.exec(text)![1]!.replaceAll('&amp;', '&');
  const reply = await post(scene.operator, action, { action: 'unblock' });
  expect(reply.headers.get('location')).toContain('done=unblock');
  expect(await textOf(path)).not.toContain('a bug of the shop');
  expect(await latestAction()).toBe('users.unblock');
});

test('a blocked external id keeps its white space, and the log has only the pattern of its path', async () => {
  const reason = 'sent with spaces';
  await post(scene.operator, '/blocked-ids', { workspace: scene.shop, external_id: ' ada ', reason });
  expect(await scene.query('select external_id from blocked_external_ids where reason = $1', reason)).toEqual(
    [{ external_id: ' ada ' }],
  );
  const info = vi.spyOn(log, 'info');
  const id = `${scene.shop}.${Buffer.from(' ada ').toString('base64url')}`;
  const path = `/blocked-ids/${id}?workspace=${scene.shop}`;
  expect((await post(scene.operator, path, { action: 'unblock' })).status).toBe(303);
  const logged = () => info.mock.calls.filter((call) => call.includes('console action'));
  await expect
    .poll(logged)
    .toEqual([[expect.objectContaining({ path: '/blocked-ids/:id', status: 303 }), 'console action']]);
  info.mockRestore();
});

test('the page of a workspace sets the retention and marks phone numbers invalid', async () => {
  const path = `/workspaces/${scene.shop}`;
  const wrong = await post(scene.operator, path, { action: 'set-retention', months: '0' });
  expect(wrong.status).toBe(400);
  expect(await wrong.text()).toMatch(/name="months" value="0"[^>]*aria-invalid.*Must be 1 to 1200/s);
  await post(scene.operator, path, { action: 'set-retention', months: '24' });
  expect(
    await scene.query('select months from retention_policies where workspace_id = $1', scene.shop),
  ).toEqual([{ months: 24 }]);
  expect(await latestAction()).toBe('retention.set');

  const numbers = { action: 'mark-invalid', reason: 'deactivated' };
  const second = await post(scene.operator, path, { ...numbers, phones: '+14155552671, 12' });
  expect(await second.text()).toContain('Phone number 2: Must be a phone number in E.164');
  await post(scene.operator, path, { ...numbers, phones: '+14155552671' });
  expect(await latestAction()).toBe('phone_numbers.mark_invalid');
});

test('BOARD_USER removes silent processes and confirms a loss on the page Health', async () => {
  await scene.query(
    `insert into processes (id, name, host, pid, version, lanes, missing, objects, objects_per_second,
       resident_bytes, loop_busy, started_at, seen_at)
     values (gen_random_uuid(), 'worker', 'gone', 7, '1.0.0', '{}', '{}', 0, 0, 1, 0, now() - interval '1 hour',
       now() - interval '1 minute')`,
  );
  await expect.poll(() => textOf('/'), { timeout: 10_000 }).toContain('Remove silent processes');
  const reply = await post(scene.operator, '/', { action: 'forget' });
  expect(reply.headers.get('location')).toBe('/?done=forgotten');
  expect(await scene.query("select from processes where host = 'gone'")).toEqual([]);
  expect(await latestAction()).toBe('processes.forget');
  expect((await post(scene.operator, '/', { action: 'confirm_loss', loss: '7' })).status).toBe(400);
  await scene.query(
    `insert into queue_losses (found, accepted_from, accepted_until, additions_known, additions_found, noticed_by)
     values ('behind', now(), now(), 2, 1, 'web')`,
  );
  const [{ id }] = await scene.query('select max(id)::integer as id from queue_losses');
  await post(scene.operator, '/', { action: 'confirm_loss', loss: String(id) });
  expect(await scene.query('select from queue_losses where confirmed_at is null')).toEqual([]);
  expect(await latestAction()).toBe('queue.confirm_loss');
});

test('links of a preference center, or of one user, are revoked after a confirmation', async () => {
  const path = `/preference-centers/${scene.center}`;
  const action = 'revoke';
  expect((await post(scene.operator, path, { action, confirm: 'yes' })).status).toBe(400);
  const unknown = await post(scene.operator, path, { action, confirm: 'revoke', external_id: uuidv7() });
  expect(await unknown.text()).toMatch(/name="external_id"[^>]*aria-invalid.*No user of the workspace/s);
  await post(scene.operator, path, { action, confirm: 'revoke' });
  await post(scene.operator, path, { action, confirm: 'revoke', external_id: 'user-1' });
  const revoked = await scene.query(
    'select subject_kind from preference_link_revocations where workspace_id = $1 order by subject_kind',
    scene.shop,
  );
  expect(revoked.map(({ subject_kind }) => subject_kind)).toEqual(['center', 'user']);
  expect(await latestAction()).toBe('preference_links.revoke');
});

test('the table of the history has units in its headings, and no Redis column without Redis', async () => {
  await scene.recordPast('web-1');
  const text = await textOf('/history');
  expect(text).toContain('<th scope="col" class="number">Accepted (objects/s)</th>');
  expect(text).toMatch(/<td data-label="Postgres \(ms\)" class="number">1<\/td>/);
  expect(text.match(/<td[^>]*>[\d,.]+ [a-z]/g)).toBeNull();
  expect(text).not.toContain('Redis (ms)');
  await scene.query('update fleet_history set redis_ms = 2');
  expect(await textOf('/history')).toContain('<td data-label="Redis (ms)" class="number">2</td>');
});
