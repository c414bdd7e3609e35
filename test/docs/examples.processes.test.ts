import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { examples, languages } from '../../src/docs/examples.ts';
import type { Json } from '../../src/profile/json.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { createCompany, createScimToken, ORIGIN } from '../setup/access.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { findCurl, findPython } from '../setup/installed.ts';
import { pathWithNpx } from '../setup/npx.ts';
import { createGroup, createWorkspace } from '../setup/workspace.ts';
import { type Step, stepsOf } from './steps.ts';

/** Returns the program for files of each suffix. For curl it is the shell, which has to find curl. */
const programs: Record<string, () => Promise<string>> = {
  sh: async () => {
    await findCurl();
    return '/bin/sh';
  },
  mjs: async () => process.execPath,
  py: findPython,
};

/** Checks of responses that differ between installations. */
const judged: Record<string, (answer: Json) => void> = {
  'users.export.ids': (answer) =>
    expect(answer).toMatchObject({
      users: [
        {
          external_id: 'ada',
          first_name: 'Ada',
          user_aliases: [{ alias_label: 'device', alias_name: 'tablet-7' }],
          // She keeps her own plan; the one of ada-old does not replace it.
          custom_attributes: { logins: 1, plan: 'pro' },
          custom_events: [{ name: 'signed_up', count: 1 }],
        },
      ],
      invalid_user_ids: ['nobody'],
      message: 'success',
    }),
  'scim.users.create': (answer) =>
    expect(answer).toMatchObject({
      userName: 'ada@example.com',
      permissions: { appGroup: [{ appGroupName: 'default' }] },
      active: true,
    }),
};

/** Starts a new workspace with the name that the examples use, and renames the previous one. */
async function createDefault() {
  await fleet.pool.query(`update workspaces set name = id::text where name = 'default'`);
  return createWorkspace(fleet.pool, 'default');
}

let fleet: Fleet;
beforeAll(async () => {
  fleet = await startFleet('postgres', { edges: 1, workers: 1 });
}, 200_000);
afterAll(() => fleet?.stop());

describe.each(languages)('the examples in $name', ({ name, suffix, write }) => {
  test('run as they are shown, in order, with the documented responses', async () => {
    const program = await programs[suffix]!();
    const workspace = await createDefault();
    const company = await createCompany(fleet.pool, `who reads ${name}`);
    await fleet.pool.query('update workspaces set company_id = $1 where id = $2', [company, workspace.id]);
    const token = await createScimToken(fleet.pool, company);
    const folder = temporaryFolder('penstock-examples-');
    const env = {
      PATH: process.env.PATH,
      PENSTOCK_URL: `http://127.0.0.1:${fleet.edges[0]!.port}`,
      PENSTOCK_API_KEY: workspace.key,
      SUBSCRIPTION_GROUP_ID: await createGroup(fleet.pool, workspace.id, 'email'),
      SCIM_TOKEN: token,
      SCIM_ORIGIN: ORIGIN,
    };
    for (const [id, example] of Object.entries(examples)) {
      const file = path.join(folder, `${id}.${suffix}`);
      await writeFile(file, write(example));
      const run = async () => {
        const { stdout } = await promisify(execFile)(program, [file], { env, timeout: 60_000 });
        const answer = JSON.parse(stdout) as Json;
        if (example.answer !== undefined) expect([name, id, answer]).toEqual([name, id, example.answer]);
        else judged[id]!(answer);
        return true;
      };
      // Requests that read wait until the workers have applied the earlier ones.
      const isRead = id === 'events.list' || id === 'users.export.ids' || id === 'subscription.status.get';
      if (isRead) await waitUntil(run, { what: `${id} in ${name}`, deadline: 30_000 });
      else await run();
    }
  }, 120_000);

  test('end with an error if the service rejects them', async () => {
    const program = await programs[suffix]!();
    const file = path.join(temporaryFolder('penstock-examples-'), `refused.${suffix}`);
    await writeFile(file, write(examples['events.list']!));
    const env = {
      PATH: process.env.PATH,
      PENSTOCK_URL: `http://127.0.0.1:${fleet.edges[0]!.port}`,
      PENSTOCK_API_KEY: 'none',
    };
    const failed = promisify(execFile)(program, [file], { env });
    await expect(failed).rejects.toMatchObject({ code: expect.toSatisfy((code) => code !== 0) });
    await failed.catch((error) => expect(`${error.stdout}${error.stderr}`).toContain('401'));
  }, 60_000);
});

/** Guides whose commands continue where the quickstart ends. */
const guides = ['identify-and-merge', 'subscriptions', 'retries', 'api'];

test('the commands of quickstart.md have the results that the page shows', async () => {
  await runGuide('quickstart');
}, 120_000);

test.each(guides)(
  'the commands of %s.md, after those of quickstart.md, have the results on the page',
  async (name) => {
    const isNeeded = ({ command }: Step) => command.startsWith('curl') && !READS.test(command);
    const before = stepsOf('quickstart').filter(isNeeded);
    await runGuide(name, before);
  },
  120_000,
);

async function runGuide(name: string, before: readonly Step[] = []): Promise<void> {
  await findCurl();
  const folder = temporaryFolder('penstock-guide-');
  const { key } = await createDefault();
  const env = { ...fleet.env, HOME: folder, PATH: pathWithNpx(folder), PENSTOCK_API_KEY: key, GROUP: '' };
  const address = `http://127.0.0.1:${fleet.edges[0]!.port}`;
  let requestId = '';
  const run = async ({ command, answer }: Step) => {
    const requested = command
      .replaceAll('http://127.0.0.1:3000', address)
      .replaceAll('<request_id>', requestId);
    const { stdout } = await promisify(execFile)('/bin/sh', ['-ec', requested], { env, timeout: 60_000 });
    if (answer !== undefined) {
      const body = stdout.slice(stdout.startsWith('HTTP/') ? stdout.indexOf('\r\n\r\n') : 0);
      expect([command, JSON.parse(body)]).toEqual([command, answer]);
    }
    requestId = /^x-request-id: (\S+)/im.exec(stdout)?.[1] ?? requestId;
    if (command.includes('groups create')) env.GROUP = /^subscription_group_id +(\S+)/m.exec(stdout)![1]!;
    return true;
  };
  const steps = stepsOf(name);
  expect(steps.filter(({ answer }) => answer !== undefined)).not.toEqual([]);
  for (const step of [...before, ...steps]) {
    if (STARTS.test(step.command)) continue;
    if (READS.test(step.command)) await waitUntil(() => run(step), { what: step.command, deadline: 30_000 });
    else await run(step);
  }
}

/** Commands that the test replaces: `fleet` runs already, and `env` has the variables. */
const STARTS = /^git clone |^npm |^(?:[A-Z_]+=\S* )*npm start$|^export /;

/** Requests whose answer depends on the workers. */
const READS = /\/users\/export\/ids|\/requests\/|_series\?|\/status\/get\?/;
