import { Braze, type UsersTrackObject } from 'braze-api';
import { beforeAll, describe, expect, test } from 'vitest';
import { eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createGroup, createWorkspace } from '../setup/workspace.ts';

const time = '2026-01-31T12:00:00.000Z';

/** A published client of the protocol; only its address is changed. */
describe.each(eitherBackend)(
  'the npm client braze-api, with SERVICE_ID_FIELD=braze_id; queue on %s',
  (backend) => {
    let fleet: Fleet;
    let client: Braze;
    beforeAll(async () => {
      fleet = await startFleet(backend, { edges: 1, workers: 1, env: { SERVICE_ID_FIELD: 'braze_id' } });
      client = clientWith(fleet.workspace.key);
      return fleet.stop;
    });

    function clientWith(key: string): Braze {
      return new Braze(`http://127.0.0.1:${fleet.edges[0]!.port}`, key);
    }

    /** Waits until the user with this external id has the attribute `done`, and returns the user. */
    async function userDone(external_id: string) {
      return waitUntil(
        async () => {
          const { users } = await client.users.export.ids({ external_ids: [external_id] });
          expect(users).toHaveLength(1);
          expect(users[0]).toMatchObject({ custom_attributes: { done: true } });
          return users[0];
        },
        { what: external_id },
      );
    }

    test('users.track records attributes, events and purchases, and users.export.ids reads them back', async () => {
      const body: UsersTrackObject = {
        attributes: [
          {
            external_id: 'ada',
            first_name: 'Ada',
            email: 'ada@example.com',
            email_subscribe: 'opted_in',
            current_location: { longitude: -0.1, latitude: 51.5 },
            languages: ['en', 'fr'],
            logins: { inc: 2 },
          },
        ],
        events: [
          { external_id: 'ada', name: 'signed_up', time, properties: { plan: 'pro' } },
          { external_id: 'ada', name: 'signed_up', time },
        ],
        purchases: [
          { external_id: 'ada', product_id: 'book', currency: 'USD', price: 12.5, quantity: 2, time },
        ],
      };
      expect(await client.users.track(body)).toEqual({
        attributes_processed: 1,
        events_processed: 2,
        purchases_processed: 1,
        message: 'success',
      });
      await client.users.track({ attributes: [{ external_id: 'ada', done: true }] });
      const user = await userDone('ada');
      expect(user).toMatchObject({
        external_id: 'ada',
        braze_id: expect.stringMatching(/^[0-9a-f]{24}$/),
        first_name: 'Ada',
        email: 'ada@example.com',
        email_subscribe: 'opted_in',
        custom_attributes: { languages: ['en', 'fr'], logins: 2 },
        custom_events: [{ name: 'signed_up', first: time, last: time, count: 2 }],
        purchases: [{ name: 'book', first: time, last: time, count: 2 }],
        total_revenue: 25,
      });
    });

    test('a user can be named by braze_id and by alias', async () => {
      await client.users.track({ attributes: [{ external_id: 'bob', done: true }] });
      const { braze_id } = await userDone('bob');
      const user_alias = { alias_name: 'bob@crm', alias_label: 'crm' };
      await client.users.track({
        attributes: [
          { braze_id: braze_id!, home_city: 'Lima' },
          { user_alias, _update_existing_only: false, home_city: 'Quito' },
        ],
        events: [{ braze_id: braze_id!, name: 'called', time }],
      });
      await waitUntil(
        async () => {
          const named = await client.users.export.ids({ braze_id: braze_id!, user_aliases: [user_alias] });
          expect(named.users).toEqual(
            expect.arrayContaining([
              expect.objectContaining({ external_id: 'bob', home_city: 'Lima' }),
              expect.objectContaining({ user_aliases: [user_alias], home_city: 'Quito' }),
            ]),
          );
          return true;
        },
        { what: 'both users' },
      );
    });

    test('users.export.ids returns only the requested fields, and names unknown users', async () => {
      await client.users.track({ attributes: [{ external_id: 'eve', first_name: 'Eve', done: true }] });
      await userDone('eve');
      const answer = await client.users.export.ids({
        external_ids: ['eve', 'nobody'],
        fields_to_export: ['external_id', 'first_name'],
      });
      expect(answer).toEqual({
        users: [{ external_id: 'eve', first_name: 'Eve' }],
        invalid_user_ids: ['nobody'],
        message: 'success',
      });
    });

    test('a rejected object is named in errors, and the others count', async () => {
      const answer = await client.users.track({
        events: [
          { name: 'nobody', time },
          { external_id: 'ada', name: 'signed_in', time },
        ],
      });
      expect(answer).toEqual({
        events_processed: 1,
        message: 'success',
        errors: [
          {
            type: "'external_id', 'braze_id', 'user_alias', 'email' or 'phone' is required",
            input_array: 'events',
            index: 0,
          },
        ],
      });
    });

    test('subscription and email states are set and read back', async () => {
      const group = await createGroup(fleet.pool, fleet.workspace.id, 'email');
      const email = 'list@example.com';
      await client.users.track({ attributes: [{ external_id: 'list', email, done: true }] });
      await userDone('list');
      const setting = { subscription_group_id: group, subscription_state: 'subscribed' as const };
      const done = { message: 'success' };
      expect(await client.subscription.status.set({ ...setting, external_id: [], email: [email] })).toEqual(
        done,
      );
      expect(
        await client.v2.subscription.status.set({
          subscription_groups: [{ ...setting, external_ids: ['list'] }],
        }),
      ).toEqual(done);
      const status = () =>
        client.subscription.status.get({ subscription_group_id: group, external_id: ['list', 'no'] });
      const isSet = async () => {
        expect((await status()).status).toEqual({ list: 'Subscribed', no: 'Unknown' });
        return true;
      };
      await waitUntil(isSet, { what: 'the state' });
      expect(await client.subscription.user.status({ external_id: 'list' })).toEqual({
        users: [
          {
            ...{ email, phone: null, external_id: 'list' },
            subscription_groups: [{ id: group, name: 'email news', channel: 'email', status: 'Subscribed' }],
          },
        ],
        total_count: 1,
        ...done,
      });
      expect(await client.email.blacklist({ email })).toEqual(done);
      expect(await client.email.bounce.remove({ email })).toEqual(done);
      expect(await client.email.spam.remove({ email: [email] })).toEqual(done);
      const isOff = async () => {
        const { users } = await client.users.export.ids({ external_ids: ['list'] });
        expect(users[0]).toMatchObject({ email_subscribe: 'unsubscribed' });
        return true;
      };
      await waitUntil(isOff, { what: 'the blocked address' });
    });

    test('users.track accepts the header of bulk tools', async () => {
      const body = { attributes: [{ external_id: 'bulk', done: true }] };
      expect(await client.users.track(body, true)).toMatchObject({ message: 'success' });
      await userDone('bulk');
    });

    test('an invalid request is thrown with its status, message and errors', async () => {
      await expect(client.users.track({ events: [{ name: 'nobody', time }] })).rejects.toMatchObject({
        status: 400,
        message: "Valid data must be provided in the 'attributes', 'events', or 'purchases' fields.",
        errors: [{ input_array: 'events', index: 0 }],
      });
      const tooMany = Array.from({ length: 76 }, (_, index) => ({ external_id: `user-${index}` }));
      await expect(client.users.track({ attributes: tooMany })).rejects.toMatchObject({
        status: 400,
        message: 'Max Input Length Exceeded',
      });
    });

    test('a wrong key is thrown as 401, a key without the permission as 403', async () => {
      const body = { attributes: [{ external_id: 'ada' }] };
      await expect(clientWith('wrong').users.track(body)).rejects.toMatchObject({
        status: 401,
        message: 'Invalid API Key',
      });
      const reader = await createWorkspace(fleet.pool, 'readers', ['users.export.ids']);
      await expect(clientWith(reader.key).users.track(body)).rejects.toMatchObject({
        status: 403,
        message: 'Access Denied',
      });
      expect(await clientWith(reader.key).users.export.ids({ external_ids: ['ada'] })).toEqual({
        users: [],
        invalid_user_ids: ['ada'],
        message: 'success',
      });
    });

    test('campaigns.list and canvas.list read an empty list', async () => {
      expect(await client.campaigns.list()).toEqual({ message: 'success', campaigns: [] });
      expect(await client.canvas.list()).toEqual({ message: 'success', canvases: [] });
    });

    test('an operation that Penstock lacks is thrown as 404', async () => {
      const missing = client.campaigns.details({ campaign_id: 'any' });
      await expect(missing).rejects.toMatchObject({ status: 404, message: 'Not Found' });
    });
  },
);
