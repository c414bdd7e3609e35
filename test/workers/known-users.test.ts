import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { KnownUsers } from '../../workers/batch/known-users.ts';
import { WHOLE } from '../../workers/batch/parts.ts';
import { applyTogether } from '../../workers/batch/run.ts';
import { alias, identity, merge, remove } from '../identity/objects.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import {
  attributes,
  createStore,
  deliver,
  event,
  openPool,
  point,
  waitForLocks,
  waitingSince,
} from './batch.ts';

/**
 * What a worker process remembers of users never decides whom an object means. On a distributed Postgres nobody is
 * remembered, and all of this holds as well.
 */

let url: string;
let pool: pg.Pool;
let workspace: TestWorkspace;
/** What two processes remember. */
let [here, there] = [new KnownUsers(100), new KnownUsers(100)];
beforeAll(async () => {
  ({ url, pool } = await createStore());
});
beforeEach(async () => {
  workspace = await createWorkspace(pool, crypto.randomUUID());
  [here, there] = [new KnownUsers(100), new KnownUsers(100)];
});
afterAll(() => pool.end());

const applyIn = (users: KnownUsers, ...objects: AcceptedObject[]) =>
  applyTogether(pool, [deliver(workspace, objects)], { ...WHOLE, users });

const rows = async (text: string, values: unknown[] = []) =>
  (await pool.query(text, [workspace.id, ...values])).rows;

/** Of who goes by the external id: the key, and how often which event was counted. */
async function found(externalId: string) {
  const [user] = await rows(
    `select profiles.id, profiles.custom_attributes as custom, coalesce((
       select json_object_agg(event_summaries.name, event_summaries.count)
       from event_summaries
       where event_summaries.workspace_id = $1 and event_summaries.profile_id = profiles.id), '{}') as counted
     from profiles where profiles.workspace_id = $1 and profiles.external_id = $2`,
    [externalId],
  );
  return user;
}

const isDistributed = () => process.env.TEST_STORE === 'citus';

test('who was named a moment ago is not looked up again', async (context) => {
  context.skip(isDistributed(), 'nobody is remembered there');
  await applyIn(here, event('ann'), attributes('bob', { set: { a: 1 } }));
  const [{ id }] = await rows('select id from profiles where workspace_id = $1 and external_id = $2', [
    'ann',
  ]);
  await rows("update profiles set external_id = external_id || '-by-hand' where workspace_id = $1");
  await applyIn(here, event('ann'), attributes('bob', { set: { b: 2 } }));
  expect(await found('ann-by-hand')).toMatchObject({ id, counted: { visited: 2 } });
  expect(await found('bob-by-hand')).toMatchObject({ custom: { a: 1, b: 2 } });
});

test('G3: a user whom another process has merged, deleted or renamed meanwhile is who they are now', async () => {
  const all = ['merged', 'kept', 'deleted', 'renamed'];
  await applyIn(here, ...all.map((name) => event(name)));
  const before = new Map(await Promise.all(all.map(async (name) => [name, (await found(name)).id] as const)));
  await applyIn(there, merge('merged', 'kept'));
  await applyIn(there, remove('deleted'));
  await applyIn(
    there,
    identity('external_id_rename', { current_external_id: 'renamed', new_external_id: 'new name' }),
  );
  await applyIn(here, ...[...all, 'new name'].map((name) => event(name)));
  expect(await found('kept')).toMatchObject({ id: before.get('kept'), counted: { visited: 3 } });
  expect(await found('new name')).toMatchObject({ id: before.get('renamed'), counted: { visited: 3 } });
  for (const name of ['merged', 'deleted']) {
    const again = await found(name);
    expect(again.id, name).not.toBe(before.get(name));
    expect(again.counted, name).toEqual({ visited: 1 });
  }
});

test('G3: what a batch itself changes about whom names mean holds for what follows in it', async () => {
  await applyIn(here, event('ann'), event('bob'), attributes('ann', { set: { a: 1 } }));
  await applyIn(
    here,
    event('ann'),
    remove('ann'),
    event('ann'),
    attributes('ann', { set: { b: 2 } }),
    event('bob'),
  );
  await applyIn(here, event('ann'), event('bob'), attributes('ann', { set: { c: 3 } }));
  expect(await found('ann')).toMatchObject({ custom: { b: 2, c: 3 }, counted: { visited: 2 } });
  expect(await found('bob')).toMatchObject({ counted: { visited: 3 } });
});

test('G2: a user whom a transaction made that was taken back is made by the next', async () => {
  const once = event('ann');
  await applyIn(here, once);
  // Of two rounds the first is written before the second fails: it ends with who is deleted and named again.
  const again = [remove('nobody'), event('nobody'), once];
  await expect(applyIn(here, event('bob'), ...again)).rejects.toThrow(/duplicate key/);
  await applyIn(here, event('bob'), event('ann'));
  expect(await found('bob')).toMatchObject({ counted: { visited: 1 } });
  expect(await found('ann')).toMatchObject({ counted: { visited: 2 } });
});

test('a user who is gone though nobody said so costs a try, and no attribute', async () => {
  await applyIn(here, attributes('ann', { set: { a: 1 } }));
  await rows('delete from profiles where workspace_id = $1');
  const again = () => applyIn(here, attributes('ann', { set: { b: 2 } }));
  if (!isDistributed()) await expect(again()).rejects.toThrow('profiles were merged or deleted');
  await again();
  expect(await found('ann')).toMatchObject({ custom: { b: 2 } });
});

