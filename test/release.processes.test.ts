import pg from 'pg';
import { expect, test } from 'vitest';
import { permissions } from '../src/schemas/permissions.ts';
import { hashApiKey } from '../src/store/credentials.ts';
import { createBareDatabase } from './setup/fixtures.ts';
import { startProcess } from './setup/processes.ts';

test('release creates the tables, the workspace default and one full key, and shows it once', async () => {
  const { url } = await createBareDatabase();
  const first = await release({ DATABASE_URL: url });
  expect(first.code).toBe(0);
  const [shown] = /pk_[\w-]{43}/.exec(first.text) ?? [];
  expect(await keys(url)).toEqual([
    {
      workspace: 'default',
      identifier: shown!.slice(0, 8),
      key_hash: hashApiKey(shown!),
      permissions: [...permissions],
      ip_allowlist: [],
      revoked_at: null,
    },
  ]);

  const second = await release({ DATABASE_URL: url });
  expect(second.code).toBe(0);
  expect(second.text).not.toContain('pk_');
  expect([first, second].map(({ messages }) => messages[0])).toEqual(['migrated', 'tables are up to date']);
  expect(await keys(url)).toHaveLength(1);
});

test('release exits as soon as its work is done', async () => {
  const { url } = await createBareDatabase();
  const { exit, log } = startProcess('dist/src/release.js', { DATABASE_URL: url });
  await exit;
  // The schema engine limits the wait for its lock by a timer of 10 s, which must not delay the end of the
  // process.
  const last = Math.max(...log.flatMap(({ time }) => (typeof time === 'string' ? [Date.parse(time)] : [])));
  expect(Date.now() - last).toBeLessThan(8000);
});

test('BOOTSTRAP_SCIM_TOKEN is the first SCIM token of the company of the workspace default', async () => {
  const { url } = await createBareDatabase();
  // The same holds if the workspace already exists.
  await release({ DATABASE_URL: url });
  const set = { BOOTSTRAP_SCIM_TOKEN: 'chosen-by-someone', BOOTSTRAP_SCIM_ORIGIN: 'https://idp.example' };
  const { code, text } = await release({ DATABASE_URL: url, ...set });
  expect(code).toBe(0);
  expect(text).not.toContain(set.BOOTSTRAP_SCIM_TOKEN);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const tokens = () =>
    client.query(
      `select companies.name as company, workspaces.name as workspace, token_hash, origin, revoked_at is null as opens
       from scim_tokens
       join companies on companies.id = scim_tokens.company_id
       join workspaces on workspaces.company_id = companies.id`,
    );
  try {
    expect((await tokens()).rows).toEqual([
      {
        company: 'default',
        workspace: 'default',
        token_hash: hashApiKey(set.BOOTSTRAP_SCIM_TOKEN),
        origin: set.BOOTSTRAP_SCIM_ORIGIN,
        opens: true,
      },
    ]);
    // A revoked token stays revoked after the next release.
    await client.query('update scim_tokens set revoked_at = now()');
    await release({ DATABASE_URL: url, ...set });
    expect((await tokens()).rows.map(({ opens }) => opens)).toEqual([false]);
  } finally {
    await client.end();
  }
});

test('BOOTSTRAP_API_KEY sets the key, and the output omits it', async () => {
  const { url } = await createBareDatabase();
  const { code, text } = await release({ DATABASE_URL: url, BOOTSTRAP_API_KEY: 'pk_chosen_by_someone' });
  expect(code).toBe(0);
  expect(text).not.toContain('pk_');
  expect(await keys(url)).toMatchObject([
    { identifier: 'pk_chose', key_hash: hashApiKey('pk_chosen_by_someone') },
  ]);
});

test('two simultaneous releases create one workspace with one key', async () => {
  const { url } = await createBareDatabase();
  const both = await Promise.all([release({ DATABASE_URL: url }), release({ DATABASE_URL: url })]);
  expect(both.map(({ code }) => code)).toEqual([0, 0]);
  expect(await keys(url)).toHaveLength(1);
});

const NEXT = 'Start it, or correct DATABASE_URL. Without DATABASE_URL, npm start runs its own Postgres';

test('a failed release names setting, cause and remedy in one line, and exits 1', async () => {
  expect(await release({ DATABASE_URL: 'postgresql://nobody@127.0.0.1:1/nothing' })).toMatchObject({
    code: 1,
    text: `release: the Postgres server of DATABASE_URL refuses the connection (connect ECONNREFUSED 127.0.0.1:1). ${NEXT}`,
  });
  expect((await release({ DATABASE_URL: 'postgresql://nobody@localhost:1/nothing' })).text).toContain(
    'ECONNREFUSED',
  );
  expect(await release({})).toMatchObject({
    code: 1,
    text: 'release: wrong setting: DATABASE_URL is empty; npm start migrates the embedded Postgres itself',
  });
});

/** Runs the release. `text` is its output without the log lines. */
async function release(env: Record<string, string>) {
  const { exit, log } = startProcess('dist/src/release.js', env);
  const { code } = await exit;
  const text = log.flatMap((line) => (line.text ? [line.text] : [])).join('\n');
  return { code, text, messages: log.map(({ msg }) => msg) };
}

async function keys(url: string) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client
    .query(
      `select workspaces.name as workspace, identifier, key_hash, permissions, ip_allowlist, revoked_at
         from api_keys join workspaces on workspaces.id = workspace_id`,
    )
    .finally(() => client.end());
  return rows;
}
