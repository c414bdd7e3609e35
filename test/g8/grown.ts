import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { customBytes, MAX_CUSTOM_BYTES } from '../../src/profile/custom-values.ts';
import type { Json } from '../../src/profile/json.ts';
import { workspacePermissions } from '../../src/schemas/permissions.ts';
import { companyOf } from '../setup/access.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { createIntegration } from '../setup/integrations.ts';
import { createGroup, type TestWorkspace } from '../setup/workspace.ts';

/** A workspace whose users have grown to their limits. */
export interface Grown {
  workspace: TestWorkspace;
  /** Number of users `heavy-0`, `heavy-1` … that have as much data as a user can have. */
  heavy: number;
  /** Kinds of attributes. The user `heavy-<n>` has the kind at index n modulo 4. */
  kinds: readonly ['arrays', 'objects', 'texts', 'ids'];
  groups: string[];
  integration: string;
  centers: string[];
  accounts: string[];
  /** Restores the attributes of the users that are not deleted. */
  restore(): Promise<void>;
}

/** Addresses with as many users as a request can affect, and with more. */
export const CROWDED = { email: 'crowd@example.com', phone: '+14155552671', holders: 500 };
export const OVERCROWDED = { email: 'over@example.com', holders: 1000 };

const range = (length: number) => Array.from({ length }, (_, index) => index);

/** Creates attributes of nearly the maximum size: five of one kind, or 980 texts of 240 characters. */
function documents(): Record<Grown['kinds'][number], Json> {
  const five = (value: Json) => Object.fromEntries(range(5).map((index) => [`list${index}`, value]));
  const documents = {
    arrays: five(range(6400).map(() => ({}))),
    objects: five(Object.fromEntries(range(2450).map((index) => [`k${index}`, 1]))),
    texts: Object.fromEntries(range(980).map((index) => [`text${index}`, 'x'.repeat(240)])),
    ids: five(range(1150).map((id) => ({ id, a: 1 }))),
  };
  // Changes of a user above the limit would be refused, and the test would measure only the refusal.
  for (const [kind, attributes] of Object.entries(documents))
    if (customBytes(attributes) > MAX_CUSTOM_BYTES * 0.99)
      throw new Error(`${kind}: more than a user may have`);
  return documents;
}

/** SQL for the ids of users. The last 26 bits of a profile id are 0. */
const idOf = (kind: string, number: string) =>
  `('019c13ec-a2e2-7${kind}-8000-' || lpad(to_hex(${number}), 5, '0') || '0000000')::uuid`;

/**
 * Fills a workspace up to its limits by SQL statements, because requests would take hours.
 *
 * @param summaries number of event names, and of products, of each of the first fifty heavy users
 */
