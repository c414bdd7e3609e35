import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import {
  analyzeGrown,
  type Connection,
  type Database,
  everyStatementByIndex,
  type Pool,
} from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { PROFILES_GONE } from '../../src/store/profile-attributes.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';
import { longReads } from './plans/allowed.ts';
import type { Asking } from './plans/asking.ts';
import { type Filled, fillUncounted, leaveUnwatched } from './plans/fill.ts';
import { ofDelivery } from './plans/of-delivery.ts';
import { ofIdentity } from './plans/of-identity.ts';
import { ofSubscriptions } from './plans/of-subscriptions.ts';
import { ofUsers } from './plans/of-users.ts';
import { recordingOn } from './plans/record.ts';
import { sessionsOf } from './plans/sources.ts';

/**
 * Maximum number of rows and index entries that a statement may read: it reads a hundred rows of each of five
 * tables, for a few
 * users. A scan of all rows of a user, once for each of a hundred rows, would read 300,000.
 */
const MAX_READ = 15_000;

/** Rows per large table: three statements that scan half of a workspace read more than `MAX_READ`. */
const ROWS = 12_000;

/** Rows of each kind for the queried users; `NAMES` is close to the maximum of names per user. */
const MANY = 3000;
const NAMES = 400;

/** Files of the store whose statements may read without an index; see `longReads`. */
const long = new Set(Object.keys(longReads).map((read) => read.slice(0, read.indexOf(':'))));

let filling: Database;
let workers: Database;
let tx: Connection;

/** Returns ids that match no row, for calls before any data exists. */
const nobody = (): Filled => {
  const names = [
    ...(['workspaceId', 'companyId', 'accountId', 'teamId', 'setId', 'group', 'integrationId'] as const),
  ];
  const ids = Object.fromEntries(names.map((name) => [name, newId()])) as Record<
    (typeof names)[number],
    string
  >;
  const users = [1, 2, 3].map((n) => ({
    ...{ id: newId(), external_id: `user${n}`, email: `user${n}@x.com`, phone: `+4420${n}` },
  }));
  const runs = { runId: newId(), oldRunId: newId(), attempt: newId() };
  return {
    ...{ ...ids, ...runs, users, keyHash: Buffer.alloc(32) },
    ...{ envelopes: [newId()], objects: [newId()], deadLetters: [newId()] },
  };
};

/** Adds rows to a few users, so that a read of all their rows for each of their rows is noticed. */
async function grow(pool: Pool, { workspaceId, users }: Filled, most = MANY): Promise<void> {
  const owned: Record<string, [count: number, values: string]> = {
    'user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at)': [
      NAMES,
      "$1, 'grown' || n, $2, $2::uuid, now()",
    ],
    'deprecated_external_ids (workspace_id, external_id, profile_id, created_at)': [
      NAMES,
      "$1, n || ' of ' || $2, $2::uuid, now()",
    ],
    'event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)': [
      MANY,
      "$1, $2::uuid, 'grown' || n, now(), now(), 1, now()",
    ],
    'purchase_summaries (workspace_id, profile_id, product_id, currency, first, last, count, revenue, updated_at)':
      [MANY, "$1, $2::uuid, 'grown' || n, 'USD', now(), now(), 1, 1, now()"],
    'app_summaries (workspace_id, profile_id, app_id, sessions, first_session, last_session)': [
      MANY,
      "$1, $2::uuid, 'grown' || n, 1, now(), now()",
    ],
    'push_tokens (workspace_id, app_id, token, device_id, profile_id, created_at)': [
      MANY,
      "$1, 'app', n || ' of ' || $2, 'device' || n, $2::uuid, now()",
    ],
    'subscription_history (workspace_id, subject_kind, subject, subscription, to_state, changed_at, request_id)':
      [MANY, "$1, 'profile', $2, '', 'subscribed', now(), 'request'"],
    'events (workspace_id, id, profile_id, name, "time")': [
      MANY,
      "$1, gen_random_uuid(), $2::uuid, 'grown', now()",
    ],
    'purchases (workspace_id, id, profile_id, product_id, currency, price, quantity, "time")': [
      MANY,
      "$1, gen_random_uuid(), $2::uuid, 'grown', 'USD', 1, 1, now()",
    ],
    'merged_profiles (workspace_id, profile_id, kept_id, merged_at)': [
      MANY,
      '$1, gen_random_uuid(), $2::uuid, now()',
    ],
    'dead_letters (id, workspace_id, request_id, kind, job_name, object, reason, identifiers)': [
      MANY,
      "gen_random_uuid(), $1, $2, 'events', 'track', '{}', 'reason', array['s:' || $2, 'u:' || $2]",
    ],
    'left_names (workspace_id, name, owner_id, up_to)': [NAMES, "$1, n || ' of ' || $2, $2::uuid, 1e12"],
  };
  for (const { id } of users)
    for (const [target, [count, values]] of Object.entries(owned))
      await pool.query(
        `insert into ${target} select ${values} from generate_series(1, $3::integer) as n, (select $1::uuid, $2::text) as given`,
        [workspaceId, id, Math.min(count, most)],
      );
}

