import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createEdgeMetrics } from '../../src/edge/metrics.ts';
import { RefusedObjects, refusalLimits } from '../../src/edge/refused-objects.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { floorOf, newId } from '../../src/platform/ids.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import type { Pool } from '../../src/store/database.ts';
import {
  addRefusedOfUsers,
  dayOf,
  forgetRefusedOfUsers,
  nameOf,
  selectRefusedOfUser,
} from '../../src/store/refused-of-users.ts';
import { cleanUpTombstones } from '../../workers/upkeep/tombstones.ts';
import { by, identity } from '../identity/objects.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { attributes, createStore, deliver, silent } from '../workers/batch.ts';

/** The statement that gives rows of an earlier release their name. */
const [migration] = /^update [^;]+/m.exec(
  readFileSync(
    path.join(packageRoot, 'prisma/migrations/0099_refused_of_users_by_workspace/migration.sql'),
    'utf8',
  ),
)!;

let pool: Pool;
beforeAll(async () => {
  ({ pool } = await createStore());
});
afterAll(() => pool.end());

/** A new workspace for each test. */
let workspaceId: string;
beforeEach(async () => {
  ({ id: workspaceId } = await createWorkspace(pool, newId()));
});

const open = (limits: Partial<typeof refusalLimits> = {}, store = pool) =>
  new RefusedObjects(store, {
    ...{ log: silent, metrics: createEdgeMetrics() },
    limits: { ...refusalLimits, ...limits },
  });

/** Notes a request whose events were all refused. */
function note(refused: RefusedObjects, events: Json[], requestId = newId()) {
  const rejected = events.map((_, index) => ({
    ...{
      type: "'name' is required",
      input_array: 'events',
      index,
      reason: 'required' as const,
      field: 'name',
    },
  }));
  refused.note({
    requestId,
    workspaceId,
    keyId: newId(),
    operation: 'users.track',
    body: { events },
    accepted: 0,
    rejected,
  });
  return requestId;
}

/** Notes refused events by a web process that stops afterwards. */
async function refuse(...events: Json[]): Promise<string> {
  const refused = open();
  const requestId = note(refused, events);
  await refused.stop();
  return requestId;
}

const found = async (...identifiers: Identifier[]) =>
  selectRefusedOfUser(
    pool,
    workspaceId,
    identifiers.map((identifier) => ({ identifier })),
  );
const user = (external_id: string) => ({ external_id });

const apply = (...objects: Parameters<typeof deliver>[1]) =>
  applyBatch(pool, [deliver({ id: workspaceId }, objects)]);

const rows = async () =>
  (
    await pool.query('select count(*)::integer as rows from refused_of_users where workspace_id = $1', [
      workspaceId,
    ])
  ).rows[0].rows;

