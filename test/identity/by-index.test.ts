import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { type Connection, type Database, everyStatementByIndex } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { selectTombstones } from '../../src/store/tombstones.ts';
import { cleanUpHistories, cleanUpTombstones } from '../../workers/upkeep/tombstones.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';
import { createGroup, createWorkspace } from '../setup/workspace.ts';
import { email, says } from '../subscription/scene.ts';
import { applyObjects } from '../workers/apply-batch.ts';
import { alias, by, identity, merge, remove } from './objects.ts';
import { does, has, unknownGroup } from './scene.ts';

/** Tables that grow with the number of users and their activity. */
const tables =
  /^(profiles|user_aliases|push_tokens|email_addresses|subscription_states|subscription_history|deprecated_external_ids|events.*|purchases.*|.*_summaries|dead_letters|merged_profiles|removed_profiles|outcomes)$/;

let database: Database;
beforeAll(async () => {
  const { url } = await createDatabaseOfOne();
  database = openDatabase(url, 2, { session: everyStatementByIndex });
});
afterAll(() => database.stop());

interface Statement {
  name: string;
  text: string;
}

/** Returns the names of the statements in these files of the store. */
function statementsIn(...files: string[]): string[] {
  return files
    .map((file) => readFileSync(path.join(packageRoot, 'src/store', `${file}.ts`), 'utf8'))
    .flatMap((text) => [...text.matchAll(/name: '([a-z-]+)'/g)].map(([, name]) => name!));
}

/** Returns every statement that these operations send. */
async function sent(): Promise<Statement[]> {
  const statements = new Map<string, Statement>();
  const { pool } = database;
  pool.on('connect', (tx: Connection) => {
    const query = tx.query.bind(tx) as (...given: unknown[]) => unknown;
    tx.query = ((given: Statement, ...more: unknown[]) => {
      if (given?.name) statements.set(given.name, given);
      return query(given, ...more);
    }) as typeof tx.query;
  });
  const workspace = await createWorkspace(pool);
  const news = await createGroup(pool, workspace.id, 'email');
  const tx = await pool.connect();
  const batches = [
    [
      email('a@x.com', { marked_as_spam: false, state: 'unsubscribed', hard_bounced: true }),
      says({ email: 'b@x.com' }, news, 'subscribed'),
      has('e', { email_subscribe: 'unsubscribed' }),
      says({ external_id: 'e' }, news, 'subscribed'),
    ],
    [has('e', { standard: { email: 'e@x.com' } })],
    [
      ...['a', 'b', 'c', 'd'].flatMap((name) => [
        has(name, { standard: { email: 'a@x.com', phone: '+442071838750', phone_valid: true } }),
        does(name),
      ]),
      identity('alias_new', { ...alias('l:a'), external_id: 'a' }),
    ],
    [
      identity('alias_update', { alias_label: 'l', old_alias_name: 'a', new_alias_name: 'b' }),
      identity('external_id_rename', { current_external_id: 'a', new_external_id: 'a2' }),
      identity('external_id_remove', { external_id: 'a' }),
      merge('b', 'c'),
      identity('identify', { user: by({ email: 'a@x.com' }, 'unidentified'), external_id: 'e' }),
      identity('merge', { merge: by({ phone: '+442071838750' }), keep: by(alias('l:b')) }),
      identity('delete', { user: by({ service_id: '0198a1b2c3d4000000000001' }) }),
      does('a'),
      unknownGroup(alias('l:b')),
      unknownGroup({ email: 'a@x.com' }),
      remove('d'),
    ],
  ];
  for (const objects of batches) {
    await tx.query('begin');
    await applyObjects(
      tx,
      objects.map((object, ordinal) => ({
        ...{ workspaceId: workspace.id, requestId: 'request', lane: 0 },
        ...{ ordinal, object },
      })),
      new Date().toISOString(),
    );
    await tx.query('commit');
  }
  tx.release();
  await cleanUpTombstones(pool, await selectTombstones(pool, 10));
  await cleanUpHistories(pool);
  return [...statements.values()];
}

interface Plan {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Cond'?: string;
  'Recheck Cond'?: string;
  Plans?: Plan[];
}

/** Yields the scans of a plan that read a table without an index condition, or by the workspace alone. */
function* readsTooMuch(plan: Plan): Iterable<string> {
  const table = plan['Relation Name'];
  if (table && tables.test(table) && plan['Node Type'].includes('Scan')) {
    const condition = plan['Index Cond'] ?? plan['Recheck Cond'] ?? '';
    const columns = [...condition.matchAll(/[(.]?"?(\w+)"? (=|@>)/g)].map(([, column]) => column);
    if (!columns.some((column) => column !== 'workspace_id')) {
      yield `${plan['Node Type']} on ${table} ${condition}`;
    }
  }
  for (const child of plan.Plans ?? []) yield* readsTooMuch(child);
}

it('every statement of identity operations, subscriptions and tombstones uses an index', async () => {
  const statements = await sent();
  const names = statementsIn(
    ...['alternate-identifiers', 'profile-attributes', 'merges', 'erasures', 'tombstones', 'left-names'],
    ...['named-failures', 'events', 'purchases', 'email-addresses', 'profiles'],
  );
  for (const name of ['clear-spam-marks', 'set-hard-bounces', 'record-state-changes', 'take-email-states']) {
    expect(statements.map((one) => one.name)).toContain(name);
  }
  // These statements belong to no identity operation, or are sent only to a distributed Postgres. test/store
  // checks their plans.
  expect(names.filter((name) => !statements.some((one) => one.name === name)).sort()).toEqual([
    'append-events',
    'append-purchases',
    'count-events',
    'count-purchases',
    'find-alias-labels',
    'find-push-tokens',
    'read-large-attributes',
    'record-purchases',
    'select-letters-of-user',
    'summarize-events',
    'summarize-purchases',
    'upsert-push-tokens',
  ]);
  const tx = await database.pool.connect();
  const results: string[] = [];
  for (const { name, text } of statements) {
    // The statement reads in the order of the primary key, up to its limit.
    if (name === 'select-tombstones') continue;
    const parameters = new Set(text.match(/\$\d+/g)).size;
    const nulls = Array.from({ length: parameters }, () => 'null').join(', ');
    await tx.query(`prepare plan_of_one as ${text}`);
    const { rows } = await tx.query(`explain (format json) execute plan_of_one${nulls && `(${nulls})`}`);
    await tx.query('deallocate plan_of_one');
    for (const fault of readsTooMuch(rows[0]['QUERY PLAN'][0].Plan)) results.push(`${name}: ${fault}`);
  }
  tx.release();
  expect(results).toEqual([]);
});