async function readSoFar(): Promise<number> {
  const { rows } = await tx.query(`
    select sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid))::integer as read
    from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'i')`);
  return rows[0].read;
}

/** Calls every function. @returns the rows that each call read, by file of the store */
async function readBy(
  asking: Asking,
  filled: Filled,
  isThere = true,
): Promise<[file: string, read: number][]> {
  const results: [string, number][] = [];
  const { store, sent } = recordingOn(tx);
  await tx.query('begin');
  for (const call of asking(store, filled)) {
    await tx.query('savepoint one');
    const [before, first] = [await readSoFar(), sent.length];
    const failed = await call().then(
      () => undefined,
      (error) => error,
    );
    if (failed) {
      // Tables are empty: the call refers to a missing row of another table, or changes a missing profile.
      if (failed.code !== '23503' && (isThere || failed.message !== PROFILES_GONE)) throw failed;
      await tx.query('rollback to savepoint one');
      continue;
    }
    const read = (await readSoFar()) - before;
    for (const file of new Set(sent.slice(first).map((one) => one.site))) results.push([file, read]);
    await tx.query('rollback to savepoint one');
  }
  await tx.query('rollback');
  return results;
}

describe.each<[string, (pool: Pool) => Promise<unknown>]>([
  ['that were never counted', async () => {}],
  ['that were counted', (pool) => pool.query('vacuum analyze')],
  ['but for a few rows that were counted', countAFew],
])('G8: with plans made for empty tables %s,', (_, prepare) => {
  beforeAll(async () => {
    const { url } = await createDatabaseOfOne();
    filling = openDatabase(url, 1);
    workers = openDatabase(url, 1, { session: everyStatementByIndex });
    await leaveUnwatched(filling.pool);
    await prepare(filling.pool);
    tx = await workers.pool.connect();
  });
  afterAll(async () => {
    tx.release();
    await workers.stop();
    await filling.stop();
  });

  test('statements of the workers read only the rows that they need once the tables are full', async () => {
    const askings = [ofIdentity, ofSubscriptions, ofDelivery, ofUsers];
    for (const asking of askings) await readBy(asking, nobody(), false);
    const filled = await fillUncounted(filling.pool, ROWS);
    await grow(filling.pool, filled);
    // Every worker does this each second.
    await analyzeGrown(filling.pool);
    const read = [];
    for (const asking of askings) read.push(...(await readBy(asking, filled)));
    expect(read.length).toBeGreaterThan(50);
    const much = read.filter(
      ([file, rows]) => rows > MAX_READ && !long.has(file) && sessionsOf(file).includes('workers'),
    );
    expect(much).toEqual([]);
  }, 300_000);
});

/** Adds users of a separate workspace with a few rows in each table, and counts them. */
async function countAFew(pool: Pool): Promise<void> {
  const users = [1, 2, 3].map(() => ({ ...nobody().users[0]!, id: newId() }));
  await grow(pool, { ...nobody(), users }, 3);
  await pool.query('analyze');
}
