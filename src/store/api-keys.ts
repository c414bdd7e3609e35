import type { Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { type Actor, auditIn } from './audit.ts';
import { describeApiKey, newApiKey } from './credentials.ts';
import type { Database, Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';

/** All but the hash. */
const columns = {
  id: true,
  workspaceId: true,
  name: true,
  identifier: true,
  permissions: true,
  ipAllowlist: true,
  createdAt: true,
  lastSeenAt: true,
  revokedAt: true,
  workspace: { select: { name: true } },
} satisfies Prisma.ApiKeySelect;

export { columns as apiKeyColumns };

/** A key as people may see it. */
export type ShownApiKey = Prisma.ApiKeyGetPayload<{ select: typeof columns }>;

/** What a key is made of. */
export interface NewApiKey {
  workspaceId: string;
  name: string;
  permissions: readonly string[];
  /** Addresses and subnets; empty: any. */
  ipAllowlist: readonly string[];
  /** One that clients have already; absent: a random one is made. */
  secret?: string;
}

/** Makes a key. @returns it with its secret, which is stored nowhere @throws P2002 when another key has it */
export async function makeApiKey(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { workspaceId, name, permissions, ipAllowlist, secret: given }: NewApiKey,
): Promise<{ secret: string; key: ShownApiKey }> {
  // Of one that somebody else chose nobody knows how much of it can be guessed.
  const { secret, identifier, hash } =
    given === undefined ? newApiKey() : { ...describeApiKey(given), identifier: given.slice(0, 4) };
  const data = {
    ...{ id: newId(), workspaceId, name, identifier, keyHash: new Uint8Array(hash) },
    ...{ permissions: [...permissions], ipAllowlist: [...ipAllowlist] },
  };
  const subject = { kind: 'api_key', id: data.id };
  const detail = { name, permissions: data.permissions, ip_allowlist: data.ipAllowlist };
  const [key] = await prisma.$transaction([
    prisma.apiKey.create({ data, select: columns }),
    auditIn(prisma, actor, [{ action: 'api_keys.create', subject, workspaceId, detail }]),
  ]);
  return { secret, key };
}

/** Revokes a key for good; the time of the first revocation stands. @returns the key as it is then */
export async function revokeApiKey(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  id: string,
): Promise<ShownApiKey> {
  return prisma.$transaction(async (tx) => {
    const { count } = await tx.apiKey.updateMany({
      where: { id, revokedAt: null },
      data: { revokedAt: nowDate() },
    });
    const key = await tx.apiKey.findUniqueOrThrow({ where: { id }, select: columns });
    const { workspaceId, name } = key;
    const entry = { subject: { kind: 'api_key', id }, workspaceId, detail: { name } };
    if (count > 0) await auditIn(tx, actor, [{ action: 'api_keys.revoke', ...entry }]);
    return key;
  });
}

/** Requests of one key that one bucket has counted. */
export interface CountedRequests {
  workspaceId: string;
  apiKeyId: string;
  bucket: string;
  requests: number;
  /** Of these, those that the limit refused. */
  refused: number;
}

/** Upserts by primary key; sorted, so that two edges lock the rows in one order. */
const addKeyUsageStatement = `
  insert into api_key_usage (workspace_id, api_key_id, day, bucket, requests, refused)
  select counted.workspace_id, counted.api_key_id, (now() at time zone 'utc')::date, counted.bucket, counted.requests,
    counted.refused
  from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[])
    as counted (workspace_id, api_key_id, bucket, requests, refused)
  order by counted.workspace_id, counted.api_key_id, counted.bucket
  on conflict (workspace_id, api_key_id, day, bucket) do update
  set requests = api_key_usage.requests + excluded.requests, refused = api_key_usage.refused + excluded.refused`;

/** Adds requests to those of today, in UTC. */
export async function addKeyUsage(pool: Pool, counted: readonly CountedRequests[]): Promise<void> {
  if (counted.length === 0) return;
  await forEachWorkspace(
    pool,
    { given: counted, workspaceOf: ({ workspaceId }) => workspaceId },
    async (some) => {
      await pool.query({
        name: 'add-key-usage',
        text: addKeyUsageStatement,
        values: [
          some.map(({ workspaceId }) => workspaceId),
          some.map(({ apiKeyId }) => apiKeyId),
          some.map(({ bucket }) => bucket),
          some.map(({ requests }) => requests),
          some.map(({ refused }) => refused),
        ],
      });
      return [];
    },
  );
}

/** A day of a key, or of all keys of a workspace. */
export interface KeyUsage {
  /** ISO 8601, in UTC. */
  day: string;
  bucket: string;
  requests: number;
  refused: number;
}

/** Days that are kept, and shown at most. */
const KEPT_DAYS = 400;

/** Along the primary key: a row per day and bucket. */
const readKeyUsageStatement = `
  select api_key_usage.day::text as day, api_key_usage.bucket, api_key_usage.requests, api_key_usage.refused
  from api_key_usage
  where api_key_usage.workspace_id = $1::uuid and api_key_usage.api_key_id = $2::uuid
    and api_key_usage.day > (now() at time zone 'utc')::date - $3::integer
  order by api_key_usage.day desc, api_key_usage.bucket`;

/** Requests of a key by day and bucket, the latest day first. @param days at most, today among them */
export async function readKeyUsage(
  pool: Pool,
  { workspaceId, id }: Pick<ShownApiKey, 'workspaceId' | 'id'>,
  days: number,
): Promise<KeyUsage[]> {
  const { rows } = await pool.query<KeyUsage>(readKeyUsageStatement, [workspaceId, id, days]);
  return rows;
}

// Along the index of days.
const forgetKeyUsageStatement = `
  delete from api_key_usage
  where api_key_usage.day < (now() at time zone 'utc')::date - ${KEPT_DAYS}`;

/** Forgets what keys did more than a year ago. */
export async function forgetKeyUsage(pool: Pool): Promise<void> {
  await pool.query(forgetKeyUsageStatement);
}
