import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type pg from 'pg';
import { v7 } from 'uuid';
import { beforeAll, expect, test } from 'vitest';
import { exportRows } from '../../src/export/export-rows.ts';
import type { Wanted } from '../../src/export/progress.ts';
import { openObjectStore } from '../../src/object-store/open-object-store.ts';
import { createReach } from '../../src/platform/reach.ts';
import { toServiceId } from '../../src/profile/identifier.ts';
import { followMerges } from '../../src/store/bulk-export.ts';
import type { PenstockOn } from '../admin/penstock.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { openShop } from './shop.ts';

let pool: pg.Pool;
let on: PenstockOn;
let workspaceId: string;

beforeAll(async () => {
  ({ pool, on, workspaceId } = await openShop());
});

interface Person {
  external_id?: string;
  email?: string;
  country?: string;
}

async function user({ external_id, email, country }: Person): Promise<string> {
  const id = v7();
  await pool.query(
    `insert into profiles (workspace_id, id, external_id, email, country, created_at, updated_at)
     values ($1, $2, $3, $4, $5, now(), now())`,
    [workspaceId, id, external_id, email, country],
  );
  return id;
}

const did = (profileId: string, name: string, time: string) =>
  pool.query('insert into events (workspace_id, id, profile_id, name, "time") values ($1, $2, $3, $4, $5)', [
    workspaceId,
    v7(),
    profileId,
    name,
    time,
  ]);

const merged = (profileId: string, keptId: string) =>
  pool.query(
    'insert into merged_profiles (workspace_id, profile_id, kept_id, merged_at) values ($1, $2, $3, now())',
    [workspaceId, profileId, keptId],
  );

const linesIn = (folder: string): Record<string, string>[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.ndjson'))
    .sort()
    .flatMap((name) => readFileSync(path.join(folder, name), 'utf8').trimEnd().split('\n'))
    .map((line) => JSON.parse(line));

async function exported(...more: string[]) {
  const folder = path.join(temporaryFolder(), 'events');
  const args = ['export', '--workspace', 'shop', '--what', 'events', '--no-gzip', '--to', folder, ...more];
  return { summary: await on.json(args), lines: linesIn(folder) };
}

test("events belong to the last keeper of merges, and deleted users' events are omitted", async () => {
  const [first, second, kept, gone] = [v7(), v7(), await user({ external_id: 'kept' }), v7()];
  await merged(first, second);
  await merged(second, kept);
  await did(first, 'as first', '2026-01-01T00:00:00Z');
  await did(kept, 'as kept', '2026-01-02T00:00:00Z');
  await did(gone, 'as deleted', '2026-01-03T00:00:00Z');
  // A kept user without events of its own.
  const [visitor, silent] = [v7(), await user({ external_id: 'silent' })];
  await merged(visitor, silent);
  await did(visitor, 'as visitor', '2026-01-04T00:00:00Z');
  const { summary, lines } = await exported();
  expect(summary).toMatchObject({ what: 'events', rows: 3, files: 1 });
  expect(lines.map(({ external_id, name }) => [external_id, name]).sort()).toEqual([
    ['kept', 'as first'],
    ['kept', 'as kept'],
    ['silent', 'as visitor'],
  ]);
  expect(await followMerges(pool as never, workspaceId, [second, first, kept])).toEqual(
    new Map([
      [second, kept],
      [first, kept],
    ]),
  );
  await pool.query('delete from events where workspace_id = $1', [workspaceId]);
});

test('a user is named by its address only if no other user has that address', async () => {
  await did(await user({ email: 'own@example.com' }), 'own', '2026-01-01T00:00:00Z');
  const shared = await user({ email: 'shared@example.com' });
  await user({ external_id: 'other', email: 'shared@example.com' });
  await did(shared, 'shared', '2026-01-01T00:00:00Z');
  const { lines } = await exported();
  expect(Object.fromEntries(lines.map(({ name, time: _, ...who }) => [name, who]))).toEqual({
    own: { email: 'own@example.com' },
    shared: { service_id: toServiceId(shared) },
  });
  await pool.query('delete from events where workspace_id = $1', [workspaceId]);
});

test('--from and --until select by the time of the event, and a segment by its user', async () => {
  const [german, french] = [
    await user({ external_id: 'german', country: 'DE' }),
    await user({ external_id: 'french', country: 'FR' }),
  ];
  for (const day of ['01', '02', '03']) {
    await did(german, `german ${day}`, `2026-01-${day}T00:00:00Z`);
    await did(french, `french ${day}`, `2026-01-${day}T00:00:00Z`);
  }
  const names = async (...more: string[]) => (await exported(...more)).lines.map(({ name }) => name).sort();
  expect(await names('--from', '2026-01-02', '--until', '2026-01-03T00:00:00Z')).toEqual([
    'french 02',
    'german 02',
  ]);
  const { segment_id } = await on.json([
    ...['segments', 'create', '--workspace', 'shop', '--name', 'Germans'],
    ...['--definition', '{"attribute":"country","equals":"DE"}'],
  ]);
  expect(await names('--segment', segment_id)).toEqual(['german 01', 'german 02', 'german 03']);
  await pool.query('delete from events where workspace_id = $1', [workspaceId]);
});

test('months whose rows are in the archive are named, because the export omits them', async () => {
  for (const [month, kind, state] of [
    ['2025-02-01', 'events', 'removed'],
    ['2025-01-01', 'events', 'removed'],
    ['2025-03-01', 'events', 'restored'],
    ['2025-04-01', 'purchases', 'removed'],
  ])
    await pool.query(
      `insert into archive_files (workspace_id, month, kind, id, state, object) values ($1, $2, $3, $4, $5, 'a.parquet')`,
      [workspaceId, month, kind, v7(), state],
    );
  await did(await user({ external_id: 'late' }), 'late', '2026-01-01T00:00:00Z');
  expect((await exported()).summary).toMatchObject({ rows: 1, archived_months: ['2025-01', '2025-02'] });
  await pool.query('delete from events where workspace_id = $1', [workspaceId]);
});

test('rows are exported once, in key order, for the workspace only, whatever the file size', async () => {
  const owners = await Promise.all([1, 2, 3].map((n) => user({ external_id: `many ${n}` })));
  for (let n = 0; n < 20; n += 1) await did(owners[n % 3]!, `many ${n}`, '2026-01-01T00:00:00Z');
  const other = (await createWorkspace(pool, 'other')).id;
  await pool.query(`insert into events select $1, $2, $3, 'strange', now()`, [other, v7(), owners[0]]);
  const folder = temporaryFolder();
  const wanted: Wanted = {
    ...{ what: 'events', format: 'ndjson', workspace: { id: workspaceId, name: 'shop' } },
    ...{ segment: null, fields: null, from: null, until: null },
  };
  const store = await openObjectStore(folder, {
    reach: createReach({ refused: 'none' }),
    accessTo: () => {
      throw new Error('no bucket');
    },
  });
  const { rows, files } = await exportRows(wanted, {
    ...{ pool, store, serviceIdField: 'service_id', leaving: new AbortController().signal },
    ...{ rowsOfFile: 7, lookedAt: 3 },
  });
  expect([rows, files.map((file) => file.rows)]).toEqual([20, [6, 6, 6, 2]]);
  const { rows: stored } = await pool.query(
    'select name from events where workspace_id = $1 order by profile_id, id',
    [workspaceId],
  );
  expect(linesIn(folder).map(({ name }) => ({ name }))).toEqual(stored);
});
