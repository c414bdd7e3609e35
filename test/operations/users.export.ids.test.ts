import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createWorkspace } from '../setup/workspace.ts';
import { createStore, type Store } from './in-process.ts';

const time = '2026-01-02T03:04:05.000Z';

let store: Store;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store.stop());

/** Returns the exported user with this external id. */
async function read(externalId: string, ...fields: string[]) {
  const { body } = await store.exportIds({ external_ids: [externalId], fields_to_export: fields });
  expect(body.users).toHaveLength(1);
  return body.users[0];
}

const namesOf = ({ body }: { body: { users: { external_id?: string }[] } }) =>
  body.users.map((user) => user.external_id);

describe('finds users', () => {
  beforeAll(async () => {
    await store.track({
      attributes: [
        { external_id: 'one', email: 'one@example.com', phone: '+442071838752', seat: 1 },
        { external_id: '2', seat: 2 },
        { user_alias: { alias_name: 'three', alias_label: 'seat' }, _update_existing_only: false, seat: 3 },
        { email: 'four@example.com', seat: 4 },
        { external_id: 'five', push_tokens: [{ app_id: 'a', token: 't', device_id: 'device-5' }] },
      ],
    });
  });

  const seats = ({ body }: Awaited<ReturnType<Store['exportIds']>>) =>
    body.users.map(
      ({ custom_attributes }: { custom_attributes?: { seat: number } }) => custom_attributes?.seat,
    );

  test('by external ids, in their order; an integer counts as its text', async () => {
    expect(seats(await store.exportIds({ external_ids: [2, 'one'] }))).toEqual([2, 1]);
  });

  test('by aliases', async () => {
    const user_alias = { alias_name: 'three', alias_label: 'seat' };
    expect(seats(await store.exportIds({ user_aliases: [user_alias] }))).toEqual([3]);
    expect(seats(await store.exportIds({ user_aliases: user_alias }))).toEqual([3]);
  });

  test('by service id, one or several', async () => {
    const [one, two] = [(await read('one')).service_id, (await read('2')).service_id];
    expect(seats(await store.exportIds({ service_id: one }))).toEqual([1]);
    expect(seats(await store.exportIds({ service_ids: [two, one] }))).toEqual([2, 1]);
  });

  test('by email address in any case', async () => {
    expect(seats(await store.exportIds({ email_address: 'Four@EXAMPLE.com' }))).toEqual([4]);
  });

  test('by phone number however it is written', async () => {
    expect(seats(await store.exportIds({ phone: '+44 (20) 7183-8752' }))).toEqual([1]);
  });

  test('by device', async () => {
    expect(namesOf(await store.exportIds({ device_id: 'device-5' }))).toEqual(['five']);
  });

  test('by several kinds at once; a user named twice is returned once', async () => {
    const answer = await store.exportIds({
      external_ids: ['one', 'one'],
      user_aliases: [{ alias_name: 'three', alias_label: 'seat' }],
      email_address: 'one@example.com',
      phone: '+442071838752',
    });
    expect(seats(answer)).toEqual([1, 3]);
    expect(answer.body).not.toHaveProperty('invalid_user_ids');
  });

  test('by email address or phone number: all its users, those with an external id first', async () => {
    await store.track({ attributes: [{ email: 'many@example.com', phone: '+442071838753', seat: 'none' }] });
    for (const external_id of ['many-1', 'many-2']) {
      await store.track({
        attributes: [{ external_id, email: 'many@example.com', phone: '+442071838753', seat: external_id }],
      });
    }
    expect(seats(await store.exportIds({ email_address: 'many@example.com' }))).toEqual([
      'many-2',
      'many-1',
      'none',
    ]);
    expect(seats(await store.exportIds({ phone: '+442071838753' }))).toEqual(['many-2', 'many-1', 'none']);
  });

  test('first the user that /users/track selects: an event or purchase also updates a profile', async () => {
    const position = { email: 'turns@example.com', phone: '+442071838754' };
    for (const external_id of ['turn-a', 'turn-b']) {
      await store.track({ attributes: [{ external_id, ...position, seat: external_id }] });
    }
    const order = async () => [
      seats(await store.exportIds({ email_address: position.email })),
      seats(await store.exportIds({ phone: position.phone })),
    ];
    const [a, b] = ['turn-a', 'turn-b'] as const;
    const [ab, ba] = [
      [a, b],
      [b, a],
    ];
    expect(await order()).toEqual([ba, ba]);
    await store.track({ events: [{ external_id: a, name: 'seen', time }] });
    expect(await order()).toEqual([ab, ab]);
    await store.track({
      purchases: [{ external_id: b, product_id: 'tea', currency: 'EUR', price: 1, time }],
    });
    expect(await order()).toEqual([ba, ba]);
    await store.track({ attributes: [{ email: position.email, chosen: true }] });
    expect((await read(b)).custom_attributes).toMatchObject({ chosen: true });
  });

  test('of the same workspace only', async () => {
    const other = await createWorkspace(store.database.pool, `other-${uuidv7()}`);
    await store.track(
      { attributes: [{ external_id: 'one', email: 'one@example.com', seat: 'other' }] },
      other.id,
    );
    expect(seats(await store.exportIds({ external_ids: ['one'], email_address: 'one@example.com' }))).toEqual(
      [1],
    );
    expect(seats(await store.exportIds({ external_ids: ['one', '2'] }, other.id))).toEqual(['other']);
  });
});

