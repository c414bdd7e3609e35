import type { Pool } from '../../../src/store/database.ts';

/** Rows per large table: enough that the planner does not treat it as small. */
const ROWS = 20_000;

/** Accounts per company. There are many companies, so that one is a small part of the table. */
const ACCOUNTS = 200;

/** Ids of one of the two workspaces of the filled database, for calls of statements. */
export interface Filled {
  workspaceId: string;
  companyId: string;
  accountId: string;
  /** A team and a permission set of the company, unused by accounts. */
  teamId: string;
  setId: string;
  keyHash: Buffer;
  group: string;
  integrationId: string;
  /** An unfinished run of the integration, with a chunk in progress. */
  runId: string;
  /** A run that ended long ago; half of all runs are older. */
  oldRunId: string;
  /** A few users of the workspace; each has every kind of data. */
  users: { id: string; external_id: string; email: string; phone: string }[];
  /** Ids of applied envelopes, of objects with an outcome, and of dead letters. */
  envelopes: string[];
  objects: string[];
  deadLetters: string[];
  attempt: string;
}

const owner = "filled_id('workspace', n % 2)";
const instant = "now() - n * interval '250 seconds'";
const digest = 'sha256(n::text::bytea)';

/** Tables with a row per `n`: users, their activity, and records of requests and runs. */
const rows: Record<string, string> = {
  'profiles (workspace_id, id, external_id, email, phone, phone_valid, marked_email_as_spam_at, email_subscribe, custom_attributes, created_at, updated_at)': `
    ${owner}, filled_id('user', n), 'user' || n, 'user' || n || '@x.com', '+4420' || n, true,
    case when n % 9 = 0 then ${instant} end, 'subscribed', '{"points": 1}', ${instant}, ${instant}`,
  'user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at)': `
    ${owner}, 'label', 'alias' || n, filled_id('user', n), ${instant}`,
  'user_search (workspace_id, profile_id, text, grams, source)': `
    ${owner}, filled_id('user', n), 'user' || n, array[n % 2, n], n`,
  'push_tokens (workspace_id, app_id, token, device_id, profile_id, created_at)': `
    ${owner}, 'app', 'token' || n, 'device' || n, filled_id('user', n), ${instant}`,
  'email_addresses (workspace_id, email, state, hard_bounced_at, changed_at)': `
    ${owner}, 'user' || n || '@x.com', (array['subscribed', 'unsubscribed'])[n % 3 % 2 + 1],
    case when n % 7 = 0 then ${instant} end, ${instant}`,
  'invalid_phone_numbers (workspace_id, phone, reason, detected_at)': `
    ${owner}, '+4420' || n, 'deactivated', ${instant} - case when n % 51 = 0 then interval '100 days' else interval '0' end`,
  'subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)': `
    ${owner}, 'email', 'user' || n || '@x.com', filled_id('group', n % 2), 'subscribed', ${instant}`,
  'subscription_history (workspace_id, subject_kind, subject, subscription, to_state, changed_at, request_id)': `
    ${owner}, 'email', 'user' || n || '@x.com', filled_id('group', n % 2)::text, 'subscribed', ${instant}, 'request'`,
  'events (workspace_id, id, profile_id, name, "time")': `
    ${owner}, filled_id('event', n), filled_id('user', n), 'event' || n % 100, ${instant}`,
  'purchases (workspace_id, id, profile_id, product_id, currency, price, quantity, "time")': `
    ${owner}, filled_id('purchase', n), filled_id('user', n), 'product' || n % 100, 'USD', 1, 1, ${instant}`,
  'activity_series (workspace_id, kind, name, app_id, hour, currency, lane, count)': `
    ${owner}, 'event', 'name' || n % 100, '', date_trunc('hour', ${instant}) - n * interval '1 hour', '', n % 4, 1`,
  'event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)': `
    ${owner}, filled_id('user', n), 'event' || n % 100, ${instant}, ${instant}, 1, ${instant}`,
  'purchase_summaries (workspace_id, profile_id, product_id, currency, first, last, count, revenue, updated_at)': `
    ${owner}, filled_id('user', n), 'product' || n % 100, 'USD', ${instant}, ${instant}, 1, 1, ${instant}`,
  'app_summaries (workspace_id, profile_id, app_id, sessions, first_session, last_session)': `
    ${owner}, filled_id('user', n), 'app', 1, ${instant}, ${instant}`,
  'ledger (envelope_id, applied_at)': `filled_id('envelope', n), ${instant}`,
  'dead_letters (id, workspace_id, request_id, kind, job_name, object, reason, state, failed_at, identifiers)': `
    filled_id('object', n), ${owner}, 'request' || n, 'events', 'track', '{}', 'reason',
    case n % 20 when 0 then 'waiting' else 'replayed' end, ${instant}, array['x:user' || n]`,
  'outcomes (object_id, decided_at)': `filled_id('object', n), ${instant}`,
  'refused_objects (workspace_id, hour, reason, field, operation, input_array, api_key_id, objects, last_request_id, sample_request_id)': `
    ${owner}, date_trunc('hour', now(), 'UTC') - n / 40 * interval '2 hours', 'required', 'field' || n / 2 % 20,
    'users.track', 'events', filled_id('key', n % 2), 1, filled_id('request', n),
    uuid_v7_floor(date_trunc('hour', now(), 'UTC') - n / 40 * interval '2 hours')`,
  'refused_requests (workspace_id, request_id, api_key_id, operation, rejected, objects)': `
    ${owner}, filled_id('request', n), filled_id('key', n % 2), 'users.track', 1,
    '[{"inputArray": "events", "index": 0, "reason": "required", "field": "name"}]'`,
  'refused_of_users (workspace_id, name, day, objects)': `
    ${owner}, sha256(uuid_send(${owner}) || sha256(('x:user' || n)::bytea)), (now() at time zone 'UTC')::date - n / 500, '[]'`,
  'usage (workspace_id, day, lane, events)': `
    ${owner}, (now() at time zone 'UTC')::date - n / 32, n / 2 % 16, 1`,
  'deprecated_external_ids (workspace_id, external_id, profile_id, created_at)': `
    ${owner}, 'old' || n, filled_id('user', n), ${instant}`,
  'merged_profiles (workspace_id, profile_id, kept_id, merged_at)': `
    ${owner}, filled_id('gone', n), filled_id('user', n), ${instant}`,
  'removed_profiles (workspace_id, profile_id, fate, removed_at)': `
    ${owner}, filled_id('gone', n), 'merged', ${instant}`,
  'left_names (workspace_id, name, owner_id, up_to)': `${owner}, 'x:user' || n, filled_id('gone', n), n`,
  'custom_attribute_names (workspace_id, name, types, first_seen_at)': `
    ${owner}, 'attribute' || n, 1, ${instant}`,
  'blocked_external_ids (workspace_id, external_id, reason)': `
    filled_id('workspace', n % 100), 'blocked' || n, 'reason'`,
  'preference_link_revocations (workspace_id, subject_kind, subject_id)': `${owner}, 'user', filled_id('user', n)`,
  'idempotency_keys (owner_id, operation, key_hash, fingerprint, request_id, created_at)': `
    ${owner}, 'operation', ${digest}, ${digest}, filled_id('request', n), now() - n * interval '10 seconds'`,
  'sync_jobs (id, integration_id, asked_by, status, started_at, finished_at)': `
    filled_id('run', n), filled_id('integration', n % 20), 'schedule', 'success', ${instant},
    case when n > 10 then ${instant} end`,
  'sync_row_errors (workspace_id, job_id, number, reason, occurred_at, identifiers)': `
    filled_id('workspace', (n % 100 + 1) % 2), filled_id('run', n % 100 + 1), n, 'reason', ${instant}, array['x:user' || n]`,
  'sync_boundary (integration_id, fingerprint, seen)': `filled_id('integration', n % 20), ${digest}, 1`,
  'sync_expected (attempt, fingerprint, job_id, remaining)': `
    filled_id('attempt', n % 10), ${digest}, filled_id('run', n % 10 + 1), 1`,
  'accounts (id, company_id, user_name, email, external_id, given_name, family_name, department, app_groups)': `
    filled_id('account', n), filled_id('company', n / ${ACCOUNTS}), 'Who' || n || '@x.com', 'who' || n || '@x.com',
    'who' || n, 'Given' || n, 'Family' || n, 'Department' || n,
    jsonb_build_array(jsonb_build_object('workspace', filled_id('workspace', n % 100), 'permissionSet',
      filled_id('set', n % 38 + 2), 'teams', jsonb_build_array(jsonb_build_object('team', filled_id('team', n % 38 + 2)))))`,
  'audit (id, company_id, workspace_id, actor_kind, actor_name, via, action, subject_kind, subject_id)': `
    filled_id('audit', n), filled_id('company', n % 2), ${owner}, 'account', 'who' || n % 100 || '@x.com', 'console',
    (array['users.delete', 'users.export'])[n % 2 + 1], 'user', 'user' || n`,
  'api_key_usage (workspace_id, api_key_id, day, bucket, requests)': `
    ${owner}, filled_id('key', n % 40), (now() at time zone 'UTC')::date - n / 80, 'bucket' || n / 40 % 2, 1`,
  'stream_log (workspace_id, at, kinds, profile_ids, ids)': `
    ${owner}, ${instant}, 'e', array[filled_id('user', n)], array[filled_id('object', n)]`,
  'stream_erasures (workspace_id, subject_kind, subject)': `
    ${owner}, 'profile', filled_id('user', n)::text`,
  'segment_exports (workspace_id, id, segment_id, object_prefix, fields, output_format, state, due_at, requested_at)': `
    ${owner}, filled_id('export', n), filled_id('segment', n), 'prefix' || n, '{email}', 'zip',
    case n % 500 when 0 then 'open' else 'ready' end, case n % 250 when 0 then ${instant} end,
    now() - n * interval '1 minute'`,
  'sessions (id, secret_hash, company_id, account_id, epoch, began_at, ends_at)': `
    filled_id('session', n), ${digest}, filled_id('company', n / ${ACCOUNTS}), filled_id('account', n), 0,
    ${instant}, ${instant} + interval '12 hours'`,
};

