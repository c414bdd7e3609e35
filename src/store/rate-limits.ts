import { type Actor, type AuditEntry, auditIn } from './audit.ts';
import type { Database } from './database.ts';

/** What a workspace may ask of one bucket, in place of what every workspace starts with. */
export interface RateLimitOverride {
  bucket: string;
  requests: number;
  windowSeconds: number;
}

/** Gives a workspace a limit of its own. */
export async function setRateLimit(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { workspaceId, bucket, requests, windowSeconds }: RateLimitOverride & { workspaceId: string },
): Promise<void> {
  const detail = { requests, window_seconds: windowSeconds };
  const entry = { subject: { kind: 'rate_limit', id: bucket }, workspaceId, detail };
  await prisma.$transaction([
    prisma.rateLimit.upsert({
      where: { workspaceId_bucket: { workspaceId, bucket } },
      create: { workspaceId, bucket, requests, windowSeconds },
      update: { requests, windowSeconds },
    }),
    auditIn(prisma, actor, [{ action: 'rate_limits.set', ...entry }]),
  ]);
}

/** Takes limits back that a workspace was given: of one bucket, or of all. @returns how many there were */
export async function resetRateLimits(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { workspaceId, bucket }: { workspaceId: string; bucket?: string | undefined },
): Promise<number> {
  const where = { workspaceId, ...(bucket !== undefined && { bucket }) };
  return prisma.$transaction(async (tx) => {
    const gone = await tx.rateLimit.findMany({ where });
    await tx.rateLimit.deleteMany({ where });
    const entries = gone.map((one): AuditEntry => {
      const subject = { kind: 'rate_limit', id: one.bucket };
      return { action: 'rate_limits.reset', subject, workspaceId };
    });
    if (entries.length > 0) await auditIn(tx, actor, entries);
    return gone.length;
  });
}
