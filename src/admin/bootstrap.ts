import { v7 as uuidv7 } from 'uuid';
import type { Config } from '../config.ts';
import type { Database } from '../store/database.ts';
import { describeApiKey, newApiKey } from './api-keys.ts';
import { permissions } from './permissions.ts';

/** The workspace that a new installation starts with. */
const FIRST_WORKSPACE = 'default';

/** Any constant will do, as long as no other lock has it. */
const BOOTSTRAP_LOCK = 7_365_747;

/**
 * Where there is no workspace yet, makes `default` with one API key that may do everything:
 * `BOOTSTRAP_API_KEY`, or a random one. Safe to race: the workspace and its key are made together, once.
 * @returns the key when it was made now; its secret cannot be had again.
 */
export async function bootstrap(
  { prisma }: Database,
  config: Pick<Config, 'BOOTSTRAP_API_KEY'>,
): Promise<{ apiKey?: string }> {
  return prisma.$transaction(async (tx) => {
    await tx.$executeRaw`select pg_advisory_xact_lock(${BOOTSTRAP_LOCK})`;
    if (await tx.workspace.findFirst()) return {};
    const key = config.BOOTSTRAP_API_KEY ? describeApiKey(config.BOOTSTRAP_API_KEY) : newApiKey();
    await tx.workspace.create({
      data: {
        id: uuidv7(),
        name: FIRST_WORKSPACE,
        apiKeys: {
          create: {
            id: uuidv7(),
            name: 'bootstrap',
            identifier: key.identifier,
            keyHash: new Uint8Array(key.hash),
            permissions: [...permissions],
          },
        },
      },
    });
    return { apiKey: key.secret };
  });
}
