import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type VendorLevel,
  type VendorRuleName,
  vendorLevels,
  vendorRules,
} from '../../src/schemas/vendor-rules.ts';
import { startFleet } from '../guarantees/fleet.ts';
import { send as sendTo } from '../setup/api.ts';
import { type Api, type DevLevel, startDevLevel } from './dev-level.ts';

const time = '2026-01-31T12:00:00Z';
const iso = '2026-01-31T12:00:00.000Z';
const aliasOf = (alias_name: string) => ({ alias_name, alias_label: 'cookie' });
const attributesOf = (count: number) =>
  Array.from({ length: count }, (_, i) => ({ external_id: `many-${i}` }));
const limitOf = async (api: Api, target: string, body: object) =>
  (await api.send(target, body)).headers.get('X-RateLimit-Limit');

/** Requests of a rule, and their result at each level. */
interface Case {
  probe(api: Api): Promise<unknown>;
  spec: unknown;
  current: unknown;
}

/** A case for each rule of the list that docs/vendor-rules.md is generated from. */
const cases: Record<VendorRuleName, Case> = {
  objectsOfRequest: {
    async probe({ send }) {
      const events = attributesOf(30).map((one) => ({ ...one, name: 'opened', time }));
      const { status, body } = await send('/users/track', { attributes: attributesOf(46), events });
      return [status, body.message, body.errors];
    },
    spec: [201, 'success', undefined],
    current: [
      400,
      'Max Input Length Exceeded',
      [{ type: 'Max Input Length Exceeded', input_array: 'events', index: 29 }],
    ],
  },
  trackRate: {
    probe: (api) => limitOf(api, '/users/track', { attributes: [{ external_id: 'ada' }] }),
    spec: '50000',
    current: '3000',
  },
  exportRate: {
    probe: (api) => limitOf(api, '/users/export/ids', { external_ids: ['ada'] }),
    spec: '2500',
    current: '250',
  },
  rateWindows: {
    async probe({ send }) {
      // The window is an hour: two requests within it have the same reset, on the hour.
      const resetOf = async () => Number((await send('/events/list')).headers.get('X-RateLimit-Reset'));
      const [first, second] = [await resetOf(), await resetOf()];
      return first === second && first % 3600 === 0;
    },
    spec: false,
    current: true,
  },
  eventPropertyBytes: {
    async probe({ send }) {
      const named = { external_id: 'large', time };
      const event = (bytes: number) => ({
        ...named,
        name: 'saved',
        properties: { of: { note: 'x'.repeat(bytes) } },
      });
      const purchase = { ...named, product_id: 'book', currency: 'USD', price: 1 };
      const { body } = await send('/users/track', {
        events: [event(50_000), event(60_000), event(110_000)],
        purchases: [{ ...purchase, properties: { of: { note: 'x'.repeat(60_000) } } }],
      });
      return [body.events_processed, body.purchases_processed];
    },
    spec: [1, undefined],
    current: [2, undefined],
  },
  primaryIdentifiers: {
    async probe({ send, serviceId }) {
      const attributes = [
        { external_id: 'twice', user_alias: aliasOf('twice'), first_name: 'Ada' },
        { external_id: 'twice', email: 'twice@example.com', phone: '+14155552671' },
      ];
      const { body } = await send('/users/track', { attributes });
      const type = body.errors?.[0].type.replace(serviceId, 'the service id');
      return [body.attributes_processed, type];
    },
    spec: [2, undefined],
    current: [1, "You must specify only one of 'external_id', 'user_alias' or 'the service id'"],
  },
  errorCodes: {
    async probe({ send }) {
      const attributes = [{ external_id: 'ada', email: 'no address' }, { external_id: 'ada' }];
      const events = [{ external_id: 'ada', name: 'opened' }];
      const { status, body } = await send('/users/track', { attributes, events });
      const bulk = await send('/users/track/bulk', { attributes });
      return [status, body.errors.map(({ type }: { type: string }) => type), bulk.body.errors[0].type];
    },
    spec: [
      201,
      ["The value provided for the 'email' field is not a valid email.", "'time' is required"],
      "The value provided for the 'email' field is not a valid email.",
    ],
    current: [
      201,
      ['EMAIL_BAD_FORMAT', "'time' is required"],
      "The value provided for the 'email' field is not a valid email.",
    ],
  },
  invalidLocation: {
    async probe({ send }) {
      const attributes = [{ external_id: 'ada', current_location: { latitude: 52 } }];
      const { status, body } = await send('/users/track', { attributes });
      return [status, body.errors?.[0].type, body.warnings?.length];
    },
    spec: [201, undefined, 1],
    current: [400, 'BAD_LOCATION_UPDATE', undefined],
  },
  unknownCountry: {
    async probe({ send, user }) {
      for (const country of ['DE', 'Atlantis'])
        await send('/users/track', { attributes: [{ external_id: 'moved', country }] });
      return (await user('moved'))?.country;
    },
    spec: 'DE',
    current: undefined,
  },
  trackSync: {
    async probe({ send }) {
      const attributes = [{ external_id: 'sync', logins: { inc: 2 }, first_name: 'Ada' }];
      const { status, body } = await send('/users/track/sync', { attributes });
      return [status, body.users];
    },
    spec: [404, undefined],
    current: [201, [{ external_id: 'sync', custom_attributes: { logins: 2 } }]],
  },
  mergeTypes: {
    async probe({ send, user }) {
      await send('/users/track', { attributes: [{ email: 'mixed@example.com', plan: 'pro' }] });
      await send('/users/track', { attributes: [{ external_id: 'mixed' }] });
      const identifier_to_merge = { email: 'mixed@example.com', prioritization: ['unidentified'] };
      const { status, body } = await send('/users/merge', {
        merge_updates: [{ identifier_to_merge, identifier_to_keep: { external_id: 'mixed' } }],
      });
      return [status, body.message, (await user('mixed'))?.custom_attributes];
    },
    spec: [400, 'identifiers must be objects of the same type', undefined],
    current: [202, 'success', { plan: 'pro' }],
  },
  mergeMessage: {
    async probe({ send }) {
      const update = { identifier_to_merge: {}, identifier_to_keep: { external_id: 'ada' } };
      const { status, body } = await send('/users/merge', { merge_updates: [update] });
      return [status, body.message, body.errors[0].type];
    },
    spec: [400, vendorRules.mergeMessage.spec.value, vendorRules.mergeMessage.spec.value],
    current: [400, vendorRules.mergeMessage.current.value, vendorRules.mergeMessage.current.value],
  },
  takenLabel: {
    async probe({ send, user }) {
      const user_aliases = [
        { ...aliasOf('first'), external_id: 'labelled' },
        aliasOf('second'),
        aliasOf('third'),
      ];
      await send('/users/track', { attributes: [{ external_id: 'labelled' }] });
      await send('/users/alias/new', { user_aliases });
      await send('/users/track', { attributes: [{ user_alias: aliasOf('second'), plan: 'pro' }] });
      await send('/users/identify', {
        aliases_to_identify: [
          { external_id: 'labelled', user_alias: aliasOf('second') },
          { external_id: 'new', user_alias: aliasOf('third') },
        ],
      });
      const result = (await user('labelled')) as { user_aliases: object[]; custom_attributes?: object };
      return [result.user_aliases, result.custom_attributes, (await user('new'))?.user_aliases];
    },
    spec: [[aliasOf('first')], { plan: 'pro' }, [aliasOf('third')]],
    current: [[aliasOf('first')], undefined, [aliasOf('third')]],
  },
  largeBulkBody: {
    async probe({ send }) {
      const { status, body } = await send('/users/track/bulk', {
        attributes: [{ external_id: 'ada', note: 'x'.repeat(2_200_000) }],
      });
      return [status, body.message];
    },
    spec: [413, 'Request Entity Too Large'],
    current: [400, 'Request Entity Too Large'],
  },
  serviceIdField: {
    async probe({ send, user }) {
      await send('/users/track', { attributes: [{ external_id: 'named' }] });
      return Object.keys((await user('named'))!).filter((name) => /^(service|braze)_id$/.test(name));
    },
    spec: ['service_id'],
    current: ['braze_id'],
  },
};