export async function grow(
  pool: pg.Pool,
  workspace: TestWorkspace,
  { heavy, summaries }: { heavy: number; summaries: number },
): Promise<Grown> {
  const kinds = ['arrays', 'objects', 'texts', 'ids'] as const;
  const made = documents();
  const docs = JSON.stringify(kinds.map((kind) => made[kind]));
  const { id } = workspace;
  const insert = (
    kind: string,
    name: string,
    count: number,
    { email, phone }: { email?: string; phone?: string },
  ) =>
    pool.query(
      `insert into profiles (workspace_id, id, external_id, email, phone, phone_valid, custom_attributes, created_at, updated_at)
       select $1::uuid, ${idOf(kind, 'n')}, $2 || n, coalesce($4, $2 || n || '@example.com'), $5, true, $6::jsonb -> (n % 4), now(), now()
       from generate_series(0, $3::integer - 1) as n`,
      [id, name, count, email ?? null, phone ?? null, docs],
    );
  await insert('001', 'heavy-', heavy, {});
  const restore = async () => {
    await pool.query(
      `update profiles set custom_attributes = $2::jsonb -> (substring(external_id from '[0-9]+$')::integer % 4)
       where workspace_id = $1 and external_id ~ '^(heavy|crowd|over)-[0-9]+$'
         and custom_attributes <> $2::jsonb -> (substring(external_id from '[0-9]+$')::integer % 4)`,
      [id, docs],
    );
    await pool.query('vacuum analyze profiles');
    // Writes hundreds of megabytes to disk now, so that the checkpoint is not part of the measurement.
    await pool.query('checkpoint');
  };
  await insert('002', 'crowd-', CROWDED.holders, CROWDED);
  await insert('003', 'over-', OVERCROWDED.holders, OVERCROWDED);

  const few = Math.min(heavy, 50);
  const of = (count: number, each: number, columns: string, values: string, table: string) =>
    pool.query(
      `insert into ${table} (workspace_id, profile_id, ${columns})
       select $1::uuid, ${idOf('001', 'n')}, ${values}
       from generate_series(0, $2::integer - 1) as n, generate_series(1, $3::integer) as m`,
      [id, count, each],
    );
  await of(
    few,
    summaries,
    'name, first, last, count, updated_at',
    `'event' || m, now(), now(), 1, now()`,
    'event_summaries',
  );
  await of(
    few,
    summaries,
    'product_id, currency, first, last, count, revenue, updated_at',
    `'product' || m, 'EUR', now(), now(), 1, 1, now()`,
    'purchase_summaries',
  );
  await of(
    heavy,
    499,
    'alias_label, alias_name, created_at',
    `'label' || m, 'name' || n, now()`,
    'user_aliases',
  );
  await of(
    few,
    1000,
    'app_id, token, device_id, created_at',
    `'app', n || '-' || m || repeat('t', 1000), 'device' || m, now()`,
    'push_tokens',
  );

  const groups = await Promise.all(
    range(50).map((index) => createGroup(pool, id, 'email', { name: `group ${index}` })),
  );
  await pool.query(
    `insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
     select $1::uuid, 'email', email, subscription_group_id, 'subscribed', now()
     from (select distinct email from profiles where workspace_id = $1::uuid) as held, unnest($2::uuid[]) as subscription_group_id`,
    [id, groups],
  );
  await pool.query(
    `insert into email_addresses (workspace_id, email, state, hard_bounced_at, changed_at)
     select $1::uuid, n || '@bounced.example', 'unsubscribed', now(), now() from generate_series(1, 20000) as n`,
    [id],
  );
  const centers = range(200).map(() => uuidv7());
  await pool.query(
    `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
     select $1::uuid, id, id::text, 'title', repeat('p', 262144), repeat('c', 262144), 'active' from unnest($2::uuid[]) as id`,
    [id, centers],
  );
  return {
    workspace,
    heavy,
    kinds,
    restore,
    groups,
    centers,
    integration: await growWarehouse(pool, id),
    accounts: await growAccounts(pool, id),
  };
}

/** Creates an integration whose file has rows with the largest payloads. */
async function growWarehouse(pool: pg.Pool, workspaceId: string): Promise<string> {
  const path = temporaryFolder('penstock-g8-');
  const payloads = [
    JSON.stringify(Object.fromEntries(range(9000).map((index) => [`k${index}`, 'x'.repeat(100)]))),
    JSON.stringify({
      list0: { $remove: range(100).map((index) => ({ $identifier_key: 'id', $identifier_value: index })) },
    }),
    JSON.stringify({ nested: Object.fromEntries(range(8000).map((index) => [`k${index}`, 1])) }),
  ];
  const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`;
  const rows = range(60).map(
    (index) =>
      `2026-01-01T00:00:${String(index).padStart(2, '0')}Z,heavy-${index},${quoted(payloads[index % 3]!)}`,
  );
  writeFileSync(join(path, 'rows.csv'), `UPDATED_AT,EXTERNAL_ID,PAYLOAD\n${rows.join('\n')}\n`);
  return createIntegration(pool, workspaceId, { source: { type: 'folder', path, format: 'csv' } });
}

/** Names of workspaces of the company to which an account can get access. */
export const SHOPS = range(500).map((index) => `g8-shop-${index}`);

/** Permissions of an account in each workspace; together they are nearly the maximum number of values per account. */
export const ALLOWED = workspacePermissions.slice(0, 46);

/** Inserts a full page of accounts of the maximum size. */
async function growAccounts(pool: pg.Pool, workspaceId: string): Promise<string[]> {
  const company = await companyOf(pool, workspaceId);
  await pool.query(
    'insert into workspaces (id, name, company_id) select gen_random_uuid(), name, $1 from unnest($2::text[]) as name',
    [company, SHOPS],
  );
  const { rows } = await pool.query(
    `insert into accounts (id, company_id, user_name, email, given_name, family_name, department, app_groups)
     select gen_random_uuid(), $1, n || '@g8.example', n || '@g8.example', 'Ada', 'L', 'pm', groups.all
     from generate_series(1, 200) as n, (
       select jsonb_agg(jsonb_build_object('workspace', id, 'teams', '[]'::jsonb, 'permissions', to_jsonb($2::text[]))) as all
       from workspaces where company_id = $1 and name = any ($3::text[])) as groups
     returning accounts.id`,
    [company, ALLOWED, SHOPS],
  );
  return rows.map(({ id }) => id);
}