describe('refused objects of a user', () => {
  test('are found by the identifier that they name, without a value', async () => {
    const requestId = await refuse(user('ada'), user('bea'), { email: 'Carla@gmail.com', time: 'secret' });
    const kept = {
      requestId,
      operation: 'users.track',
      inputArray: 'events',
      reason: 'required',
      field: 'name',
    };
    expect(await found(user('ada'))).toEqual([{ ...kept, index: 0 }]);
    expect(await found({ email: 'carla@gmail.com' })).toEqual([{ ...kept, index: 2 }]);
    expect(await found(user('bea'), user('ada'))).toHaveLength(2);
    expect(await found(user('cleo'))).toEqual([]);
    const { rows: stored } = await pool.query(
      'select refused_of_users::text as text from refused_of_users where workspace_id = $1',
      [workspaceId],
    );
    // The digits of a hash can contain `ada`.
    for (const { text } of stored) expect(text).not.toMatch(/\bada\b|gmail|secret/i);
  });

  test('are the last 20 of a day', async () => {
    const refused = open();
    const requests = [
      note(
        refused,
        Array.from({ length: 30 }, () => user('ada')),
      ),
    ];
    await refused.write();
    for (let n = 0; n < 19; n++) requests.push(note(refused, [user('ada')]));
    await refused.stop();
    const kept = await found(user('ada'));
    expect(kept).toHaveLength(20);
    expect(new Set(kept.map(({ requestId }) => requestId))).toEqual(new Set(requests));
  });

  test('are kept once if a write is repeated', async () => {
    const refused = open();
    const requestId = note(refused, [user('ada')]);
    await refused.write();
    note(refused, [user('ada')], requestId);
    await refused.stop();
    const { rows: stored } = await pool.query(
      'select jsonb_array_length(objects) as length from refused_of_users where workspace_id = $1',
      [workspaceId],
    );
    expect(stored).toEqual([{ length: 1 }]);
  });

  test('wait for the next write if Postgres does not answer', async () => {
    let fails = true;
    const flaky = new Proxy(pool, {
      get: (target, name) =>
        name === 'query' && fails
          ? () => Promise.reject(new Error('no answer'))
          : Reflect.get(target, name, target),
    });
    const refused = open({}, flaky);
    note(refused, [user('ada')]);
    await refused.write();
    note(refused, [user('ada')]);
    fails = false;
    await refused.stop();
    expect(await found(user('ada'))).toHaveLength(2);
  });

  test('are kept up to a limit for each workspace and hour', async () => {
    const refused = open({ usersOfHour: 3 });
    for (let n = 0; n < 5; n++) note(refused, [user(`user-${n}`)]);
    await refused.stop();
    expect(await rows()).toBe(3);
  });

  test('are deleted with the user, by each of its identifiers and those in the request', async () => {
    await apply(attributes('ada', { standard: { email: 'ada@gmail.com' } }));
    await apply(
      identity('alias_new', { external_id: 'ada', user_alias: { alias_label: 'crm', alias_name: 'A' } }),
    );
    await refuse(
      user('ada'),
      { email: 'ada@gmail.com' },
      { user_alias: { alias_label: 'crm', alias_name: 'A' } },
    );
    await refuse(user('unknown'), user('other'));
    await apply(
      identity('delete', { user: by(user('ada')) }),
      identity('delete', { user: by(user('unknown')) }),
    );
    expect(await rows()).toBe(1);
    expect(await found(user('other'))).toHaveLength(1);
  });

  test('are deleted with a user whose identifier has a backslash or characters outside of ASCII', async () => {
    const odd = user(String.raw`\101\x41 \\ "é😀`);
    await apply(attributes(odd.external_id, {}), attributes('ada', {}));
    await refuse(odd);
    expect(await found(odd)).toHaveLength(1);
    await apply(identity('delete', { user: by(odd) }));
    expect(await rows()).toBe(0);
  });

  test('have another name in another workspace, also rows of an earlier release', async () => {
    expect(nameOf(workspaceId, user('ada'))).not.toEqual(nameOf(newId(), user('ada')));
    const requestId = newId();
    const object = {
      ...{ requestId, operation: 'users.track', inputArray: 'events', index: 0 },
      ...{ reason: 'required', field: 'name' },
    };
    await addRefusedOfUsers(pool, [
      {
        ...{ workspaceId, day: dayOf(requestId), objects: [object] },
        name: createHash('sha256').update('x:ada').digest(),
      },
    ]);
    expect(await found(user('ada'))).toEqual([]);
    const { rows: applied } = await pool.query({
      text: `${migration} where workspace_id = $1 returning name`,
      values: [workspaceId],
    });
    expect(applied).toEqual([{ name: nameOf(workspaceId, user('ada')) }]);
    expect(await found(user('ada'))).toEqual([object]);
  });

  test('do not lose the counts of groups if they cannot be written, and are written later', async () => {
    let fails = true;
    const flaky = new Proxy(pool, {
      get: (target, name) =>
        name === 'query'
          ? (statement: { name?: string }, ...rest: []) =>
              fails && statement.name === 'add-refused-of-users'
                ? Promise.reject(new Error('no answer'))
                : target.query(statement as never, ...rest)
          : Reflect.get(target, name, target),
    });
    const refused = open({}, flaky);
    note(refused, [user('ada')]);
    for (let attempt = 0; attempt < 59; attempt++) await refused.write();
    note(refused, [user('ada')]);
    await refused.write();
    const counted = async () =>
      (
        await pool.query(
          'select sum(objects)::integer as objects from refused_objects where workspace_id = $1',
          [workspaceId],
        )
      ).rows[0].objects;
    // After 60 failed attempts the first object of the user is dropped.
    expect(await counted()).toBe(2);
    note(refused, [user('bea')]);
    await refused.write();
    fails = false;
    await refused.stop();
    expect(await counted()).toBe(3);
    expect(await found(user('ada'))).toEqual([]);
    expect(await found(user('bea'))).toHaveLength(1);
  });

  test('stay for an address that another user has', async () => {
    const email = 'both@gmail.com';
    await apply(attributes('ada', { standard: { email } }), attributes('bea', { standard: { email } }));
    await refuse({ email });
    await apply(identity('delete', { user: by(user('ada')) }));
    expect(await found({ email })).toHaveLength(1);
    await apply(identity('delete', { user: by(user('bea')) }));
    expect(await found({ email })).toEqual([]);
  });

  test('are deleted with the kept user after a merge', async () => {
    await apply(attributes('ada', {}), attributes('ada-old', {}));
    await refuse(user('ada-old'));
    await apply(identity('merge', { merge: by(user('ada-old')), keep: by(user('ada')) }));
    await apply(identity('delete', { user: by(user('ada')) }));
    const { rows: keys } = await pool.query(
      'select workspace_id as "workspaceId", profile_id as id from removed_profiles where workspace_id = $1',
      [workspaceId],
    );
    await cleanUpTombstones(pool, keys);
    expect(await rows()).toBe(0);
  });

  test('are found by a former external id only up to the merge', async () => {
    const before = floorOf(Date.now() - 60_000).replace(/0000$/, '0001');
    const refused = open();
    note(refused, [user('ada-old')], before);
    note(refused, [user('ada-old')]);
    await refused.stop();
    const until = new Date(Date.now() - 30_000);
    const objects = await selectRefusedOfUser(pool, workspaceId, [{ identifier: user('ada-old'), until }]);
    expect(objects.map(({ requestId }) => requestId)).toEqual([before]);
  });

  test('are forgotten after 30 days', async () => {
    const refused = open();
    for (const days of [0, 29, 31, 40]) note(refused, [user('ada')], floorOf(Date.now() - days * 86_400_000));
    await refused.stop();
    expect(await found(user('ada'))).toHaveLength(2);
    await forgetRefusedOfUsers(pool);
    expect(await rows()).toBe(2);
  });

  test('are forgotten in slices, however many there are', async () => {
    await pool.query(
      `insert into refused_of_users (workspace_id, name, day, objects)
       select $1::uuid, sha256(n::text::bytea), (now() at time zone 'UTC')::date - 31, '[]'
       from generate_series(1, 2500) as n`,
      [workspaceId],
    );
    await forgetRefusedOfUsers(pool);
    expect(await rows()).toBe(0);
  });
});