const servers = {} as Record<VendorLevel, DevLevel>;

beforeAll(async () => {
  // The second one copies the template of the database that the first one has made.
  for (const level of vendorLevels) servers[level] = await startDevLevel(level);
}, 90_000);
afterAll(() => Promise.all(Object.values(servers).map(({ stop }) => stop())));

describe.each(vendorLevels)('VENDOR_RULES=%s', (level) => {
  test.each(Object.entries(cases))('follows its rule %s', async (_name, { probe, [level]: expected }) => {
    expect(await probe(servers[level].api)).toEqual(expected);
  });

  test('describes its operations and limits in /openapi.json', async () => {
    const { paths } = (await servers[level].api.send('/openapi.json')).body;
    const { description } = paths['/users/track'].post;
    expect(description).toContain(
      level === 'spec' ? '50,000 requests per minute' : '3,000 requests per 3 seconds',
    );
    expect('/users/track/sync' in paths).toBe(level === 'current');
  });
});

describe('POST /users/track/sync with VENDOR_RULES=current', () => {
  const call = (body: object, headers?: Record<string, string>) =>
    servers.current.api.send('/users/track/sync', body, headers);

  test('answers with the stored values of the custom attributes of the object alone', async () => {
    await call({ attributes: [{ external_id: 'ada', logins: 1, plan: 'pro', old: 1 }] });
    const attributes = [{ external_id: 'ada', logins: { inc: 2 }, old: null, tags: ['a', 'b', 'a'] }];
    expect(await call({ attributes })).toMatchObject({
      status: 201,
      body: {
        users: [{ external_id: 'ada', custom_attributes: { logins: 3, tags: ['b', 'a'] } }],
        message: 'success',
      },
    });
  });

  test('answers with the first and last time and the count of the event', async () => {
    const event = { email: 'Grace@example.com', name: 'rented', time };
    await call({ events: [{ ...event, name: 'other' }] });
    await call({ events: [event] });
    const later = { ...event, time: '2026-02-01T12:00:00Z' };
    expect((await call({ events: [later] })).body.users).toEqual([
      {
        email: 'grace@example.com',
        custom_events: [{ name: 'rented', first: iso, last: '2026-02-01T12:00:00.000Z', count: 2 }],
      },
    ]);
  });

  test('answers with the product of a purchase by alias', async () => {
    const user_alias = { alias_name: 'c-1', alias_label: 'cookie' };
    const purchase = { user_alias, product_id: 'book', currency: 'USD', price: 3, quantity: 2, time };
    expect((await call({ purchases: [{ ...purchase, _update_existing_only: false }] })).body.users).toEqual([
      { user_alias, purchase_events: [{ product_id: 'book', first: iso, last: iso, count: 2 }] },
    ]);
  });

  test('answers without a user if only existing users may be updated and the user is unknown', async () => {
    const attributes = [{ external_id: 'nobody', plan: 'pro', _update_existing_only: true }];
    expect(await call({ attributes })).toMatchObject({ status: 201, body: { users: [] } });
  });

  test('rejects a second object, and an invalid object', async () => {
    const one = { external_id: 'ada', plan: 'pro' };
    const event = { external_id: 'ada', name: 'opened', time };
    for (const body of [{ attributes: [one, one] }, { attributes: [one], events: [event] }])
      expect(await call(body)).toMatchObject({ status: 400, body: { message: 'Max Input Length Exceeded' } });
    const invalid = await call({ events: [{ external_id: 'ada', name: 'opened' }] });
    expect(invalid.status).toBe(400);
    expect(invalid.body.errors).toEqual([{ type: "'time' is required", input_array: 'events', index: 0 }]);
    expect((await call({})).status).toBe(400);
  });

  test('applies a request with an Idempotency-Key once, and repeats its answer', async () => {
    const body = { attributes: [{ external_id: 'once', logins: { inc: 1 } }] };
    const answers = [];
    for (let turn = 0; turn < 2; turn++) answers.push(await call(body, { 'Idempotency-Key': 'once' }));
    for (const { status, body: answer } of answers)
      expect([status, answer.users]).toEqual([
        201,
        [{ external_id: 'once', custom_attributes: { logins: 1 } }],
      ]);
  });
});

test('POST /users/track/sync answers 202 if no worker applies the object in time', async () => {
  const fleet = await startFleet('postgres', { edges: 1, workers: 0, env: { VENDOR_RULES: 'current' } });
  try {
    const answer = await sendTo(fleet.edges[0]!.port, {
      path: '/users/track/sync',
      key: fleet.workspace.key,
      json: { attributes: [{ external_id: 'ada', plan: 'pro' }] },
    });
    expect(answer).toMatchObject({ status: 202, body: { message: 'success', pending: true } });
  } finally {
    await fleet.stop();
  }
});