describe('identifiers without a user', () => {
  test('are listed in invalid_user_ids, each once, as they were sent', async () => {
    const { body, status } = await store.exportIds({
      external_ids: ['nobody', 17, 'nobody'],
      user_aliases: [{ alias_name: 'no-name', alias_label: 'none' }],
      service_id: '000000000000000000000000',
      email_address: 'Nobody@example.com',
      phone: '+442071838799',
      device_id: 'no-device',
    });
    expect(status).toBe(201);
    expect(body).toEqual({
      users: [],
      invalid_user_ids: [
        'nobody',
        '17',
        'no-name',
        '000000000000000000000000',
        'Nobody@example.com',
        '+442071838799',
        'no-device',
      ],
      message: 'success',
    });
  });

  test('include malformed identifiers and identifiers that Postgres cannot store', async () => {
    const { body } = await store.exportIds({
      external_ids: ['a\u0000b', '\ud800', 'x'.repeat(5000)],
      service_ids: ['not-hex', 5],
      email_address: 'no address',
      phone: 'none',
    });
    expect(body.users).toEqual([]);
    expect(body.invalid_user_ids).toHaveLength(7);
  });
});

describe('fields_to_export', () => {
  test('limits the answer to those fields', async () => {
    await store.track({ attributes: [{ external_id: 'fields', first_name: 'A', last_name: 'B', n: 1 }] });
    expect(await read('fields', 'external_id', 'first_name', 'custom_attributes', 'custom_events')).toEqual({
      external_id: 'fields',
      first_name: 'A',
      custom_attributes: { n: 1 },
    });
  });

  test('ignores names of fields that Penstock has no data for', async () => {
    await store.track({ attributes: [{ external_id: 'fields-2', first_name: 'A' }] });
    expect(await read('fields-2', 'first_name', 'campaigns_received', '__proto__')).toEqual({
      first_name: 'A',
    });
  });
});

describe('rejects', () => {
  const many = (count: number) => Array.from({ length: count }, (_, index) => `id-${index}`);
  const aliases = (count: number) => many(count).map((alias_name) => ({ alias_name, alias_label: 'l' }));

  test('no identifier at all', async () => {
    for (const body of [
      {},
      { external_ids: [] },
      { external_ids: null, email_address: '' },
      { fields_to_export: ['email'] },
    ]) {
      await expect(store.exportIds(body)).rejects.toThrow(
        "'external_ids', 'user_aliases', 'service_id', 'email_address', 'phone' or 'device_id' is required",
      );
    }
  });

  test('more than 50 ids', async () => {
    const text = 'The max number of ids per request was exceeded';
    await expect(store.exportIds({ external_ids: many(51) })).rejects.toThrow(text);
    await expect(store.exportIds({ service_ids: many(51) })).rejects.toThrow(text);
    await expect(store.exportIds({ external_ids: many(26), service_ids: many(25) })).rejects.toThrow(text);
    expect((await store.exportIds({ external_ids: many(50) })).body.users).toEqual([]);
  });

  test('more than 50 ids and aliases', async () => {
    const text = 'The max number of external_ids and aliases per request was exceeded';
    await expect(store.exportIds({ user_aliases: aliases(51) })).rejects.toThrow(text);
    await expect(store.exportIds({ external_ids: many(26), user_aliases: aliases(25) })).rejects.toThrow(
      text,
    );
    expect((await store.exportIds({ external_ids: many(25), user_aliases: aliases(25) })).status).toBe(201);
  });

  test.each([
    [{ external_ids: [{}] }, "'external_ids.0' is not valid: it must be a string"],
    [{ external_ids: [1.5] }, "'external_ids.0' is not valid: it must be a string"],
    [{ user_aliases: [{ alias_name: 'a' }] }, "'user_aliases.0.alias_label' is required"],
    [{ user_aliases: 'a' }, "'user_aliases' is not valid: it must be an array of user alias objects"],
    [{ email_address: ['a@example.com'] }, "'email_address' is not valid: it must be a string"],
    [
      { external_ids: ['a'], fields_to_export: [1] },
      "'fields_to_export.0' is not valid: it must be a string",
    ],
  ])('a member of the wrong type: %j', async (body, text) => {
    await expect(store.exportIds(body as never)).rejects.toThrow(text);
  });
});

test('the service id has the wire name of the configuration', async () => {
  const other = await createStore('braze_id');
  try {
    await other.track({ attributes: [{ external_id: 'ada', n: 1 }] });
    const { body } = await other.exportIds({ external_ids: ['ada'], fields_to_export: ['braze_id'] });
    const { braze_id } = body.users[0];
    expect(braze_id).toMatch(/^[0-9a-f]{24}$/);
    expect(namesOf(await other.exportIds({ braze_id }))).toEqual(['ada']);
    expect(namesOf(await other.exportIds({ braze_ids: [braze_id] }))).toEqual(['ada']);
  } finally {
    await other.stop();
  }
});

test('reads fifty users with two statements', async () => {
  const { pool } = store.database;
  const query = pool.query.bind(pool);
  const names: unknown[] = [];
  pool.query = ((config: { name: string }) => {
    names.push(config.name);
    return query(config as never);
  }) as never;
  await store.exportIds({
    external_ids: [2, 'one', ...Array.from({ length: 48 }, (_, index) => `user-${index}`)],
  });
  pool.query = query as never;
  expect(names).toEqual(['find-exported', 'read-profiles']);
});
