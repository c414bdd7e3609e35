import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { emailBlocklist } from '../../src/operations/email.blocklist.ts';
import { emailStatus } from '../../src/operations/email.status.ts';
import { user } from '../identity/objects.ts';
import { has } from '../identity/scene.ts';
import { createSubscriptionScene, phones, type SubscriptionScene, says } from '../subscription/scene.ts';
import { expectRefusal, type PenstockOn, penstockOn } from './penstock.ts';

const email = 'ada@x.com';
const phone = phones(1);
const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/);

let scene: SubscriptionScene;
let on: PenstockOn;
beforeAll(async () => {
  scene = await createSubscriptionScene();
  on = penstockOn(scene.url);
  const { news, texts } = scene.groups;
  const apply = (requestId: string, ...objects: Parameters<SubscriptionScene['apply']>[0]) =>
    scene.apply(objects, scene.workspaceId, requestId);
  await apply('own', has('ada', {}), says(user('ada'), news, 'subscribed'));
  await apply('address', has('ada', { standard: { email, phone, phone_valid: true } }));
  await apply('text', says({ phone }, texts, 'unsubscribed'));
  await scene.post(emailStatus(), { email, subscription_state: 'opted_in' }, 'status');
  await scene.post(emailBlocklist(), { email }, 'block');
  await apply('rename', {
    ...{ kind: 'external_id_rename', id: crypto.randomUUID(), index: 0 },
    ...{ current_external_id: 'ada', new_external_id: 'lovelace' },
  });
});
afterAll(() => scene.stop());

const history = (...args: string[]) =>
  on.json(['users', 'history', '--workspace', scene.workspaceId, ...args]);
const short = (rows: Record<string, string>[]) =>
  rows.map(({ subject, subscription, from, to, request_id }) => [
    ...[subject?.split(' ')[0], subscription, from, to, request_id],
  ]);

describe('users history', () => {
  test.each(['lovelace', 'ada'])(
    'lists the changes of a user and of its addresses by the present or a former id: %s',
    async (id) => {
      const { changes, next } = await history('--external-id', id);
      expect(next).toBeNull();
      expect(changes[0]).toEqual({
        changed_at: time,
        subject: `email ${email}`,
        subscription: 'hard_bounce',
        from: null,
        to: 'hard_bounced',
        request_id: 'block',
      });
      expect(short(changes)).toEqual([
        ['email', 'hard_bounce', null, 'hard_bounced', 'block'],
        ['email', 'email', 'opted_in', 'unsubscribed', 'block'],
        ['email', 'email', null, 'opted_in', 'status'],
        ['phone', 'texts', null, 'unsubscribed', 'text'],
        ['email', 'news', null, 'subscribed', 'address'],
        ['profile', 'news', 'subscribed', null, 'address'],
        ['profile', 'news', null, 'subscribed', 'own'],
      ]);
    },
  );

  test('shows the changes of an address for all users and in any letter case', async () => {
    expect(short((await history('--phone', phone)).changes)).toEqual([
      ['phone', 'texts', null, 'unsubscribed', 'text'],
    ]);
    expect((await history('--email', email.toUpperCase())).changes).toHaveLength(4);
    expect((await history('--email', 'nobody@x.com')).changes).toEqual([]);
  });

  test('pages through the changes', async () => {
    const all = (await history('--external-id', 'lovelace')).changes;
    const first = await history('--external-id', 'lovelace', '--limit', '4');
    const rest = await history('--external-id', 'lovelace', '--limit', '4', '--after', first.next);
    expect(rest.next).toBeNull();
    expect([...first.changes, ...rest.changes]).toEqual(all);
  });

  test.each([
    [[], 'one of --external-id, --email and --phone'],
    [['--email', email, '--phone', phone], 'one of --external-id, --email and --phone'],
    [['--external-id', 'nobody'], "no user of the workspace has the external id 'nobody'"],
    [['--email', 'nobody'], 'Not a valid email address'],
    [['--phone', '12'], 'Not a valid phone number'],
    [['--email', email, '--after', 'x'], 'the previous page'],
  ])('rejects %j with the rule', async (args, rule) => {
    expectRefusal(await on.run(['users', 'history', '--workspace', scene.workspaceId, ...args]), rule);
  });
});
