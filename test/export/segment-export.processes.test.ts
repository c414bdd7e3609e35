import { rmSync } from 'node:fs';
import { expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { startReceiver } from '../streams/receiver.ts';
import { unzip } from './segment-export-scene.ts';

/** Enough for several seconds of writing, so that the kill interrupts it. */
const USERS = 60_000;

test('an export whose process is killed is completed once by another, with its callback', async () => {
  const DATA_DIR = temporaryFolder();
  const receiver = await startReceiver();
  const fleet = await startFleet('postgres', { edges: 1, workers: 0, syncs: 1, env: { DATA_DIR } });
  const { pool, workspace } = fleet;
  await pool.query(
    `insert into profiles (workspace_id, id, external_id, custom_attributes, created_at, updated_at)
     select $1, gen_random_uuid(), 'user' || n, jsonb_build_object('text', repeat('x', 200)), now(), now()
     from generate_series(1, $2::integer) as n`,
    [workspace.id, USERS],
  );
  const segment_id = newId();
  await pool.query(
    `insert into segments (workspace_id, id, name, definition) values ($1, $2, 'all', '{"all": []}')`,
    [workspace.id, segment_id],
  );
  const fields_to_export = ['external_id', 'custom_attributes'];
  const { status, body } = await send(fleet.edges[0]!.port, {
    path: '/users/export/segment',
    key: workspace.key,
    json: { segment_id, fields_to_export, callback_endpoint: receiver.url },
  });
  expect([status, body.message]).toEqual([201, 'success']);
  const first = fleet.syncs[0]!;
  const holders = async () => {
    const { rows } = await pool.query<{ name: string; holder: string | null; state: string }>(
      `select segment_exports.state, segment_exports.leased_by::text as holder, activity.application_name as name
       from segment_exports
       left join pg_stat_activity as activity
         on activity.application_name like 'sync-%' and activity.xact_start is not null
           and activity.query like '%profiles%'`,
    );
    return rows[0]!;
  };
  const before = await waitUntil(
    async () => {
      const result = await holders();
      return result.name === first.name ? result : undefined;
    },
    { what: 'an export in the middle', fleeting: true },
  );
  await fleet.end(first);
  expect((await fetch(body.url)).status).toBe(404);
  await fleet.startSync();
  // An export of a dead process is free once its lease has expired. A last renewal may still be in progress.
  const freeLease = () =>
    pool.query('update segment_exports set due_at = now() where leased_by = $1', [before.holder]);
  const isTold = async () => {
    await freeLease();
    return receiver.taken.length > 0;
  };
  await waitUntil(isTold, { what: 'the callback', deadline: 60_000 });
  const { rows } = await pool.query('select state, tries, users, leased_by from segment_exports');
  expect(rows[0]).toMatchObject({ state: 'ready', users: USERS });
  expect(rows[0].leased_by).not.toBe(before.holder);
  expect(receiver.taken.map((taken) => JSON.parse(taken.body))).toEqual([{ success: true, url: body.url }]);
  const answer = await fetch(body.url);
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/zip']);
  await answer.body?.cancel();
  const files = await unzip({ DATA_DIR } as Parameters<typeof unzip>[0]);
  expect(Object.values(files).map(({ length }) => length)).toEqual(Array.from({ length: 12 }, () => 5000));
  const names = Object.values(files).flatMap((users) => users.map((user) => user.external_id));
  expect(new Set(names).size).toBe(USERS);
  await fleet.stop();
  rmSync(DATA_DIR, { recursive: true, force: true });
});
