import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { type PenstockOn, penstockOn } from '../admin/penstock.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { createGroup, createWorkspace, type TestWorkspace } from '../setup/workspace.ts';

let fleet: Fleet;
let on: PenstockOn;
/** A workspace whose events mark the end of everything sent before, because there is only one lane. */
let clock: TestWorkspace;
let ticks = 0;

beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 1, env: { LANES: '1' } });
  await liftLimits(fleet.pool, fleet.workspace.id);
  clock = await createWorkspace(fleet.pool, 'clock');
  on = penstockOn(fleet.env.DATABASE_URL!, fleet.env);
});
afterAll(() => fleet?.stop());

async function post(pathname: string, json: Json, key = fleet.workspace.key): Promise<void> {
  const { status, body } = await send(fleet.edges[0]!.port, { path: pathname, key, json });
  expect([status, body.errors]).toEqual([expect.toBeOneOf([201, 202]), undefined]);
}

async function waitForWorkers(): Promise<void> {
  const name = `tick ${++ticks}`;
  await post(
    '/users/track',
    { events: [{ external_id: 'clock', name, time: '2026-01-31T12:00:00Z' }] },
    clock.key,
  );
  await waitUntil(
    async () => (await fleet.pool.query('select from events where name = $1', [name])).rowCount,
    {
      what: 'what was sent before',
    },
  );
}

type Rows = Record<string, Json>[];

function rowsIn(folder: string): Rows {
  const names = readdirSync(folder)
    .filter((name) => name.endsWith('.gz'))
    .sort();
  return names.flatMap((name) => {
    const lines = gunzipSync(readFileSync(path.join(folder, name)))
      .toString()
      .trimEnd()
      .split('\n');
    return lines.map((line) => JSON.parse(line));
  });
}

async function exported(workspace: string, what: string, ...more: string[]) {
  const folder = path.join(temporaryFolder(), what);
  const summary = await on.json([
    'export',
    '--workspace',
    workspace,
    '--what',
    what,
    '--to',
    folder,
    ...more,
  ]);
  const files = readdirSync(folder).filter((name) => name !== 'manifest.json' && !name.startsWith('.'));
  return { folder, summary, files: files.map((name) => path.join(folder, name)) };
}

async function imported(files: string[], workspace: string, ...as: string[]): Promise<void> {
  const { imports } = await on.json(['import', ...files, '--workspace', workspace, ...as]);
  expect(imports.map(({ refused, warned }: Rows[number]) => [refused, warned])).toEqual(
    files.map(() => [0, 0]),
  );
  await waitForWorkers();
}

/** Members that differ for a new profile; rows are compared in any order without them. */
const ANEW = ['service_id', 'random_bucket', 'created_at', 'email_opted_in_at', 'email_unsubscribed_at'];
const comparable = (rows: Rows) =>
  rows
    .map((row) =>
      JSON.stringify(Object.fromEntries(Object.entries(row).filter(([name]) => !ANEW.includes(name)))),
    )
    .sort();

const alias = { alias_name: 'visitor 7', alias_label: 'web' };
const people: Rows = [
  { external_id: 'ada' },
  { external_id: 'grace' },
  { user_alias: alias },
  { email: 'only@example.com' },
  { phone: '+442071838750' },
];

