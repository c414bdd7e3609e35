import { v7 } from 'uuid';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
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
const [ada, bob] = [v7(), v7()].map((id) => toProfileId(toServiceId(id))) as [string, string];
const [group, archived, center] = [v7(), v7(), v7()];

beforeAll(async () => {
  ({ url } = await createBareDatabase());
  await migrate(url, 'postgres');
  on = penstockOn(url);
  database = openDatabase(url, 1);
  [shop = ''] = await makeWorkspaces(url, 'shop');
  await database.pool.query(
    `insert into profiles (workspace_id, id, external_id, email, created_at, updated_at)
     values ($1, $2, 'ada', 'ada@example.com', now(), now()), ($1, $3, 'bob', null, now(), now())`,
    [shop, ada, bob],
  );
  const { prisma } = database;
  await prisma.subscriptionGroup.createMany({
    data: [
      { id: group, workspaceId: shop, name: 'News', channel: 'email' },
      { id: archived, workspaceId: shop, name: 'Old', channel: 'email', archivedAt: new Date() },
    ],
  });
  await database.pool.query(
    `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
     values ($1, $2, 'Choices', '', '', '', 'active'), ($1, $3, 'Plan', '', '', '', 'draft')`,
    [shop, center, v7()],
  );
});
afterAll(() => database.stop());

const ofAda = (words: string) => on.json(`users ${words} --workspace shop --external-id ada`);
const refused = (words: string) => on.run(`users ${words} --workspace shop --external-id ada`);

async function waitingObjects(): Promise<object[]> {
  const queue = connectWorker(readConfig({}), url);
  const lane = new Queue(laneName(0), queue.options, queue.factory);
  const jobs = await lane.getJobs(['waiting'], 0, -1, true);
  await lane.close();
  await queue.stop();
  return jobs.flatMap((job) => job.data.objects);
}

const entriesOf = async (action: string): Promise<object[]> =>
  (await on.json(`audit --action ${action}`)).entries;

describe('the commands that change a user', () => {
  let before = 0;
  beforeEach(async () => {
    before = (await waitingObjects()).length;
  });

  test.each([
    ['set-attribute --attribute seats --type number --value 4', { seats: 4 }],
    ['set-attribute --attribute colour --value teal', { colour: 'teal' }],
    ['set-attribute --attribute paid --type boolean --value true', { paid: true }],
    ['set-attribute --attribute sizes --type json --value [1,2]', { sizes: [1, 2] }],
    ['remove-attribute --attribute seats', { seats: null }],
  ])('%s is added to the queue, and the audit names only the attribute', async (words, attributes) => {
    const answer = await ofAda(words);
    expect(answer).toEqual({
      ...{ service_id: toServiceId(ada), request_id: expect.any(String), state: 'accepted' },
    });
    const [object, ...others] = (await waitingObjects()).slice(before);
    expect(others).toEqual([]);
    const [[name, value]] = Object.entries(attributes) as [[string, unknown]];
    expect(JSON.stringify(object)).toContain(`${JSON.stringify(name)}:${JSON.stringify(value)}`);
    expect(JSON.stringify(object)).toContain(toServiceId(ada));
    const detail = {
      ...{ request_id: answer.request_id, attribute: name },
      ...(value === null && { removed: true }),
    };
    expect((await entriesOf('users.set_attribute'))[0]).toMatchObject({ workspace: 'shop', detail });
  });

  test.each([
    ['email --state unsubscribed', 'email', 'unsubscribed'],
    ['News --state opted_in', group, 'subscribed'],
    [`${group} --state unsubscribed`, group, 'unsubscribed'],
  ])('set-subscription %s is added to the queue with an entry in the audit', async (words, name, state) => {
    const { request_id: requestId } = await ofAda(`set-subscription --subscription ${words}`);
    const added = JSON.stringify((await waitingObjects()).slice(before));
    for (const part of [name, state]) expect(added).toContain(part);
    const [entry] = await entriesOf('users.set_subscription');
    expect(entry).toMatchObject({ detail: { request_id: requestId, subscription: name } });
  });

  test.each([
    ['set-attribute --attribute external_id --value x', 'Use the API to change identifiers.'],
    ['set-attribute --attribute service_id --value x', 'Use the API to change identifiers.'],
    ['remove-attribute --attribute _merge_objects', 'Use the API to change identifiers.'],
    ['set-attribute --attribute seats --type number --value four', 'must be a number'],
    ['set-attribute --attribute seats --type json --value [', 'must be JSON'],
    [`set-attribute --attribute colour --value ${'x'.repeat(300)}`, '255 characters'],
    ['set-attribute --attribute gender --value somewhat', 'gender'],
    ['set-subscription --subscription Old --state subscribed', "'Old'", 'group of the workspace'],
    ['set-subscription --subscription email --state maybe', 'unsubscribed'],
    ['set-attribute --attribute seats --value 4 --email ada@example.com', 'name one user'],
  ])('%s is refused with the rule', async (words, ...rules) => {
    expectRefusal(await refused(words), ...rules);
    expect(await waitingObjects()).toHaveLength(before);
  });
});

describe('users preference-link', () => {
  test.each(['Choices', center])('prints a link to the preference center %s once', async (named) => {
    const answer = await ofAda(`preference-link --center ${named}`);
    expect(answer).toEqual({
      url: expect.stringMatching(/^http:.*\/preferences\/[\w-]{100,}$/),
      ...{ service_id: toServiceId(ada), preference_center: 'Choices' },
      expires_at: expect.stringMatching(/^\d{4}-.*Z$/),
    });
    const [entry] = await entriesOf('users.preference_link');
    expect(entry).toMatchObject({ detail: { preference_center: center } });
  });

  test('refuses a draft, and a user without an email address', async () => {
    expectRefusal(await refused('preference-link --center Plan'), 'no active preference center', "'Plan'");
    expectRefusal(
      await on.run('users preference-link --workspace shop --external-id bob --center Choices'),
      'no email address',
    );
  });
});
