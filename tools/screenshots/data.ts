import { readFileSync } from 'node:fs';
import path from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { packageRoot } from '../../src/platform/files.ts';
import { insertDeadLetters } from '../../src/store/failed-objects.ts';
import { createIntegration } from '../../test/setup/integrations.ts';
import { waitUntil } from '../../test/setup/wait-until.ts';
import type { Installation } from './installation.ts';

const DAY = 86_400_000;
const daysAgo = (days: number) => new Date(Date.now() - days * DAY).toISOString();

const people = [
  ...['Ada Lovelace', 'Grace Hopper', 'Alan Turing', 'Katherine Johnson', 'Edsger Dijkstra', 'Radia Perlman'],
  ...['Barbara Liskov', 'Donald Knuth', 'Frances Allen', 'Tony Hoare', 'Margaret Hamilton', 'Niklaus Wirth'],
  ...['Karen Jones', 'Ken Thompson', 'Adele Goldberg', 'Leslie Lamport', 'Jean Bartik', 'John McCarthy'],
];
const cities = ['London', 'Lisbon', 'Berlin', 'Toronto', 'Osaka', 'Nairobi'];
const events = [
  'app_opened',
  'product_viewed',
  'cart_updated',
  'search_made',
  'order_placed',
  'review_written',
];
const products = ['notebook', 'fountain-pen', 'desk-lamp', 'backpack'];

/**
 * Creates users with activity of the last three weeks, subscription groups, a merged alias, an API key and a rate limit.
 * @returns the ids of the subscription groups by their placeholder in the preference center
 */
export async function seedUsers({ call, penstock }: Installation) {
  const group = async (name: string) =>
    (await penstock('groups', 'create', '--workspace', 'default', '--name', name, '--channel', 'email'))
      .subscription_group_id!;
  const groups = { NEWS_GROUP: await group('News'), OFFERS_GROUP: await group('Offers') };
  await call('POST', '/users/track', {
    attributes: people.map((name, index) => {
      const [first, last] = name.split(' ') as [string, string];
      return {
        ...{ external_id: idOf(name), first_name: first, last_name: last },
        ...{ email: `${idOf(name)}@example.com`, home_city: cities[index % cities.length], language: 'en' },
        ...{
          plan: index % 3 === 0 ? 'pro' : 'free',
          logins: 3 + ((index * 7) % 40),
          tags: ['newsletter', 'beta'],
        },
        preferences: { theme: 'dark', digest: { weekly: true, hour: 8 } },
        subscription_groups: [{ subscription_group_id: groups.NEWS_GROUP, subscription_state: 'subscribed' }],
      };
    }),
  });
  await call('POST', '/users/alias/new', {
    user_aliases: [{ alias_label: 'device', alias_name: 'tablet-7' }],
  });
  await call('POST', '/users/identify', {
    aliases_to_identify: [
      { external_id: 'ada.lovelace', user_alias: { alias_label: 'device', alias_name: 'tablet-7' } },
    ],
  });
  for (let day = 20; day >= 0; day--) await call('POST', '/users/track', activityOf(day));
  await penstock(
    'keys',
    'create',
    '--workspace',
    'default',
    '--name',
    'web shop',
    '--permissions',
    'users.track',
  );
  const limit = '--workspace default --bucket users.track --requests 80000 --window-seconds 60';
  await penstock('limits', 'set', ...limit.split(' '));
  return groups;
}

const idOf = (name: string) => name.toLowerCase().replace(' ', '.');

function activityOf(day: number) {
  return {
    events: people.map((name, index) => ({
      external_id: idOf(name),
      name: events[(index + day) % events.length],
      time: daysAgo(day + index / 40),
      properties: { screen: 'home', items: (index + day) % 5 },
    })),
    purchases: people
      .filter((_, index) => (index + day) % 4 === 0)
      .map((name, index) => ({
        ...{
          external_id: idOf(name),
          product_id: products[(index + day) % products.length],
          currency: 'EUR',
        },
        ...{ price: 4.5 + index * 3, quantity: 1 + (index % 2), time: daysAgo(day) },
      })),
  };
}

