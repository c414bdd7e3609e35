import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { searchAudit } from '../../src/store/audit-list.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { type Console, openConsole, page, post } from './console-scene.ts';

let scene: Console;
let folder: string;
beforeAll(async () => {
  scene = await openConsole();
  folder = temporaryFolder();
  writeFileSync(
    path.join(folder, 'rows.csv'),
    'external_id,updated_at,payload\na,2026-01-01T00:00:00Z,"{""colour"":""teal""}"\n',
  );
});
afterAll(() => scene.installation.stop());

const fieldsOf = (change: Record<string, string> = {}) => ({
  ...{ workspace: scene.shop, name: 'users', kind: 'attributes', source: 'folder', path: folder },
  ...{ format: 'csv', tls: 'verified', port: '5432', schedule: 'daily', ...change },
});

test('an integration is created, tested, changed and deleted in the console, with audit entries', async () => {
  const made = await post(scene.operator, '/syncs', fieldsOf());
  expect(made.status).toBe(303);
  const self = new URL(made.headers.get('location')!, scene.board.url).pathname;
  const id = self.split('/').at(-1)!;
  const act = async (fields: Record<string, string>) => {
    const { status } = await post(scene.operator, self, fields);
    return status;
  };
  expect((await page(scene.operator, self)).text).toContain(folder);
  expect(await act({ action: 'test' })).toBe(303);
  // The form has the schedule, and the checkbox removes it.
  const change = { action: 'update', schedule: 'daily', on_demand: 'on', contact_emails: 'ada@example.com' };
  expect(await act(change)).toBe(303);
  expect(await act({ action: 'update', schedule: 'daily', contact_emails: 'ada@example.com' })).toBe(303);
  const emptied = { action: 'update', schedule: '', on_demand: 'on', contact_emails: 'ada@example.com' };
  expect(await act(emptied)).toBe(303);
  expect(await act({ action: 'update', schedule: 'weekly', contact_emails: 'ada@example.com' })).toBe(303);
  expect(await act({ action: 'update', schedule: '', contact_emails: '' })).toBe(303);
  const [stored] = await scene.query('select schedule, contact_emails from integrations where id = $1', id);
  expect(stored).toEqual({ schedule: null, contact_emails: '' });
  expect(await act({ action: 'delete', confirm: 'other' })).toBe(400);
  expect(await act({ action: 'delete', confirm: 'users' })).toBe(303);
  const { rows } = await searchAudit(scene.installation.database.pool, { subject: id, limit: 10 });
  expect(rows.map(({ action }) => action).reverse()).toEqual([
    'integrations.create',
    ...Array(5).fill('integrations.update'),
    'integrations.delete',
  ]);
});

test('a source that lacks a value or cannot be read keeps the form, and a draft is stored', async () => {
  const wrong = async (change: Record<string, string>) => {
    const answer = await post(scene.operator, '/syncs', fieldsOf({ name: 'later', ...change }));
    return { status: answer.status, text: await answer.text() };
  };
  const lacking = await wrong({ source: 'postgres', host: 'db.example.com' });
  expect(lacking.status).toBe(400);
  expect(lacking.text).toContain(
    'A source of this kind needs: Postgres database, Postgres table, Postgres user.',
  );
  expect(lacking.text).toContain('value="db.example.com"');
  const place = path.join(folder, 'nowhere');
  expect((await wrong({ path: place })).text).toContain('The test of the source failed');
  expect((await wrong({ schedule: 'every 5 minutes' })).text).toContain('more often than every 15 minutes');
  expect((await wrong({ path: place, draft: 'on' })).status).toBe(303);
  const rows = await scene.query("select status from integrations where name = 'later'");
  expect(rows).toEqual([{ status: 'draft' }]);
});

test('an account with the right to syncs cannot read folders of the operator', async () => {
  const { visitor } = await scene.people.arrive([], {
    appGroups: [{ workspace: scene.shop, permissions: ['edit_cloud_data_ingestion'] }],
  });
  const answer = await post(visitor, '/syncs', fieldsOf({ name: 'theirs' }));
  expect(answer.status).toBe(400);
  expect(await answer.text()).toContain('Only BOARD_USER and the command line can create');
  expect(await scene.query("select from integrations where name = 'theirs'")).toEqual([]);
});

test('the record of an import is listed, and only BOARD_USER deletes it after a confirmation', async () => {
  const id = uuidv7();
  await scene.query(
    `insert into imports (workspace_id, key, id, file, digest, reading, rows_done)
     values ($1, '\\x01', $2, '/in/users.csv', '\\x02', '{}', 7)`,
    ...[scene.shop, id],
  );
  expect((await page(scene.operator, '/imports')).text).toMatch(/users\.csv[\s\S]*unfinished/);
  const drop = async (visitor: typeof scene.operator, confirm: string) =>
    (await post(visitor, `/imports/${id}`, { action: 'drop', confirm })).status;
  const { visitor } = await scene.people.arrive([], {
    appGroups: [{ workspace: scene.shop, permissions: ['edit_cloud_data_ingestion'] }],
  });
  expect((await page(visitor, `/imports/${id}`)).status).toBe(200);
  expect(await drop(visitor, '/in/users.csv')).toBe(403);
  expect(await drop(scene.operator, 'users.csv')).toBe(400);
  expect(await drop(scene.operator, '/in/users.csv')).toBe(303);
  expect((await page(scene.operator, '/imports')).text).toContain('No imports yet');
  const { rows } = await searchAudit(scene.installation.database.pool, { subject: id, limit: 10 });
  expect(rows.map(({ action, detail }) => [action, detail])).toEqual([
    ['imports.drop', { file: '/in/users.csv', rows: 7 }],
  ]);
});
