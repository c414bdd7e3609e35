import type { Prisma } from '../generated/prisma/client.ts';
import { now, nowDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { type Actor, auditIn } from './audit.ts';
import { describeApiKey, newApiKey } from './credentials.ts';
import type { Database, Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

/** All columns except the hash. */
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

/** An API key as shown to users. */
export type ShownApiKey = Prisma.ApiKeyGetPayload<{ select: typeof columns }>;

/** Properties of a new key. */
interface NewApiKey {
  workspaceId: string;
  name: string;
  permissions: readonly string[];
  /** Allowed addresses and subnets; every address is allowed if empty. */
  ipAllowlist: readonly string[];
  /** Secret that clients already use; a random secret is created if absent. */
  secret?: string;
}

/**
 * Creates a key.
 *
 * @returns the key with its secret, which is not stored
 *
 * @throws P2002 if another key has the secret
 */
export async function createApiKey(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { workspaceId, name, permissions, ipAllowlist, secret: chosen }: NewApiKey,
): Promise<{ secret: string; key: ShownApiKey }> {
  // It is unknown how much of a chosen secret can be guessed, so less of it is shown.
  const { secret, identifier, hash } =
    chosen === undefined ? newApiKey() : { ...describeApiKey(chosen), identifier: chosen.slice(0, 4) };
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

/** Revokes a key permanently. The time of the first revocation is kept. @returns the revoked key */
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
  /** Number of these requests that the limit rejected. */
  refused: number;
}

/** Upserts in primary key order, so that two web processes lock the rows in the same order. */
const addKeyUsageStatement = withCitusForm(`
  insert into api_key_usage (workspace_id, api_key_id, day, bucket, requests, refused)
  select counted.workspace_id, counted.api_key_id, (now() at time zone 'utc')::date, counted.bucket, counted.requests,
    counted.refused
  from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[])
    as counted (workspace_id, api_key_id, bucket, requests, refused)
  order by counted.workspace_id, counted.api_key_id, counted.bucket
  on conflict (workspace_id, api_key_id, day, bucket) do update
  set requests = api_key_usage.requests + excluded.requests, refused = api_key_usage.refused + excluded.refused`);

/** Adds requests to today's counts, in UTC. */
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

/** Usage of a key, or of all keys of a workspace, on one day. */
export interface KeyUsage {
  /** ISO 8601, in UTC. */
  day: string;
  bucket: string;
  requests: number;
  refused: number;
}

/** Days for which usage is kept and can be shown. */
const KEPT_DAYS = 400;

const DAY_MS = 86_400_000;

/**
 * Returns the requests of a key by day and bucket, latest day first.
 *
 * @param days maximum number of days, including today
 */
export async function readKeyUsage(
  { prisma }: Pick<Database, 'prisma'>,
  { workspaceId, id }: Pick<ShownApiKey, 'workspaceId' | 'id'>,
  days: number,
): Promise<KeyUsage[]> {
  const rows = await prisma.apiKeyUsage.findMany({
    where: { workspaceId, apiKeyId: id, day: { gt: new Date(now() - days * DAY_MS) } },
    orderBy: [{ day: 'desc' }, { bucket: 'asc' }],
  });
  return rows.map(({ day, bucket, requests, refused }) => ({
    ...{ day: day.toISOString().slice(0, 10), bucket },
    ...{ requests: Number(requests), refused: Number(refused) },
  }));
}

// Deletes by the index of days.
const forgetKeyUsageStatement = `
  delete from api_key_usage
  where api_key_usage.day < (now() at time zone 'utc')::date - ${KEPT_DAYS}`;

/** Deletes usage older than KEPT_DAYS. */
export async function forgetKeyUsage(pool: Pool): Promise<void> {
  await pool.query(forgetKeyUsageStatement);
}
