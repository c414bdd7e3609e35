import type { Json } from '../profile/json.ts';
import type { Pool } from './database.ts';
import { isDistributed, WORKSPACES } from './distributed.ts';

/** What an Idempotency-Key means: one request of one operation of one owner. */
export interface Key {
  /** The workspace, or the company of a SCIM token. */
  ownerId: string;
  /** The operation's id. */
  operation: string;
  /** SHA-256 of the key. */
  hash: Buffer;
  /** SHA-256 of what was asked for. */
  fingerprint: Buffer;
}

/** An answer as it is kept. */
interface KeptAnswer {
  status: number;
  body: Json | undefined;
  headers?: Record<string, string>;
}

/** What a request that is about to have an effect leaves behind first. */
export interface Beginning {
  /** The first request that came with the key. */
  requestId: string;
  /** Of a queued request: what the lanes may not have yet, and the answer once they have it. */
  outbox?: { entries: unknown; answer: KeptAnswer };
  /** The envelopes of a queued request, in their order. The column is kept when the outbox is emptied. */
  envelopes?: PackedEnvelope[];
}

/** The place of an envelope among those of its request. */
export type PackedEnvelope = [id: string, lane: number, objects: number];

/** What is known of a key. */
export interface FoundKey extends Beginning {
  fingerprint: Buffer;
  /** Absent: nobody has been told yet. */
  answer?: KeptAnswer;
  /** Somebody is at it. */
  leased: boolean;
  /** When the first request came, by Postgres's clock, with microseconds. */
  createdAt: string;
}

/** How long a key is remembered. */
const KEPT = "interval '24 hours'";

/** The primary key, as the first three parameters. */
const isKey = `
  idempotency_keys.owner_id = $1::uuid
  and idempotency_keys.operation = $2::text
  and idempotency_keys.key_hash = $3::bytea`;

/** Whether the lanes, or the caller, still wait for something. */
const isOpen = '(idempotency_keys.status is null or idempotency_keys.staged is not null)';

const primaryKeyOf = ({ ownerId, operation, hash }: Key) => [ownerId, operation, hash];

/** By primary key; locks nothing. An answer without a body has none here, and null is a body. */
const findKeyStatement = `
  select
    idempotency_keys.fingerprint,
    idempotency_keys.request_id as "requestId",
    idempotency_keys.staged,
    idempotency_keys.status,
    idempotency_keys.body::text as body,
    idempotency_keys.headers,
    idempotency_keys.envelopes,
    idempotency_keys.created_at::text as "createdAt",
    coalesce(idempotency_keys.lease_until > statement_timestamp(), false) as leased
  from idempotency_keys
  where ${isKey} and idempotency_keys.created_at > now() - ${KEPT}`;

interface Row extends Pick<FoundKey, 'fingerprint' | 'requestId' | 'leased' | 'createdAt'> {
  envelopes: PackedEnvelope[] | null;
  staged: unknown;
  status: number | null;
  body: string | null;
  headers: Record<string, string> | null;
}

/** What the last 24 hours know of the key. */
export async function findKey(pool: Pool, key: Key): Promise<FoundKey | undefined> {
  const { rows } = await pool.query<Row>({
    name: 'find-key',
    text: findKeyStatement,
    values: primaryKeyOf(key),
  });
  const [row] = rows;
  if (!row) return undefined;
  const { status, body, headers, staged: entries, envelopes, ...known } = row;
  const found = { ...known, ...(envelopes && { envelopes }) };
  if (status === null) return found;
  const answer = {
    status,
    body: body === null ? undefined : (JSON.parse(body) as Json),
    ...(headers && { headers }),
  };
  return entries === null ? { ...found, answer } : { ...found, outbox: { entries, answer } };
}

/**
 * By primary key. Of several at once, one inserts and the others wait for its commit; a row that is older than keys
 * are remembered counts as none.
 */
const insertKeyStatement = `
  insert into idempotency_keys
    (owner_id, operation, key_hash, fingerprint, request_id, lease_until, staged, status, body, headers, envelopes)
  values
    ($1, $2, $3, $4, $5, statement_timestamp() + make_interval(secs => $6::float8 / 1000), $7, $8, $9, $10, $11)
  on conflict (owner_id, operation, key_hash) do update set
    fingerprint = excluded.fingerprint,
    request_id = excluded.request_id,
    created_at = excluded.created_at,
    lease_until = excluded.lease_until,
    staged = excluded.staged,
    status = excluded.status,
    body = excluded.body,
    headers = excluded.headers,
    envelopes = excluded.envelopes
  where excluded.created_at - idempotency_keys.created_at >= ${KEPT}
  returning 1`;

interface KeyLease {
  /** Milliseconds for which nobody else goes on with it; absent: it has no effect that could be had twice. */
  lease?: number | undefined;
}

/**
 * Writes down what a request is about to do.
 *
 * @returns false when the key is known already
 */
export async function insertKeyIfAbsent(
  pool: Pool,
  key: Key,
  beginning: Beginning & KeyLease,
): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'insert-key',
    text: insertKeyStatement,
    values: [...primaryKeyOf(key), key.fingerprint, ...valuesOf(beginning)],
  });
  return rowCount === 1;
}

const valuesOf = ({ requestId, outbox, envelopes, lease }: Beginning & KeyLease) => [
  requestId,
  lease ?? null,
  outbox ? JSON.stringify(outbox.entries) : null,
  outbox?.answer.status ?? null,
  outbox?.answer.body === undefined ? null : JSON.stringify(outbox.answer.body),
  outbox?.answer.headers ? JSON.stringify(outbox.answer.headers) : null,
  envelopes ? JSON.stringify(envelopes) : null,
];

