import { v7 as uuidv7 } from 'uuid';
import type { Config } from '../platform/config.ts';
import { permissions } from '../schemas/api-permissions.ts';
import { type Actor, auditIn } from '../store/audit.ts';
import { describeApiKey, describeScimToken, newApiKey } from '../store/credentials.ts';
import type { Database } from '../store/database.ts';

/** The workspace that a new installation starts with. */
const FIRST_WORKSPACE = 'default';

/** The company that the tables come with. */
const FIRST_COMPANY = 'default';

/** Settings make these, and nobody in person. */
const FIRST_START: Actor = { kind: 'nobody', name: 'first start', via: 'command_line' };

/** Any constant will do, as long as no other lock has it. */
const BOOTSTRAP_LOCK = 7_365_747;

/**
 * Where there is no workspace yet, makes `default` with one API key that may do everything: `BOOTSTRAP_API_KEY`, or a
 * random one. It belongs to the company `default`, which the tables come with. The first SCIM token of that is
 * `BOOTSTRAP_SCIM_TOKEN`. Safe to race: the workspace and its key are made together, once.
 * @returns the key when it was made now; its secret cannot be had again.
 */
export async function bootstrap(
  { prisma }: Database,
  config: Pick<Config, 'BOOTSTRAP_API_KEY'> &
    Partial<Pick<Config, 'BOOTSTRAP_SCIM_TOKEN' | 'BOOTSTRAP_SCIM_ORIGIN'>>,
): Promise<{ apiKey?: string }> {
  return prisma.$transaction(async (tx) => {
    await tx.$executeRaw`select pg_advisory_xact_lock(${BOOTSTRAP_LOCK})`;
    await setFirstScimToken(tx, config);
    if (await tx.workspace.findFirst()) return {};
    const key = config.BOOTSTRAP_API_KEY ? describeApiKey(config.BOOTSTRAP_API_KEY) : newApiKey();
    const [workspaceId, keyId] = [uuidv7(), uuidv7()];
    await tx.workspace.create({
      data: {
        id: workspaceId,
        name: FIRST_WORKSPACE,
        apiKeys: {
          create: {
            id: keyId,
            name: 'bootstrap',
            identifier: key.identifier,
            keyHash: new Uint8Array(key.hash),
            permissions: [...permissions],
          },
        },
      },
    });
    const detail = { name: FIRST_WORKSPACE };
    await auditIn(tx, FIRST_START, [
      { action: 'workspaces.create', subject: { kind: 'workspace', id: workspaceId }, workspaceId, detail },
      {
        ...{ action: 'api_keys.create', subject: { kind: 'api_key', id: keyId }, workspaceId },
        detail: { name: 'bootstrap', permissions: [...permissions], ip_allowlist: [] },
      },
    ]);
    return { apiKey: key.secret };
  });
}

type Transaction = Parameters<Parameters<Database['prisma']['$transaction']>[0]>[0];

/** A token that was revoked stays the first one: nothing brings it back. */
async function setFirstScimToken(
  tx: Transaction,
  {
    BOOTSTRAP_SCIM_TOKEN: secret,
    BOOTSTRAP_SCIM_ORIGIN: origin,
  }: Partial<Pick<Config, 'BOOTSTRAP_SCIM_TOKEN' | 'BOOTSTRAP_SCIM_ORIGIN'>>,
): Promise<void> {
  if (!secret || !origin) return;
  const company = await tx.company.findUnique({ where: { name: FIRST_COMPANY } });
  if (company === null || (await tx.scimToken.findFirst({ where: { companyId: company.id } }))) return;
  const { identifier, hash } = describeScimToken(secret);
  const id = uuidv7();
  await tx.scimToken.create({
    data: {
      id,
      companyId: company.id,
      name: 'bootstrap',
      identifier,
      tokenHash: new Uint8Array(hash),
      origin,
    },
  });
  const subject = { kind: 'scim_token', id };
  const detail = { name: 'bootstrap', origin };
  await auditIn(tx, FIRST_START, [{ action: 'scim_tokens.issue', subject, companyId: company.id, detail }]);
}
