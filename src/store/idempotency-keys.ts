import type { Json } from '../profile/json.ts';
import type { Pool } from './database.ts';
import { isDistributed, WORKSPACES } from './distributed.ts';
import { leasesOf } from './leases.ts';

/** An Idempotency-Key of one operation and one owner, with the fingerprint of its request. */
export interface Key {
  /** Workspace, or the company of a SCIM token. */
  ownerId: string;
  /** Operation id. */
  operation: string;
  /** SHA-256 of the key. */
  hash: Buffer;
  /** SHA-256 of the request. */
  fingerprint: Buffer;
}

/** A stored response. */
interface KeptAnswer {
  status: number;
  body: Json | undefined;
  headers?: Record<string, string>;
}

/** Data that is stored before a request takes effect. */
export interface Beginning {
  /** Id of the first request with this key. */
  requestId: string;
  /** Queued request: the entries that may not be in the lanes yet, and the response once they are. */
  outbox?: { entries: unknown; answer: KeptAnswer };
  /** Envelopes of a queued request, in order. They are kept when the outbox is emptied. */
  envelopes?: PackedEnvelope[];
}

/** An envelope of a request: id, lane and number of objects. */
export type PackedEnvelope = [id: string, lane: number, objects: number];

/** Stored state of a key. */
export interface FoundKey extends Beginning {
  fingerprint: Buffer;
  /** Absent if no response has been sent yet. */
  answer?: KeptAnswer;
  /** Whether a process is currently handling the request. */
  leased: boolean;
  /** Time of the first request by Postgres's clock, with microseconds. */
  createdAt: string;
}

/** Leases of keys, during which a process handles the first request with the key. They are too short to be extended. */
const keyLeases = leasesOf({ table: 'idempotency_keys', until: 'lease_until' });

/** Retention time of a key. */
const KEPT = "interval '24 hours'";

/** Condition on the primary key, with the first three parameters. */
const isKey = `
  idempotency_keys.owner_id = $1::uuid
  and idempotency_keys.operation = $2::text
  and idempotency_keys.key_hash = $3::bytea`;

/** Condition that the response is missing or the outbox is not empty. */
const isOpen = '(idempotency_keys.status is null or idempotency_keys.staged is not null)';

const primaryKeyOf = ({ ownerId, operation, hash }: Key) => [ownerId, operation, hash];