/** Updates by primary key. One of several concurrent requests succeeds. */
const replaceKeyStatement = `
  update idempotency_keys
  set request_id = $4,
      lease_until = statement_timestamp() + make_interval(secs => $5::float8 / 1000),
      staged = $6, status = $7, body = $8, headers = $9, envelopes = $10,
      created_at = statement_timestamp()
  where ${isKey} and idempotency_keys.created_at = $11::timestamptz
    and idempotency_keys.staged is null and idempotency_keys.status is not null
  returning 1`;

/**
 * Replaces the kept answer of a request that the queue has lost: the request begins again, from now on.
 *
 * @returns false when another request has replaced it
 */
export async function replaceLostKey(
  pool: Pool,
  key: Key,
  { createdAt, ...beginning }: Beginning & KeyLease & Pick<FoundKey, 'createdAt'>,
): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'replace-key',
    text: replaceKeyStatement,
    values: [...primaryKeyOf(key), ...valuesOf(beginning), createdAt],
  });
  return rowCount === 1;
}

/** By primary key. Of several at once the first is recorded; what was in the outbox has done its duty. */
const recordAnswerStatement = `
  update idempotency_keys
  set status = $5, body = $6, headers = $7, staged = null, lease_until = null
  where ${isKey} and idempotency_keys.request_id = $4::uuid and ${isOpen}
  returning 1`;

/** Writes down the answer that everyone gets. @returns false when there is one already */
export async function recordAnswer(
  pool: Pool,
  key: Key,
  { requestId, status, body, headers }: KeptAnswer & { requestId: string },
): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'record-answer',
    text: recordAnswerStatement,
    values: [
      ...primaryKeyOf(key),
      requestId,
      status,
      body === undefined ? null : JSON.stringify(body),
      headers ? JSON.stringify(headers) : null,
    ],
  });
  return rowCount === 1;
}

/** By primary key. Of several at once, one takes it. */
const takeLeaseStatement = `
  update idempotency_keys
  set lease_until = statement_timestamp() + make_interval(secs => $5::float8 / 1000)
  where ${isKey} and idempotency_keys.request_id = $4::uuid and ${isOpen}
    and idempotency_keys.lease_until <= statement_timestamp()
  returning 1`;

/** Goes on, for so many milliseconds, with what somebody began and did not end. @returns false when another does */
export async function takeLease(
  pool: Pool,
  key: Key,
  { requestId, lease }: { requestId: string; lease: number },
): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'take-lease',
    text: takeLeaseStatement,
    values: [...primaryKeyOf(key), requestId, lease],
  });
  return rowCount === 1;
}

/** By primary key. */
const endLeaseStatement = `
  update idempotency_keys
  set lease_until = statement_timestamp()
  where ${isKey} and idempotency_keys.request_id = $4::uuid and ${isOpen}`;

/** Lets whoever comes next go on at once. */
export async function endLease(pool: Pool, key: Key, requestId: string): Promise<void> {
  await pool.query({ name: 'end-lease', text: endLeaseStatement, values: [...primaryKeyOf(key), requestId] });
}

/** Rows in one transaction: one may hold a request of 4 MB. */
const SLICE = 1000;

/** By the index on the time. What another worker is deleting is left to it. */
const forgetStatement = (own: (table: string) => string) => `
  delete from idempotency_keys
  where ${own('idempotency_keys')} (owner_id, operation, key_hash) in (
    select old.owner_id, old.operation, old.key_hash
    from idempotency_keys as old
    where ${own('old')} old.created_at <= now() - ${KEPT}
    limit ${SLICE}
    for update skip locked)`;

const forgetKeysStatement = forgetStatement(() => '');
const forgetKeysOfStatement = forgetStatement((table) => `${table}.owner_id = $1::uuid and`);

/** Of every shard at once; in no order, since all of them have their turn. */
const ownersOfOldStatement = `
  select distinct idempotency_keys.owner_id as id
  from idempotency_keys
  where idempotency_keys.created_at <= now() - ${KEPT}
  limit ${WORKSPACES}`;

async function forgetKeysApart(pool: Pool): Promise<void> {
  let owners: { id: string }[];
  do {
    ({ rows: owners } = await pool.query<{ id: string }>(ownersOfOldStatement));
    let deleted = 0;
    for (const { id } of owners) deleted += (await pool.query(forgetKeysOfStatement, [id])).rowCount ?? 0;
    // What another process forgets just now is left to it.
    if (deleted === 0) return;
  } while (owners.length > 0);
}

/** Forgets the keys of the day before, a slice at a time. */
export async function forgetKeys(pool: Pool): Promise<void> {
  if (await isDistributed(pool)) return forgetKeysApart(pool);
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(forgetKeysStatement));
  } while (deleted === SLICE);
}

/** By primary key. */
const forgetRefusedStatement = `
  delete from idempotency_keys
  where ${isKey} and idempotency_keys.request_id = $4::uuid and idempotency_keys.status is null`;

/** Forgets the key of a request that was refused for what it asks: it had no effect. */
export async function forgetRefused(pool: Pool, key: Key, requestId: string): Promise<void> {
  await pool.query({
    name: 'forget-refused',
    text: forgetRefusedStatement,
    values: [...primaryKeyOf(key), requestId],
  });
}
