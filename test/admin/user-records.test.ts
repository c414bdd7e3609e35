import { v7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { toProfileId, toServiceId } from '../../src/profile/identifier.ts';
import { Queue } from '../../src/queue/bullmq.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import { laneName } from '../../src/queue/lanes.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createBareDatabase } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
let url: string;
let database: Database;
let shop: string;
// A profile id has fewer random bits than a UUIDv7, so that it can be written as a service id.
const [ada, bob] = [v7(), v7()].map((id) => toProfileId(toServiceId(id))) as [string, string];

beforeAll(async () => {
  ({ url } = await createBareDatabase());
  await migrate(url, 'postgres');
  on = penstockOn(url);
  database = openDatabase(url, 1);
  [shop = ''] = await makeWorkspaces(url, 'shop', 'school');
  await database.pool.query(
    `insert into profiles (workspace_id, id, external_id, first_name, last_name, email, phone, phone_valid, created_at, updated_at)
     values ($1, $2, 'ada', 'Ada', 'Lovelace', 'shared@example.com', '+14155552671', true, now(), now()),
            ($1, $3, 'bob', 'Bob', null, 'shared@example.com', null, false, now(), now())`,
    [shop, ada, bob],
  );
  await database.pool.query(
    "insert into user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at) values ($1, 'device', 'tablet-7', $2, now())",
    [shop, ada],
  );
});
afterAll(() => database.stop());

const idsOf = (page: { users: { external_id: string }[] }) => page.users.map((user) => user.external_id);

describe('users find', () => {
  test.each([
    ['ada', ['ada']],
    ['ad', ['ada']],
    ['shared@example.com', ['ada', 'bob']],
    ['+1 415 555 2671', ['ada']],
    ['device:tablet-7', ['ada']],
    ['tablet-7', ['ada']],
    [toServiceId(bob), ['bob']],
    ['nobody', []],
  ])('finds the users that %j may name', async (text, result) => {
    expect(idsOf(await on.json(['users', 'find', text, '--workspace', 'shop'])).sort()).toEqual(result);
  });

  test('finds no user of another workspace', async () => {
    expect(idsOf(await on.json('users find ada --workspace school'))).toEqual([]);
  });

  test('refuses an empty search text with the rule', async () => {
    expectRefusal(await on.run(['users', 'find', ' ', '--workspace', 'shop']), '1 to 1000 characters');
  });
});

describe('users show', () => {
  test.each([
    ['--external-id', 'ada'],
    ['--service-id', toServiceId(ada)],
    ['--alias', 'device:tablet-7'],
    ['--phone', '+14155552671'],
  ])('shows the user that %s names', async (option, value) => {
    const user = await on.json(['users', 'show', '--workspace', 'shop', option, value]);
    expect(user).toMatchObject({ external_id: 'ada', first_name: 'Ada', email: 'shared@example.com' });
    const { stdout } = await on.run(['users', 'show', '--workspace', 'shop', option, value]);
    expect(stdout).toMatch(/^external_id +ada$/m);
  });

  test('refuses an address that several users share, and lists their service ids', async () => {
    expectRefusal(
      await on.run('users show --workspace shop --email shared@example.com'),
      toServiceId(ada),
      toServiceId(bob),
      '--service-id',
    );
  });

  test('refuses an unknown user, no identifier, two identifiers and a malformed one', async () => {
    expectRefusal(await on.run('users show --workspace shop --external-id eve'), 'users find');
    expectRefusal(await on.run('users show --workspace shop'), 'name one user');
    expectRefusal(
      await on.run('users show --workspace shop --external-id ada --phone +14155552671'),
      'name one user',
    );
    expectRefusal(await on.run('users show --workspace shop --service-id 7'), '24 hexadecimal digits');
    expectRefusal(await on.run('users show --workspace shop --alias x'), 'label:name');
    expectRefusal(await on.run('users show --workspace shop --phone 12'), 'country code');
  });
});

test('users export prints the stored user as JSON and records it in the audit log', async () => {
  const { stdout } = await on.run('users export --workspace shop --external-id ada');
  expect(JSON.parse(stdout)).toMatchObject({
    external_id: 'ada',
    user_aliases: [{ alias_label: 'device', alias_name: 'tablet-7' }],
  });
  const { entries } = await on.json('audit --action users.export');
  expect(entries[0]).toMatchObject({ action: 'users.export' });
});

describe('users delete', () => {
  async function waitingObjects(): Promise<object[]> {
    const queue = connectWorker(readConfig({}), url);
    const lane = new Queue(laneName(0), queue.options, queue.factory);
    const jobs = await lane.getJobs(['waiting'], 0, -1, true);
    await lane.close();
    await queue.stop();
    return jobs.flatMap((job) => job.data.objects);
  }

  test('refuses to delete without --yes when no terminal can ask for confirmation', async () => {
    expectRefusal(await on.run('users delete --workspace shop --external-id ada'), '--yes');
    expect(await waitingObjects()).toEqual([]);
  });

  test('adds the delete of the user to the queue and records it in the audit log', async () => {
    const deleted = await on.json('users delete --workspace shop --external-id ada --yes');
    expect(deleted).toEqual({
      service_id: toServiceId(ada),
      request_id: expect.any(String),
      state: 'accepted',
    });
    expect(await waitingObjects()).toMatchObject([{ kind: 'delete' }]);
    const { entries } = await on.json('audit --action users.delete');
    expect(entries[0]).toMatchObject({ action: 'users.delete', detail: { request_id: deleted.request_id } });
  });

  test('queue show counts the waiting delete in its lane', async () => {
    const shown = await on.json('queue show');
    expect(shown.waiting).toEqual([{ lane: laneName(0), waiting: 1, oldest_seconds: expect.any(Number) }]);
    expect((await on.run('queue show')).stdout).toMatch(/^lane +waiting +oldest_seconds$/m);
  });
});
