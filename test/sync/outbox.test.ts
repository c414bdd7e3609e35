import { v7 as uuidv7 } from 'uuid';
import { beforeAll, expect, test } from 'vitest';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import {
  addToOutbox,
  endStaleRuns,
  findInOutbox,
  type OutboxChunk,
  type RowError,
} from '../../src/store/sync-chunks.ts';
import { startRun } from '../../src/store/sync-runs.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { buildChunk, createRowValidator } from '../../workers/sync/chunk.ts';
import { callerOf } from '../operations/caller.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { createIntegration } from '../setup/integrations.ts';
import { createWorkspace } from '../setup/workspace.ts';

const updatedAt = '2026-01-30T08:00:00.123456Z';
const payload = '{"plan":"pro"}';
const validateRow = createRowValidator('service_id');

let database: Database;
let workspaceId: string;
beforeAll(async () => {
  database = openDatabase((await createDatabase()).url, 2);
  ({ id: workspaceId } = await createWorkspace(database.pool));
  return database.stop;
});

/** Creates a run with a chunk: one row that is applied, one with a warning, one without a time. */
async function makeRun() {
  const id = uuidv7();
  const integrationId = await createIntegration(database.pool, workspaceId);
  await startRun(database.pool, { id, integrationId, askedBy: 'operator' });
  const { chunk } = buildChunk(
    [
      { updatedAt, identifiers: { external_id: 'ada' }, payload },
      { updatedAt, identifiers: { external_id: 'bob' }, payload: '{"country":"Atlantis"}' },
      { unreadable: 'soon', identifiers: {}, payload },
    ],
    { rows: 0, failed: 0, warned: 0, newest: undefined },
    {
      run: { id, kind: 'attributes', updateExistingOnly: false, workspaceId },
      ...{ caller: callerOf(workspaceId), judge: validateRow, lanes: 4, maxEnvelopeObjects: 100 },
    },
  );
  return { id, chunk };
}

const put = (id: string, chunk: OutboxChunk) =>
  inTransaction(database.pool, (tx) => addToOutbox(tx, id, chunk));

test('a chunk in the outbox has exactly the bytes that other releases read', async () => {
  const { id, chunk } = await makeRun();
  expect(await put(id, chunk)).toBe(true);
  const { rows } = await database.pool.query(
    'select rows::text, progress::text from sync_chunks where job_id = $1',
    [id],
  );
  const [ada, bob] = Object.keys(chunk.rows);
  const bobs = `{"number":2,"updated_at":"${updatedAt}","identifiers":["x:bob"],"identifier":"EXTERNAL_ID=bob","payload":"{\\"country\\":\\"Atlantis\\"}"`;
  const [{ reason }] = chunk.progress.warnings as [RowError];
  expect(rows[0].rows).toBe(
    `{"${ada}":{"number":1,"updated_at":"${updatedAt}","identifiers":["x:ada"],"identifier":"EXTERNAL_ID=ada","payload":"{\\"plan\\":\\"pro\\"}"},"${bob}":${bobs}}}`,
  );
  const error = `{"number":3,"updated_at":"soon","identifiers":[],"identifier":null,"payload":"{\\"plan\\":\\"pro\\"}","reason":"${chunk.progress.errors[0]!.reason}"}`;
  expect(rows[0].progress).toBe(
    `{"rows":3,"failed":1,"errors":[${error}],"warnings":[${bobs},"reason":${JSON.stringify(reason)}}],"lastTimestamp":"${updatedAt}","boundary":${JSON.stringify(chunk.progress.boundary)}}`,
  );
});

test('a chunk is read from the outbox unchanged', async () => {
  const { id, chunk } = await makeRun();
  await put(id, chunk);
  expect(await findInOutbox(database.pool, id)).toEqual(JSON.parse(JSON.stringify(chunk)));
});

test('a run whose chunk has waited for 7 days ends with an error, and its chunk is erased', async () => {
  const [stale, young] = [await makeRun(), await makeRun()];
  for (const { id, chunk } of [stale, young]) await put(id, chunk);
  await database.pool.query(
    "update sync_chunks set staged_at = now() - interval '8 days' where job_id = $1",
    [stale.id],
  );
  await endStaleRuns(database.pool);
  expect(await findInOutbox(database.pool, stale.id)).toBeUndefined();
  expect(await findInOutbox(database.pool, young.id)).toBeDefined();
  const { rows } = await database.pool.query(
    'select status, message from sync_jobs where id = any($1) order by id',
    [[stale.id, young.id]],
  );
  expect(rows).toEqual([
    { status: 'error', message: expect.stringMatching(/interrupted for more than 7 days/) },
    { status: 'running', message: null },
  ]);
});