/** Sends small requests until the returned function is called, so that pages about throughput have data to show. */
export function startTrickle({ call }: Installation): () => Promise<void> {
  let ended = false;
  const sending = (async () => {
    for (let turn = 0; !ended; turn++) {
      const batch = activityOf(0);
      await call('POST', '/users/track', {
        events: batch.events.slice(0, 4 + Math.round(8 * Math.abs(Math.sin(turn / 20)))),
      });
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  return () => {
    ended = true;
    return sending;
  };
}

/** Inserts data that would otherwise need time: usage of 29 days, runs of syncs, and dead letters. */
export async function seedHistory({ pool }: Installation): Promise<void> {
  const query = async (text: string, ...values: unknown[]) => (await pool.query(text, values)).rows;
  const [{ id: workspace }] = (await query(`select id from workspaces where name = 'default'`)) as [
    { id: string },
  ];
  await query(
    `insert into usage (workspace_id, day, lane, attributes, events, purchases)
     select $1, current_date - day, 0, 9000 + 300 * (day % 7), 60000 + 21000 * ((day * 5) % 7), 2400 + 90 * (day % 5)
       from generate_series(1, 29) as day`,
    workspace,
  );
  const failures = [
    ['events', 'new row for relation "events" violates check constraint "order_has_total"', 6],
    ['purchases', 'numeric field overflow', 3],
    ['attributes', 'custom attributes of this user would exceed 256 KiB', 2],
  ] as const;
  const rows = failures.flatMap(([kind, reason, times]) =>
    Array.from({ length: times }, (_, index) => {
      const identifier = { external_id: idOf(people[index]!) };
      const object = {
        kind,
        identifier,
        name: 'order_placed',
        time: daysAgo(1),
        properties: { total: 4200 },
      };
      const common = { id: uuidv7(), workspaceId: workspace, requestId: uuidv7(), kind, reason };
      return { ...common, jobName: 'users.track', identifiers: [identifier], object };
    }),
  );
  const client = await pool.connect();
  try {
    await insertDeadLetters(client as never, rows);
  } finally {
    client.release();
  }
  for (const [name, kind, status, schedule] of [
    ['crm_contacts', 'attributes', 'active', '0 * * * *'],
    ['orders', 'purchases', 'active', '*/15 * * * *'],
    ['web_events', 'events', 'paused', null],
  ] as const) {
    const integration = await createIntegration(pool as never, workspace, { name, kind, status, schedule });
    for (let hour = 8; hour > 0; hour--)
      await query(
        `insert into sync_jobs (id, integration_id, asked_by, status, started_at, finished_at, rows_read, rows_synced, rows_failed)
         values ($1, $2, 'schedule', $3, now() - $4 * interval '1 hour', now() - $4 * interval '1 hour' + interval '42 seconds', 12400, $5, $6)`,
        ...[
          uuidv7(),
          integration,
          hour === 3 ? 'partial' : 'success',
          hour,
          hour === 3 ? 12_391 : 12_400,
          hour === 3 ? 9 : 0,
        ],
      );
  }
}

/** Creates the preference center of docs/preference-center.html. @returns the link that opens it for a user */
export async function seedPreferenceCenter(
  { call }: Installation,
  groups: Record<string, string>,
): Promise<string> {
  const template = (file: string) => {
    const text = readFileSync(path.join(packageRoot, 'docs', file), 'utf8');
    return Object.entries(groups).reduce((filled, [name, id]) => filled.replaceAll(name, id), text);
  };
  const { preference_center_api_id: id } = await call('POST', '/preference_center/v1', {
    name: 'choices',
    preference_center_title: 'Your choices',
    preference_center_page_html: template('preference-center.html'),
    confirmation_page_html: template('preference-center-saved.html'),
    options: { 'meta-viewport-content': 'width=device-width, initial-scale=1' },
  });
  // The link is available as soon as a worker has created the user.
  return waitUntil(
    async () => (await call('GET', `/preference_center/v1/${id}/url/ada.lovelace`)).preference_center_url,
    { what: 'the link of a user' },
  );
}

const segments = [
  [
    'Readers in Germany',
    {
      all: [
        { attribute: 'country', equals: 'DE' },
        { event: 'read', last_in_days: 30 },
      ],
    },
  ],
  ['Never bought', { none: [{ any_purchase: true }] }],
  ['Gold', { custom_attribute: 'plan', in: ['gold', 'platinum'] }],
] as const;

/** Creates accounts, teams, permission sets and segments. @returns the id of a request that has a dead letter */
export async function seedPeople({ pool }: Installation): Promise<{ request: string }> {
  const [{ id: workspace, company_id: company }] = (
    await pool.query("select id, company_id from workspaces where name = 'default'")
  ).rows;
  for (const [index, [name, definition]] of segments.entries())
    await pool.query(
      // The id is the time only, so each segment needs a millisecond of its own.
      `insert into segments (id, workspace_id, name, definition)
       values (uuid_v7_floor(now() + $4::integer * interval '1 millisecond'), $1, $2, $3)`,
      [workspace, name, JSON.stringify(definition), index - 1000],
    );
  const people = ['Ada Lovelace', 'Grace Hopper', 'Edsger Dijkstra', 'Barbara Liskov'];
  for (const [given, family] of people.map((name) => name.split(' ') as [string, string]))
    await pool.query(
      `insert into accounts (id, company_id, user_name, email, given_name, family_name, department, app_groups)
       values (gen_random_uuid(), $1, $2, $2, $3, $4, 'Messaging', '[]')`,
      [company, `${given.toLowerCase()}@example.com`, given, family],
    );
  for (const [name, permissions] of [
    ['Analysts', ['view_user_profile', 'view_usage_data', 'view_segments']],
    ['Support', ['view_user_profile', 'view_pii', 'view_event_user_log']],
  ])
    await pool.query(
      'insert into permission_sets (id, company_id, name, permissions) values (gen_random_uuid(), $1, $2, $3)',
      [company, name, permissions],
    );
  for (const name of ['Berlin', 'London'])
    await pool.query('insert into teams (id, workspace_id, name) values (gen_random_uuid(), $1, $2)', [
      workspace,
      name,
    ]);
  const { rows } = await pool.query(
    'select request_id as request from dead_letters order by id desc limit 1',
  );
  return rows[0];
}

/** Creates a stream, an export, a blocked id and refused objects, which have pages of their own. */
export async function seedDeliveries({ call, penstock }: Installation): Promise<void> {
  const stream = '--workspace default --name crm --url https://crm.example.com/penstock';
  await penstock('streams', 'create', ...stream.split(' '));
  await penstock(
    'segments',
    'export',
    '--workspace',
    'default',
    '--segment',
    'Gold',
    '--fields',
    'external_id',
  );
  await penstock(
    'users',
    'block',
    '--workspace',
    'default',
    '--external-id',
    'load-test',
    '--reason',
    'a test',
  );
  await call('POST', '/users/track', {
    events: [
      { external_id: 'ada.lovelace', name: 'order_placed', time: daysAgo(0) },
      { external_id: 'ada.lovelace', name: '', time: daysAgo(0) },
      { external_id: 'grace.hopper', name: 'order_placed', time: 'yesterday' },
    ],
  });
}
