import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Database } from '../../src/store/database.ts';
import { distributed, views } from '../../src/store/distributed-tables.ts';
import { formsOf } from '../../src/store/one-workspace.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';
import { exceptionsApart } from './distributed/exceptions.ts';
import { withoutWorkspace } from './distributed/without-workspace.ts';
import { sendEverything } from './plans/everything.ts';
import { fill } from './plans/fill.ts';
import type { Sent } from './plans/record.ts';
import { linesApart } from './plans/sources.ts';

let database: Database;
let sent: Sent[];
let lines: Set<string>;

/** The statements run on a single Postgres too; only the store is configured as distributed. */
beforeAll(async () => {
  database = openDatabase((await createDatabaseOfOne()).url, 1);
  const filled = await fill(database.pool);
  const tx = await database.pool.connect();
  try {
    await tx.query('begin');
    await tx.query(
      'insert into dropped_histories (workspace_id, subject_kind, subject, up_to) values ($1, $2, $3, 0)',
      [filled.workspaceId, 'email', 'user2@x.com'],
    );
    ({ sent, lines } = await sendEverything(tx, filled, { isDistributed: true }));
  } finally {
    await tx.query('rollback');
    tx.release();
  }
});
afterAll(() => database.stop());

test("G7: distributed statements name each table's workspace by a scalar, with listed exceptions", async () => {
  const lying = { ...distributed, ...views, workspace_places: 'workspace_id' };
  const collected = new Set<string>();
  for (const { text, site } of sent)
    for (const form of formsOf(text))
      for (const table of await withoutWorkspace(form, lying)) collected.add(`${site}: ${table}`);
  expect([...collected].sort()).toEqual(Object.keys(exceptionsApart).sort());
});

test('runs every statement that is marked as distributed only', () => {
  expect(linesApart().filter((line) => !lines.has(line))).toEqual([]);
});
