import { randomBytes } from 'node:crypto';
import type { Database } from '../database.ts';

/** Bytes of a key: as many as HMAC-SHA-256 gives. */
const KEY_BYTES = 32;

/** The key that the workspace's links are signed with, if it has made any. */
export async function findLinkKey(
  { prisma }: Database,
  workspaceId: string,
): Promise<Uint8Array | undefined> {
  const row = await prisma.preferenceLinkKey.findUnique({ where: { workspaceId } });
  return row?.secret;
}

/** The same, made now if need be. Of several that are made at once one stays, and all callers get that one. */
export async function requireLinkKey(database: Database, workspaceId: string): Promise<Uint8Array> {
  const found = await findLinkKey(database, workspaceId);
  if (found) return found;
  await database.prisma.preferenceLinkKey.createMany({
    data: [{ workspaceId, secret: randomBytes(KEY_BYTES) }],
    skipDuplicates: true,
  });
  const { secret } = await database.prisma.preferenceLinkKey.findUniqueOrThrow({ where: { workspaceId } });
  return secret;
}