/** Tables that stay small however many users there are. `n` begins at 0. */
const few: Record<string, [count: number, values: string]> = {
  'imports (workspace_id, key, id, file, digest, reading, staged, envelope_ids, started_at)': [
    2,
    `${owner}, ${digest}, filled_id('import', n), 'users.csv', ${digest}, '{}', '[]', array[filled_id('event', n)],
    now() - interval '30 days'`,
  ],
  'companies (id, name)': [ROWS / ACCOUNTS + 1, "filled_id('company', n), 'company' || n"],
  'workspaces (id, name, company_id)': [
    100,
    "filled_id('workspace', n), 'shop' || n, filled_id('company', n)",
  ],
  'api_keys (id, workspace_id, name, identifier, key_hash, permissions)': [
    40,
    `filled_id('key', n), ${owner}, 'key' || n, 'key', ${digest}, '{}'`,
  ],
  'rate_limits (workspace_id, bucket, requests, window_seconds)': [2, `${owner}, 'scim', 10, 10`],
  'token_buckets (owner_id, bucket, counter, tokens, at)': [40, `${owner}, 'bucket' || n, 'web', 10, now()`],
  'scim_tokens (id, company_id, name, identifier, token_hash, origin)': [
    40,
    `filled_id('token', n), filled_id('company', n), 'token', 'token', ${digest}, 'origin'`,
  ],
  'subscription_groups (id, workspace_id, name, channel)': [
    2,
    `filled_id('group', n), ${owner}, 'group' || n, 'email'`,
  ],
  'integrations (id, workspace_id, name, kind, warehouse_type, status, source, schedule)': [
    20,
    `filled_id('integration', n), ${owner}, 'integration' || n, 'attributes', 'postgres', 'active', '{}', '0 * * * *'`,
  ],
  'stream_destinations (workspace_id, id, name, kind, settings, position, gather_ms)': [
    20,
    `${owner}, filled_id('stream', n), 'stream' || n, 'webhook', '{}', n, n % 2 * 1000`,
  ],
  'teams (id, workspace_id, name)': [40, "filled_id('team', n), filled_id('workspace', n), 'team' || n"],
  'permission_sets (id, company_id, name, permissions)': [
    40,
    "filled_id('set', n), filled_id('company', n), 'set' || n, '{view_pii}'",
  ],
  'lane_totals (lane)': [16, 'n'],
};

