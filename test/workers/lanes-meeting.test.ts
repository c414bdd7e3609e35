import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import { createGroup, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes, createStore, deliver, event, point, readSums } from './batch.ts';

const USERS = 6;
const ROUNDS = 200;

let pool: pg.Pool;
let workspace: TestWorkspace;
let group: string;
beforeAll(async () => {
  ({ pool, workspace } = await createStore());
  group = await createGroup(pool, workspace.id, 'email');
});
afterAll(() => pool.end());

/** Returns identifiers of one user that belong to different lanes. */
function identifiersOf(user: number): Identifier[] {
  return [
    { external_id: `user-${user}` },
    { email: `user-${user}@example.com` },
    { phone: `+44207183875${user}` },
  ];
}

test('G3: lanes that change the same users in different orders all take effect', async () => {
  const everyone = Array.from({ length: USERS }, (_, user) => user);
  await applyBatch(pool, [
    deliver(
      workspace,
      everyone.map((user) => {
        const [, address, number] = identifiersOf(user) as [object, { email: string }, { phone: string }];
        return attributes(`user-${user}`, { standard: { ...address, ...number, phone_valid: true } });
      }),
    ),
  ]);
  for (let round = 0; round < ROUNDS; round++) {
    await Promise.all(
      [0, 1, 2].map((lane) => {
        const order = lane === 1 ? [...everyone].reverse() : rotated(everyone, round);
        const objects = order.flatMap((user) => touch(identifiersOf(user)[lane]!));
        return applyBatch(pool, [{ ...deliver(workspace, objects, lane), lanes: 3 }]);
      }),
    );
  }
  const touches = 3 * ROUNDS * USERS;
  expect(await readSums(pool, workspace)).toMatchObject({
    users: USERS,
    points: touches,
    events: touches,
    counted: touches,
  });
});

/** Returns one object of each kind that locks a row. */
function touch(identifier: Identifier): AcceptedObject[] {
  return [
    point(identifier),
    event(identifier),
    attributes(identifier, { set: { seen: true } }),
    attributes(identifier, {
      standard: { first_name: 'Ann' },
      email_subscribe: 'opted_in',
      subscription_groups: [{ subscription_group_id: group, subscription_state: 'subscribed' }],
    }),
  ];
}

function rotated<T>(list: T[], by: number): T[] {
  const at = by % list.length;
  return [...list.slice(at), ...list.slice(0, at)];
}
