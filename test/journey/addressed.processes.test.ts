import { describe, expect, test } from 'vitest';
import { eitherBackend } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { ids, journey, time } from './scene.ts';

describe.each(eitherBackend)('user of an object, with the queue in %s', (backend) => {
  const { fleet, track, read, shows } = journey(backend);

  test('an unknown email address creates one email-only profile, without an alias', async () => {
    await track({
      attributes: [{ email: 'Only@Example.com', n: 1 }],
      events: [{ email: 'only@example.com', name: 'seen', time }],
    });
    const user = await shows(
      { email_address: 'only@example.com' },
      { email: 'only@example.com', custom_attributes: { n: 1 }, custom_events: [expect.anything()] },
    );
    expect(user).toHaveProperty('user_aliases', []);
    expect(user).not.toHaveProperty('external_id');
  });

  test('an unknown phone number creates one phone-only profile', async () => {
    await track({
      attributes: [{ phone: '(415) 555-2671', n: 1 }],
      purchases: [{ phone: '+14155552671', product_id: 'a', currency: 'USD', price: 1, time }],
    });
    await shows(
      { phone: '+14155552671' },
      { phone: '+14155552671', custom_attributes: { n: 1 }, total_revenue: 1 },
    );
  });

  test('of several profiles with an email, the latest one with an external id is updated', async () => {
    const email = 'several@example.com';
    await track({ attributes: [{ email, n: 0 }] });
    await shows({ email_address: email }, { custom_attributes: { n: 0 } });
    for (const external_id of ['several-1', 'several-2']) {
      await track({ attributes: [{ external_id, email }] });
      await shows(ids(external_id), { email });
    }
    await track({ attributes: [{ email, chosen: 'second' }] });
    await shows(ids('several-2'), { custom_attributes: { chosen: 'second' } });
    await track({ events: [{ external_id: 'several-1', name: 'seen', time }] });
    await shows(ids('several-1'), { custom_events: [expect.anything()] });
    await track({ attributes: [{ email, chosen: 'first' }] });
    await shows(ids('several-1'), { custom_attributes: { chosen: 'first' } });
    const everyone = await read({ email_address: email, fields_to_export: ['custom_attributes'] });
    expect(everyone).toHaveLength(3);
    expect(everyone).toContainEqual({ custom_attributes: { n: 0 } });
  });

  test('a service id selects its profile, and never creates one', async () => {
    await track({ attributes: [{ external_id: 'known', n: 1 }] });
    const { service_id } = await shows(ids('known'), { external_id: 'known' });
    await track({
      attributes: [
        { service_id: service_id!, n: 2 },
        { service_id: '0'.repeat(24), n: 3 },
      ],
    });
    await shows({ service_id: service_id! }, { external_id: 'known', custom_attributes: { n: 2 } });
    await track({
      attributes: [
        { service_id: '0'.repeat(24), n: 4 },
        { service_id: service_id!, n: 5 },
      ],
    });
    await shows({ service_id: service_id! }, { custom_attributes: { n: 5 } });
    expect(await read({ service_id: '0'.repeat(24) })).toEqual([]);
  });

  test('an alias creates a profile only with an explicit false', async () => {
    const user_alias = { alias_name: 'explicit', alias_label: 'journey' };
    await track({ attributes: [{ user_alias, n: 1 }], events: [{ user_alias, name: 'omitted', time }] });
    await track({ events: [{ user_alias, name: 'true', time, _update_existing_only: true }] });
    await track({ events: [{ user_alias, name: 'false', time, _update_existing_only: false }] });
    await track({ events: [{ user_alias, name: 'exists', time }] });
    const user = await shows(
      { user_aliases: [user_alias] },
      {
        user_aliases: [user_alias],
        custom_events: [
          expect.objectContaining({ name: 'exists' }),
          expect.objectContaining({ name: 'false' }),
        ],
      },
    );
    expect(user).not.toHaveProperty('custom_attributes');
  });

  test('update-only objects for an unknown user are ignored', async () => {
    const only = { _update_existing_only: true };
    for (const [identifier, requested] of [
      [{ external_id: 'ghost' }, ids('ghost')],
      [{ email: 'ghost@example.com' }, { email_address: 'ghost@example.com' }],
    ] as const) {
      await track({
        attributes: [{ ...identifier, ...only, ignored: 1 }],
        events: [{ ...identifier, ...only, name: 'ignored', time }],
      });
      await track({ attributes: [{ ...identifier, n: 1 }] });
      const user = await shows(requested, { custom_attributes: { n: 1 } });
      expect(user).not.toHaveProperty('custom_events');
      await track({ attributes: [{ ...identifier, ...only, n: 2 }] });
      await shows(requested, { custom_attributes: { n: 2 } });
    }
  });

  test('push tokens belong to their user, and imported ones to anonymous profiles', async () => {
    const token = (name: string) => ({ app_id: 'app', token: name, device_id: `device-${name}` });
    await track({ attributes: [{ external_id: 'pushed', push_tokens: [token('own')] }] });
    await shows(ids('pushed'), {
      push_tokens: [{ app: 'app', token: 'own', device_id: 'device-own' }],
      devices: [{ device_id: 'device-own' }],
    });
    await track({
      attributes: [{ push_token_import: true, push_tokens: [token('own'), token('a'), token('b')] }],
    });
    const imported = await shows({ device_id: 'device-a' }, { devices: [{ device_id: 'device-a' }] });
    expect(imported).not.toHaveProperty('external_id');
    await shows({ device_id: 'device-b' }, {});
    await shows({ device_id: 'device-own' }, { external_id: 'pushed' });
  });

  test('workspaces are separate', async () => {
    const other = await createWorkspace(fleet().pool, 'other');
    await track({ attributes: [{ external_id: 'same', n: 'ours' }] });
    await track({ attributes: [{ external_id: 'same', n: 'theirs' }] }, other.key);
    await shows(ids('same'), { custom_attributes: { n: 'ours' } });
    const theirs = () =>
      send(fleet().edges[0]!.port, { path: '/users/export/ids', key: other.key, json: ids('same') });
    await waitUntil(async () => (await theirs()).body.users.length === 1, { what: 'the other workspace' });
    expect((await theirs()).body.users[0].custom_attributes).toEqual({ n: 'theirs' });
  });
});
