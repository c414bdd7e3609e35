import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { until } from '../../src/platform/poll.ts';
import { setPolicy } from '../../src/store/archive-files.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import { createVisitor } from './browser-session.ts';
import { openConsole, page, post } from './console-scene.ts';
import { createInstallation } from './installation.ts';
import type { Visitor } from './people.ts';

let installation: Awaited<ReturnType<typeof createInstallation>>;
let operator: Visitor;
const workspaceId = uuidv7();
const path = `/workspaces/${workspaceId}`;

beforeAll(async () => {
  installation = await createInstallation('redis', { env: { ARCHIVE_URL: temporaryFolder('archive-') } });
  const { prisma } = installation.database;
  const company = await prisma.company.findFirstOrThrow();
  await prisma.workspace.create({ data: { id: workspaceId, name: 'atelier', companyId: company.id } });
  await setPolicy(prisma, workspaceId, 12);
  operator = createVisitor(await installation.startBoard());
  await operator.signIn();
});
afterAll(() => installation.stop());

const rows = async (text: string, ...values: unknown[]) =>
  (await installation.database.pool.query(text, values)).rows;

/** Returns the detail of the entry of an action, which may end after the response of the form. */
async function detailOf(action: string): Promise<object> {
  const deadline = Date.now() + 15_000;
  const found = await until(
    () => rows("select detail from audit where action = $1 and not detail ? 'started'", action),
    {
      ...{ every: 50, deadline },
      isSo: ({ length }) => length > 0,
    },
  );
  return found![0].detail;
}

/** Adds a user with an event in March 2020. */
async function addEvent(): Promise<void> {
  const profile = uuidv7();
  await rows("select ensure_month_partitions('2020-03-01T00:00:00Z', 0)");
  await rows(
    'insert into profiles (workspace_id, id, created_at, updated_at) values ($1, $2, now(), now())',
    workspaceId,
    profile,
  );
  await rows(
    `insert into events select $1::uuid,
       (left(uuid_v7_floor('2020-03-02T00:00:00Z')::text, 24) || '000000000001')::uuid, $2::uuid, 'seen',
       '2020-03-02T00:00:00Z', 'app', '{}'`,
    workspaceId,
    profile,
  );
}

test('the forms run the retention, restore a month and erase deleted users, with audit entries', async () => {
  await addEvent();
  expect((await page(operator, '/workspaces')).text).toContain('Run the retention');
  const counted = await post(operator, '/workspaces', { action: 'recount-series' });
  expect(counted.status).toBe(303);
  expect(await detailOf('series.recount')).toEqual({ rows: 2 });
  expect(await rows("select from audit where action = 'series.recount' and detail ? 'started'")).toHaveLength(
    1,
  );

  const run = await post(operator, '/workspaces', { action: 'run-retention' });
  expect(run.status).toBe(303);
  expect((await page(operator, run.headers.get('location')!)).text).toContain(
    'The audit shows the start and the result',
  );
  expect(await detailOf('retention.run')).toMatchObject({ archive: true, months: 1, archived: 1, failed: 0 });
  expect(await rows('select from events')).toEqual([]);

  const month = { action: 'restore', month: '2020-03', days: '30' };
  expect((await post(operator, path, month)).status).toBe(303);
  expect(await detailOf('retention.restore')).toMatchObject({ month: '2020-03', files: 1, restored: 1 });
  expect(await rows('select from events')).toHaveLength(1);

  expect((await post(operator, path, { action: 'erase' })).status).toBe(303);
  expect(await detailOf('retention.erase')).toMatchObject({ files: 1, erased: 0, failed: 0 });
});

test('an action that succeeded is not audited as failed if its result could not be recorded', async () => {
  await rows('delete from audit');
  await rows(`create function reject_result() returns trigger language plpgsql as $$
    begin raise exception 'no room'; end $$`);
  await rows(`create trigger reject_result before insert on audit for each row
    when (new.action = 'retention.erase' and not new.detail ?| '{started,failure}') execute function reject_result()`);
  const erase = await post(operator, path, { action: 'erase' });
  await rows('drop trigger reject_result on audit');
  expect(erase.status).toBe(500);
  expect(await rows("select detail from audit where action = 'retention.erase'")).toEqual([
    { detail: { started: true } },
  ]);
});

test('an invalid month, and a month that is not archived, are refused at the field', async () => {
  for (const [month, problem] of [
    ['2020-13', 'Must be a month, for example 2025-03.'],
    ['2019-01', 'The archive has no files of atelier of 2019-01.'],
  ] as const) {
    const answer = await post(operator, path, { action: 'restore', month, days: '30' });
    const text = await answer.text();
    expect([answer.status, text.includes(problem), text.includes(`value="${month}"`)]).toEqual([
      ...[400, true, true],
    ]);
  }
});

test('without ARCHIVE_URL the forms name the setting, and only BOARD_USER may use them', async () => {
  const scene = await openConsole();
  try {
    const shop = `/workspaces/${scene.shop}`;
    const admin = await scene.people.arrive(['admin']);
    for (const [to, action] of [
      ['/workspaces', 'run-retention'],
      [shop, 'erase'],
      [shop, 'restore'],
    ] as const) {
      const fields = { action, month: '2020-03', days: '30' };
      const answer = await post(scene.operator, to, fields);
      expect([answer.status, await answer.text()]).toEqual([
        400,
        expect.stringContaining('ARCHIVE_URL is not set'),
      ]);
      expect((await post(admin.visitor, to, fields)).status).toBe(403);
    }
    expect((await page(admin.visitor, shop)).text).not.toContain('Restore a month');
  } finally {
    await scene.installation.stop();
  }
});