/** Reads by primary key; takes no lock. A body that is SQL null means no body; JSON null is a body. */
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
    idempotency_keys.lease_until is not null and not ${keyLeases.isFree} as leased
  from idempotency_keys
  where ${isKey} and idempotency_keys.created_at > now() - ${KEPT}`;

interface Row extends Pick<FoundKey, 'fingerprint' | 'requestId' | 'leased' | 'createdAt'> {
  envelopes: PackedEnvelope[] | null;
  staged: unknown;
  status: number | null;
  body: string | null;
  headers: Record<string, string> | null;
}

/** Returns the stored state of a key that was used in the last 24 hours. */
export async function findKey(pool: Pool, key: Key): Promise<FoundKey | undefined> {
  const { rows } = await pool.query<Row>({
    name: 'find-key',
    text: findKeyStatement,
    values: primaryKeyOf(key),
  });
  const [row] = rows;
  if (!row) return undefined;
  const { status, body, headers, staged: entries, envelopes, ...stored } = row;
  const storedKey = { ...stored, ...(envelopes && { envelopes }) };
  if (status === null) return storedKey;
  const answer = {
    status,
    body: body === null ? undefined : (JSON.parse(body) as Json),
    ...(headers && { headers }),
  };
  return entries === null ? { ...storedKey, answer } : { ...storedKey, outbox: { entries, answer } };
}

/**
 * Inserts by primary key. If several requests are concurrent, one inserts and the others wait for its commit.
 * A row older than the retention time is overwritten.
 */
const insertKeyStatement = `
  insert into idempotency_keys
    (owner_id, operation, key_hash, fingerprint, request_id, lease_until, staged, status, body, headers, envelopes)
  values
    ($1, $2, $3, $4, $5, ${keyLeases.endAfter('$6')}, $7, $8, $9, $10, $11)
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
  returning ${keyLeases.lease} as lease`;

/** A lease of a key. Null: the request has no effect that must not happen twice, so it has no lease. */
export interface KeyLease {
  lease: string | null;
}

interface NewLease {
  /**
   * Milliseconds during which no other process takes over the request. Absent if the request has no effect
   * that must not happen twice.
   */
  lease?: number | undefined;
}

/**
 * Stores a request before it takes effect.
 *
 * @returns undefined if the key is already stored
 */
export async function insertKeyIfAbsent(
  pool: Pool,
  key: Key,
  beginning: Beginning & NewLease,
): Promise<KeyLease | undefined> {
  const { rows } = await pool.query<KeyLease>({
    name: 'insert-key',
    text: insertKeyStatement,
    values: [...primaryKeyOf(key), key.fingerprint, ...valuesOf(beginning)],
  });
  return rows[0];
}

const valuesOf = ({ requestId, outbox, envelopes, lease }: Beginning & NewLease) => [
  requestId,
  lease ?? null,
  outbox ? JSON.stringify(outbox.entries) : null,
  outbox?.answer.status ?? null,
  outbox?.answer.body === undefined ? null : JSON.stringify(outbox.answer.body),
  outbox?.answer.headers ? JSON.stringify(outbox.answer.headers) : null,
  envelopes ? JSON.stringify(envelopes) : null,
];

/** Updates by primary key. Only one of several concurrent requests succeeds. */
const replaceKeyStatement = `
  update idempotency_keys
  set request_id = $4,
      ${keyLeases.take('$5')},
      staged = $6, status = $7, body = $8, headers = $9, envelopes = $10,
      created_at = statement_timestamp()
  where ${isKey} and idempotency_keys.created_at = $11::timestamptz
    and idempotency_keys.staged is null and idempotency_keys.status is not null
  returning ${keyLeases.lease} as lease`;

/**
 * Replaces the stored response of a request whose objects were lost by the queue. The request starts again,
 * with a new time.
 *
 * @returns undefined if another request has replaced it
 */
export async function replaceLostKey(
  pool: Pool,
  key: Key,
  { createdAt, ...beginning }: Beginning & NewLease & Pick<FoundKey, 'createdAt'>,
): Promise<KeyLease | undefined> {
  const { rows } = await pool.query<KeyLease>({
    name: 'replace-key',
    text: replaceKeyStatement,
    values: [...primaryKeyOf(key), ...valuesOf(beginning), createdAt],
  });
  return rows[0];
}

/**
 * Updates by primary key. The first of several concurrent responses is stored. The outbox is emptied, because
 * its entries have been enqueued.
 */
const recordAnswerStatement = `
  update idempotency_keys
  set status = $5, body = $6, headers = $7, staged = null, ${keyLeases.clear}
  where ${isKey} and idempotency_keys.request_id = $4::uuid and ${isOpen}
  returning 1`;

/** Stores the response that all requests with this key receive. @returns false if there already is one */
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

/** Updates by primary key. Only one of several concurrent requests gets the lease. */
const takeLeaseStatement = `
  update idempotency_keys
  set ${keyLeases.take('$5')}
  where ${isKey} and idempotency_keys.request_id = $4::uuid and ${isOpen}
    and ${keyLeases.isFree}
  returning ${keyLeases.lease} as lease`;

/**
 * Takes over an unfinished request for `lease` milliseconds. @returns undefined if another process has the lease
 */
export async function takeLease(
  pool: Pool,
  key: Key,
  { requestId, lease }: { requestId: string; lease: number },
): Promise<KeyLease | undefined> {
  const { rows } = await pool.query<KeyLease>({
    name: 'take-lease',
    text: takeLeaseStatement,
    values: [...primaryKeyOf(key), requestId, lease],
  });
  return rows[0];
}

/** Updates by primary key. */
const endLeaseStatement = `
  update idempotency_keys
  set ${keyLeases.release()}
  where ${isKey} and ${keyLeases.isHeld('$4')} and ${isOpen}`;

/**
 * Ends the lease, so that the next request with this key can take over immediately. Has no effect if another process
 * has taken over.
 */
export async function endLease(pool: Pool, key: Key, { lease }: KeyLease): Promise<void> {
  await pool.query({ name: 'end-lease', text: endLeaseStatement, values: [...primaryKeyOf(key), lease] });
}

/** Rows per transaction. A single row may hold a request of 4 MB. */
const SLICE = 1000;

/** Deletes by the index on the time. Skips rows that another process is deleting. */
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

/** Selects owners of old keys from all shards. Needs no order, because every owner has its turn. */
const ownersOfOldStatement = `
  select distinct idempotency_keys.owner_id as id
  from idempotency_keys
  where idempotency_keys.created_at <= now() - ${KEPT}
  limit ${WORKSPACES}`;

async function forgetKeysByOwner(pool: Pool): Promise<void> {
  let owners: { id: string }[];
  do {
    ({ rows: owners } = await pool.query<{ id: string }>(ownersOfOldStatement));
    let deleted = 0;
    for (const { id } of owners) deleted += (await pool.query(forgetKeysOfStatement, [id])).rowCount ?? 0;
    // Another process is deleting the remaining rows.
    if (deleted === 0) return;
  } while (owners.length > 0);
}

/** Deletes keys older than 24 hours, in slices. */
export async function forgetKeys(pool: Pool): Promise<void> {
  if (await isDistributed(pool)) return forgetKeysByOwner(pool);
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(forgetKeysStatement));
  } while (deleted === SLICE);
}

/** Deletes by primary key. */
const forgetRefusedStatement = `
  delete from idempotency_keys
  where ${isKey} and ${keyLeases.isHeld('$4')} and idempotency_keys.status is null`;

/**
 * Deletes the key of a request that was rejected as invalid and had no effect. Has no effect if another process has
 * taken over.
 */
export async function forgetRefused(pool: Pool, key: Key, { lease }: KeyLease): Promise<void> {
  const values = [...primaryKeyOf(key), lease];
  await pool.query({ name: 'forget-refused', text: forgetRefusedStatement, values });
}
