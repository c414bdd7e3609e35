import { integrationKeys } from '../embedded/address.ts';
import type { Prisma } from '../generated/prisma/client.ts';
import { checkColumns } from '../integrations/columns.ts';
import { openSource } from '../integrations/open-source.ts';
import {
  type Credentials,
  decryptCredentials,
  type IntegrationKind,
  isSameSource,
  type SourceColumn,
  type SourceDefinition,
  SourceError,
} from '../integrations/source.ts';
import { newId } from '../platform/ids.ts';
import { type Reach, reachOfSources } from '../platform/reach.ts';
import type { SelectedIntegration } from '../store/integrations.ts';
import { change } from './change.ts';
import { Refusal, refuseTaken } from './refusal.ts';
import type { Context } from './resource.ts';
import { encryptSecret } from './source.ts';

type Stores = Pick<Context, 'config' | 'database' | 'actor'>;

interface Tried {
  kind: IntegrationKind;
  source: SourceDefinition;
  credentials: Credentials | undefined;
  /** Wire name of the service id. */
  serviceIdField: string;
  /** Maximum bytes of disk for temporary files of the source. */
  scratchBytes: number;
  /** Rule for the addresses to which the source may connect. */
  reach: Reach;
}

/**
 * Opens a source from this machine and validates its columns, as a sync would.
 * @throws {Refusal} with the reason if the source cannot be opened or its columns are invalid
 */
async function trySource({
  kind,
  source,
  credentials,
  serviceIdField,
  scratchBytes,
  reach,
}: Tried): Promise<SourceColumn[]> {
  try {
    const opened = await openSource(source, credentials, { serviceIdField, scratchBytes, reach });
    try {
      const columns = await opened.describe();
      checkColumns(kind, columns, serviceIdField);
      return columns;
    } finally {
      await opened.close();
    }
  } catch (error) {
    if (!(error instanceof SourceError)) throw error;
    throw new Refusal(`the test of the source failed: ${error.message}`);
  }
}

/** An integration to be created. */
interface NewIntegration {
  /** Id of the integration; a new id if absent. */
  id?: string | undefined;
  workspaceId: string;
  name: string;
  kind: IntegrationKind;
  source: SourceDefinition;
  credentials: Credentials | undefined;
  warehouseType?: string | undefined;
  schedule?: string | undefined;
  contactEmails: string;
  updateExistingOnly?: boolean;
  /** Whether the integration is stored as a draft if the test of its source fails. */
  draft?: boolean;
}

type Made = NewIntegration & { id: string };

/**
 * Tests the source and stores the integration.
 * @returns its id, and why it is a draft only
 * @throws {Refusal} if the source cannot be read and a draft is not wanted
 * @throws {Refusal} if the source or the name is taken
 */
export async function createIntegration(
  given: NewIntegration,
  context: Stores,
): Promise<{ id: string; failure: string | undefined }> {
  const made: Made = { ...given, id: given.id ?? newId() };
  // Encrypts before the test: without INTEGRATION_KEY, the integration could not be stored even if the test succeeds.
  const encrypted = made.credentials && encryptSecret(made.credentials, made.id, context.config);
  const failure = await whyNot(made, context);
  if (failure && !made.draft)
    throw new Refusal(
      `${failure.message}. Fix the source, or store the integration as a draft${context.actor.via === 'console' ? '' : ' with --draft'}`,
    );
  await store({ ...made, encrypted, status: failure ? 'draft' : 'active' }, context);
  return { id: made.id, failure: failure?.message };
}

/** Returns the reason for which the source cannot be read; undefined if it can. */
const whyNot = (made: Made, context: Stores): Promise<Refusal | undefined> =>
  tryWith(made, made.credentials, context).then(
    () => undefined,
    (error: unknown) => {
      if (error instanceof Refusal) return error;
      throw error;
    },
  );

/** An integration after the test of its source; a draft if the test failed. */
type Tested = Made & {
  /** Encrypted credentials for the database. */
  encrypted: Buffer | undefined;
  status: 'active' | 'draft';
};

async function store(
  { id, workspaceId, source, encrypted, status, ...rest }: Tested,
  context: Stores,
): Promise<void> {
  const { name, kind, warehouseType, schedule, contactEmails, updateExistingOnly } = rest;
  await change(context, async (tx) => {
    // Serializes creations in a workspace, so that two cannot take the same source. Live traffic does not wait.
    await tx.$executeRaw`select from workspaces where id = ${workspaceId}::uuid for no key update`;
    const others = await tx.integration.findMany({
      where: { workspaceId },
      select: { name: true, source: true },
    });
    const taken = others.find((other) => isSameSource(other.source as unknown as SourceDefinition, source));
    if (taken)
      throw new Refusal(
        `the integration '${taken.name}' already has this source; a table can have only one integration`,
      );
    const made = await tx.integration.create({
      data: {
        id,
        workspaceId,
        name,
        kind,
        status,
        warehouseType: warehouseType ?? source.type,
        source: source as unknown as Prisma.InputJsonObject,
        ...(encrypted && { credentials: new Uint8Array(encrypted) }),
        schedule: schedule ?? null,
        contactEmails,
        updateExistingOnly: updateExistingOnly === true,
      },
    });
    const subject = { kind: 'integration', id };
    const detail = { name, kind, status };
    return { result: made, entries: [{ action: 'integrations.create', subject, workspaceId, detail }] };
  }).catch(refuseTaken(`this workspace already has an integration with the name '${name}'`, 'name'));
}

/** Tests the source of a stored integration with its credentials. @throws {Refusal} with the reason */
export async function tryStored(integration: SelectedIntegration, context: Stores): Promise<SourceColumn[]> {
  return tryWith(integration, await storedCredentials(integration, context), context);
}

/** Replaces the secret of the credentials, tests the source, and encrypts them with the first key. */
export async function renewCredentials(
  integration: SelectedIntegration,
  secret: string,
  context: Stores,
): Promise<Buffer> {
  const before = await storedCredentials(integration, context);
  if (!before) throw new Refusal(`the integration '${integration.name}' has no credentials`, 'secret');
  const credentials: Credentials =
    'user' in before ? { ...before, password: secret } : { ...before, secret_access_key: secret };
  await tryWith(integration, credentials, context);
  return encryptSecret(credentials, integration.id, context.config);
}

function tryWith(
  { kind, source }: { kind: string; source: unknown },
  credentials: Credentials | undefined,
  { config }: Pick<Stores, 'config'>,
): Promise<SourceColumn[]> {
  return trySource({
    kind: kind as IntegrationKind,
    source: source as SourceDefinition,
    credentials,
    serviceIdField: config.SERVICE_ID_FIELD,
    scratchBytes: config.SYNC_SCRATCH_BYTES,
    reach: reachOfSources(config),
  });
}

async function storedCredentials(
  { id }: SelectedIntegration,
  { database, config }: Stores,
): Promise<Credentials | undefined> {
  const { credentials } = await database.prisma.integration.findUniqueOrThrow({
    where: { id },
    select: { credentials: true },
  });
  if (credentials === null) return undefined;
  try {
    return decryptCredentials(credentials, id, integrationKeys(config));
  } catch (error) {
    throw error instanceof SourceError ? new Refusal(error.message) : error;
  }
}