/** Turns off autovacuum, so that plans depend only on statistics that a test has collected. */
export async function leaveUnwatched(pool: Pool): Promise<void> {
  await pool.query(`
    do $$ declare one regclass; begin
      for one in select oid from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace loop
        execute format('alter table %s set (autovacuum_enabled = false)', one);
      end loop;
    end $$`);
}

/** Fills a migrated database and collects statistics. */
export async function fill(pool: Pool, now?: number): Promise<Filled> {
  await leaveUnwatched(pool);
  const filled = await fillUncounted(pool, ROWS, now);
  await pool.query('analyze');
  return filled;
}

/**
 * Fills a migrated database without new statistics, so that existing plans stay. `most` is the number of rows
 * per table. Two databases that are filled for the same time have the same ids.
 */
export async function fillUncounted(pool: Pool, most = ROWS, now = Date.now()): Promise<Filled> {
  const insert = (target: string, values: string, from: number, to: number) =>
    pool.query(`insert into ${target} select ${values} from generate_series(${from}, ${to}) as n`);
  // Creates a UUIDv7 that is the later the smaller `n` is. Without the cast of `n` the function would not be
  // immutable, and would be
  // called for each row.
  await pool.query(`
    create function filled_id(kind text, n integer) returns uuid language sql immutable as $$
      select ('0' || to_hex((${now} - n * 250000::bigint) * 16 + 7) || '000'
        || to_hex((-9223372036854775808)::bigint + (hashtextextended(kind || n::text, 0) & 1152921504606846975)))::uuid
    $$`);
  for (const [target, [count, values]] of Object.entries(few)) await insert(target, values, 0, count - 1);
  for (const [target, values] of Object.entries(rows)) await insert(target, values, 1, most);
  await insert(
    'sync_chunks (job_id, envelope_ids, entries, rows, progress)',
    `filled_id('run', n), array[filled_id('envelope', n)], '[]', '{}', '{"errors": []}'`,
    1,
    10,
  );
  const { rows: records } = await pool.query(`
    select
      ${owner} as "workspaceId", filled_id('company', 1) as "companyId", filled_id('account', 1) as "accountId",
      filled_id('team', 1) as "teamId", filled_id('set', 1) as "setId", ${digest} as "keyHash",
      filled_id('group', n % 2) as group, filled_id('integration', n) as "integrationId", filled_id('run', n) as "runId",
      filled_id('run', n + ${most / 2}) as "oldRunId",
      filled_id('attempt', n) as attempt,
      array(select filled_id('envelope', one) from generate_series(1, 3) as one) as envelopes,
      array(select filled_id('object', one) from generate_series(1, 3) as one) as objects,
      array(select filled_id('object', one) from generate_series(20, 60, 20) as one) as "deadLetters"
    from (values (2)) as filled (n)`);
  const { rows: users } = await pool.query(
    `select id, external_id, email, phone from profiles
     where workspace_id = $1 and external_id = any (array(select 'user' || n * 2 from generate_series(1, 4) as n))
     order by id`,
    [records[0].workspaceId],
  );
  // The next turn of the search index begins near the end of this workspace.
  await pool.query(
    `update user_search_pass set workspace_id = $1, profile_id = (
       select id from profiles where workspace_id = $1 order by id desc offset 100 limit 1)`,
    [records[0].workspaceId],
  );
  return { ...records[0], users };
}
