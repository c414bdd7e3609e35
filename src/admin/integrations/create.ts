import { integrationKeys } from '../../embedded/address.ts';
import type { Prisma } from '../../generated/prisma/client.ts';
import { checkColumns } from '../../integrations/columns.ts';
import { openSource } from '../../integrations/open-source.ts';
import {
  type Credentials,
  encryptCredentials,
  type IntegrationKind,
  isSameSource,
  type SourceColumn,
  type SourceDefinition,
  SourceError,
} from '../../integrations/source.ts';
import { codeOf } from '../../platform/format.ts';
import { newId } from '../../platform/ids.ts';
import { type Reach, reachOfSources } from '../../platform/reach.ts';
import { PENSTOCK, Refusal } from '../command.ts';
import { change, findWorkspace, type Installation, withInstallation } from '../installation.ts';
import { printRow } from '../output.ts';
import { findIntegration, longRow } from './runs.ts';
import { readCredentials, readDefinition, type SourceOptions } from './source-options.ts';

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
export async function trySource({
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

interface CreateOptions extends SourceOptions {
  workspace: string;
  name: string;
  kind: IntegrationKind;
  warehouseType?: string;
  schedule?: string;
  contactEmails: string;
  updateExistingOnly?: boolean;
  draft?: boolean;
  json?: boolean;
}

/** An integration to be created. */
interface NewIntegration extends Omit<CreateOptions, keyof SourceOptions | 'workspace' | 'json'> {
  /** Id of the integration; a new id if absent. */
  id?: string | undefined;
  workspaceId: string;
  source: SourceDefinition;
  credentials: Credentials | undefined;
}

type Made = NewIntegration & { id: string };

export async function create(options: CreateOptions): Promise<void> {
  const source = readDefinition(options);
  await withInstallation(async (installation) => {
    const { database } = installation;
    const { id: workspaceId } = await findWorkspace(database, options.workspace);
    const credentials = await readCredentials(options);
    const { id, failure } = await createIntegration(
      { ...options, workspaceId, source, credentials },
      installation,
    ).catch((error) => {
      if (!(error instanceof UnreadableSource)) throw error;
      throw new Refusal(`${error.message}. Fix the source, or store the integration as a draft with --draft`);
    });
    printRow(
      options.json,
      longRow(await findIntegration(database, id), new Date()),
      failure
        ? `Stored as a draft: ${failure}. To test again and activate it, run ${PENSTOCK} integrations resume.`
        : `Connection and columns are valid. To start a sync now, run ${PENSTOCK} integrations sync ${id}.`,
    );
  });
}

/** A source that the test could not read. */
class UnreadableSource extends Refusal {}

/**
 * Tests the source and stores the integration.
 * @returns its id, and why it is a draft only
 * @throws {UnreadableSource} if a draft is not wanted
 * @throws {Refusal} if the source or the name is taken
 */
export async function createIntegration(
  given: NewIntegration,
  installation: Pick<Installation, 'config' | 'database'>,
): Promise<{ id: string; failure: string | undefined }> {
  const made: Made = { ...given, id: given.id ?? newId() };
  // Encrypts before the test: without INTEGRATION_KEY, the integration could not be stored even if the test succeeds.
  const encrypted =
    made.credentials && encryptCredentials(made.credentials, made.id, integrationKeys(installation.config));
  const failure = await whyNot(made, installation);
  if (failure && !made.draft)
    throw new Refusal(`${failure.message}. Fix the source, or store the integration as a draft with --draft`);
  await store({ ...made, encrypted, status: failure ? 'draft' : 'active' }, installation);
  return { id: made.id, failure: failure?.message };
}

async function whyNot(
  { source, credentials, kind }: Made,
  { config }: Pick<Installation, 'config'>,
): Promise<Refusal | undefined> {
  try {
    await trySource({
      kind,
      source,
      credentials,
      serviceIdField: config.SERVICE_ID_FIELD,
      scratchBytes: config.SYNC_SCRATCH_BYTES,
      reach: reachOfSources(config),
    });
    return undefined;
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

/** An integration after the test of its source; a draft if the test failed. */
type Tested = Made & {
  /** Encrypted credentials for the database. */
  encrypted: Buffer | undefined;
  status: 'active' | 'draft';
};

async function store(
  { id, workspaceId, source, encrypted, status, ...rest }: Tested,
  { database }: Pick<Installation, 'database'>,
): Promise<void> {
  const { name, kind, warehouseType, schedule, contactEmails, updateExistingOnly } = rest;
  await change(database, async (tx) => {
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
  }).catch((error) => {
    if (codeOf(error) !== 'P2002') throw error;
    throw new Refusal(`this workspace already has an integration with the name '${name}'`);
  });
}