test('who was looked up in vain is not remembered any more', async () => {
  await applyIn(here, event('ann'));
  await rows('delete from profiles where workspace_id = $1');
  await applyIn(here, { ...point('ann'), create: false });
  await applyIn(here, event('ann'));
  expect(await found('ann')).toMatchObject({ counted: { visited: 1 } });
});

test('custom attributes that are overwritten again and again stay within what they may take', async () => {
  const value = 'x'.repeat(20_000);
  const set = (place: number) => attributes('ann', { set: { [`attribute ${place}`]: value } });
  const ends = [];
  for (let place = 0; place < 20; place++) ends.push(await applyIn(here, set(place), set(place)));
  const letters = ends.map((end) => (end.kind === 'applied' ? end.deadLetters.length : Number.NaN));
  expect(letters).toEqual([...Array(13).fill(0), ...Array(7).fill(2)]);
  expect(Object.keys((await found('ann')).custom)).toHaveLength(13);
});

test('who was found or made in a batch is that one for the rest of it, whoever was known before', async () => {
  waitForLocks();
  await applyIn(here, event('ann'));
  const [{ id: gone }] = await rows('select id from profiles where workspace_id = $1');
  const batch = deliver(workspace, [
    attributes('ann', { set: { a: 1 } }),
    // A round ends with who is deleted and named again.
    remove('nobody'),
    event('nobody'),
    event('ann', 'came back'),
  ]);
  const other = await pool.connect();
  let applied: Promise<unknown> | undefined;
  try {
    await other.query('begin');
    await other.query('delete from profiles where workspace_id = $1', [workspace.id]);
    applied = applyTogether(pool, [{ ...batch, lanes: 2 }], { ...WHOLE, users: here });
    await waitUntil(() => waitingSince(pool), { what: 'the batch to come to lock her' });
  } finally {
    await other.query('commit');
    other.release();
  }
  expect(await applied).toMatchObject({ kind: 'applied', objects: 4 });
  const made = await found('ann');
  expect(made.id).not.toBe(gone);
  expect(made).toMatchObject({ custom: { a: 1 }, counted: { 'came back': 1 } });
});

describe('custom attributes stay within what they may take', () => {
  const much = (name: string) => ({ [name]: 'x'.repeat(200_000) });
  const byMail = attributes({ email: 'q@example.com' }, { change: { n: { inc: 1 } } });
  const lettersOf = (end: Awaited<ReturnType<typeof applyIn>>) =>
    end.kind === 'applied' ? end.deadLetters.length : Number.NaN;

  test('when a round of the same batch has made them grow otherwise', async () => {
    await applyIn(here, event('ann'), attributes('ann', { set: { a: 1 } }));
    const end = await applyIn(
      here,
      attributes('ann', { standard: { email: 'q@example.com' }, set: much('first') }),
      byMail,
      attributes('bob', { set: { x: 1 } }),
      attributes('ann', { set: much('second') }),
    );
    expect(lettersOf(end)).toBe(1);
    expect(Object.keys((await found('ann')).custom).sort()).toEqual(['a', 'first', 'n']);
  });

  test('when they were looked up in an earlier round of the batch in which they grew', async () => {
    await applyIn(here, attributes('ann', { set: { a: 1 } }));
    await applyIn(
      here,
      // Looked up for a stored value, and not changed.
      identity('alias_new', { external_id: 'ann', ...alias('label:name') }),
      attributes('bob', { standard: { email: 'q@example.com' } }),
      byMail,
      attributes('bob', { set: { y: 1 } }),
      attributes('ann', { set: much('first') }),
    );
    expect(lettersOf(await applyIn(here, attributes('ann', { set: much('second') })))).toBe(1);
  });

  test.each([
    ['another process', () => there],
    ['a batch that is bisected', () => undefined],
  ])('when %s has made them grow meanwhile', async (_who, users) => {
    await applyIn(here, attributes('ann', { set: { a: 1 } }));
    const between = deliver(workspace, [attributes('ann', { set: much('first') })]);
    await applyTogether(pool, [between], { ...WHOLE, users: users() });
    expect(lettersOf(await applyIn(here, attributes('ann', { set: much('second') })))).toBe(1);
    expect(Object.keys((await found('ann')).custom).sort()).toEqual(['a', 'first']);
  });
});

test('a store that was started again is one of which a process knows nobody', async (context) => {
  context.skip(isDistributed(), 'nobody is remembered there');
  await applyIn(here, event('bob'));
  // Another server tells another time at which it was started.
  const other = openPool(
    `${url}${url.includes('?') ? '&' : '?'}options=-c%20search_path%3Drestarted,pg_catalog,public`,
  );
  try {
    await other.query('create schema restarted');
    await other.query(`create function restarted.pg_postmaster_start_time() returns timestamptz
      language sql as $$ select now() + interval '1 day' $$`);
    await rows("delete from profiles where workspace_id = $1 and external_id = 'bob'");
    await applyTogether(other, [deliver(workspace, [event('bob')])], { ...WHOLE, users: here });
    expect(await found('bob')).toMatchObject({ counted: { visited: 1 } });
  } finally {
    await other.end();
  }
});

test('an identity operation that was counted on the day before is seen as well', async (context) => {
  context.skip(isDistributed(), 'nobody is remembered there');
  await applyIn(here, event('ann'));
  await rows("delete from profiles where workspace_id = $1 and external_id = 'ann'");
  await rows(`insert into usage (workspace_id, day, lane, identity)
    values ($1, (now() at time zone 'UTC')::date - 1, 7, 1)`);
  await applyIn(here, event('ann'));
  expect(await found('ann')).toMatchObject({ counted: { visited: 1 } });
});