async function fill(email: string, sms: string): Promise<void> {
  const [ada, , visitor, byEmail, byPhone] = people;
  const attributes = [
    {
      ...{ ...ada, email: 'ada@example.com', phone: '+442071838751', first_name: 'Ada', last_name: 'L.' },
      ...{ dob: '1990-12-10', country: 'GB', home_city: 'London', language: 'en', gender: 'F' },
      ...{ time_zone: 'Europe/London', image_url: 'https://example.com/a.png', email_subscribe: 'opted_in' },
      ...{ push_subscribe: 'unsubscribed', date_of_first_session: '2025-01-31T12:00:00Z' },
      current_location: { longitude: -0.1, latitude: 51.5 },
      email_open_tracking_disabled: true,
      ...{ points: 12.5, vip: true, since: '2024-05-06T07:08:09.123Z', tags: ['a', 'b'], ünï: 'ça "va"\n' },
      address: { street: { name: 'Strand', number: 1 }, lines: [1, 2] },
      pets: [{ name: 'Rex', age: 3 }, { name: 'Tom' }],
      push_tokens: [
        { app_id: 'app', token: 'token-1', device_id: 'device-0001' },
        { app_id: 'app', token: 'token-2', device_id: 'device-0002' },
      ],
    },
    { external_id: 'grace', first_name: 'Grace', left_from: 'here' },
    { external_id: 'left', points: 1 },
    { ...visitor!, _update_existing_only: false, city: 'Paris' },
    { ...byEmail!, first_name: 'Only' },
    { ...byPhone!, first_name: 'Phone' },
    { push_token_import: true, push_tokens: [{ app_id: 'app', token: 'token-9', device_id: 'device-0009' }] },
  ];
  await post('/users/track', { attributes });
  await post('/users/alias/new', {
    user_aliases: [{ external_id: 'ada', alias_name: 'al', alias_label: 'crm' }],
  });
  const did = (who: Rows[number], n: number) => ({
    ...{ ...who, time: new Date(Date.UTC(2026, 0, 1, 0, 0, n, n)).toISOString() },
    ...(n % 3 === 0 && { app_id: 'app' }),
    ...(n % 2 === 0 && {
      properties: { n, half: n / 2, ok: n > 5, text: `"${n}"`, list: [n, 1], deep: { n } },
    }),
  });
  for (const who of [...people, { external_id: 'left' }]) {
    const events = Array.from({ length: 20 }, (_, n) => ({ ...did(who, n), name: `event ${n % 4}` }));
    const purchases = Array.from({ length: 10 }, (_, n) => ({
      ...{ ...did(who, n), product_id: `hat ${n % 3}`, currency: n % 2 ? 'USD' : 'EUR' },
      ...{ price: [19.99, 0.1, -5, 1e-7, 123456789.12][n % 5]!, quantity: 1 + n },
    }));
    await post('/users/track', { events, purchases });
  }
  await post('/users/merge', {
    merge_updates: [
      { identifier_to_merge: { external_id: 'left' }, identifier_to_keep: { external_id: 'grace' } },
    ],
  });
  const set = (subscription_group_id: string, subscription_state: string, whom: Record<string, Json>) =>
    post('/v2/subscription/status/set', {
      subscription_groups: [{ subscription_group_id, subscription_state, ...whom }],
    });
  await set(email, 'subscribed', { external_ids: ['ada', 'grace'] });
  await set(email, 'unsubscribed', { emails: ['nobody@example.com'] });
  await set(sms, 'unsubscribed', { phones: ['+442071838751'] });
  await set(sms, 'subscribed', { external_ids: ['grace'] });
  await post('/users/track', {
    attributes: [
      {
        user_alias: alias,
        subscription_groups: [{ subscription_group_id: email, subscription_state: 'subscribed' }],
      },
    ],
  });
  await post('/email/status', { email: 'gone@example.com', subscription_state: 'unsubscribed' });
  await waitForWorkers();
}

test('rows exported from a workspace and imported into another are exported equally from there', async () => {
  const groups = [
    await createGroup(fleet.pool, fleet.workspace.id, 'email'),
    await createGroup(fleet.pool, fleet.workspace.id, 'sms'),
  ] as const;
  await fill(...groups);
  const copies = { ndjson: await createWorkspace(fleet.pool, 'copy-ndjson') } as Record<
    string,
    TestWorkspace
  >;
  copies.parquet = await createWorkspace(fleet.pool, 'copy-parquet');
  const kinds = [
    ['profiles', ['--format', 'penstock-export'], 6],
    ['events', ['--type', 'events'], 120],
    ['purchases', ['--type', 'purchases'], 60],
    ['states', ['--type', 'subscriptions'], 8],
  ] as const;
  const plain = new Map<string, string[]>();
  for (const [what, , count] of kinds) {
    const { folder, summary } = await exported('shop', what);
    const rows = rowsIn(folder);
    expect([what, summary.rows, rows.length]).toEqual([what, count, count]);
    plain.set(what, comparable(rows));
  }
  for (const format of ['ndjson', 'parquet'] as const) {
    const files = new Map<string, string[]>();
    for (const [what] of kinds) files.set(what, (await exported('shop', what, '--format', format)).files);
    const { id } = copies[format]!;
    // A group id belongs to one workspace, so the groups are moved.
    await fleet.pool.query('update subscription_groups set workspace_id = $1', [id]);
    for (const [what, as] of kinds) await imported(files.get(what)!, `copy-${format}`, ...as);
    // A second import of the same files adds no rows.
    for (const [what, as] of kinds) {
      const again = ['import', ...files.get(what)!, '--workspace', `copy-${format}`, ...as];
      for (const { state } of (await on.json(again)).imports) expect(state).toBe('imported before');
    }
    for (const [what] of kinds) {
      const { folder } = await exported(`copy-${format}`, what);
      expect([format, what, comparable(rowsIn(folder))]).toEqual([format, what, plain.get(what)]);
    }
    await fleet.pool.query('update subscription_groups set workspace_id = $1', [fleet.workspace.id]);
  }
});
