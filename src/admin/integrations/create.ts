import { v7 } from 'uuid';
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
import { type Reach, reachOfSources } from '../../platform/reach.ts';
import { PENSTOCK, Refusal } from '../command.ts';
import { change, findWorkspace, type Installation, withInstallation } from '../installation.ts';
import { printRow } from '../output.ts';
import { findIntegration, longRow } from './runs.ts';
import { readCredentials, readDefinition, type SourceOptions } from './source-options.ts';

export interface Tried {
  kind: IntegrationKind;
  source: SourceDefinition;
  credentials: Credentials | undefined;
  /** Wire name of the service id. */
  serviceIdField: string;
  /** Bytes of disk that its files may take. */
  scratchBytes: number;
  /** Addresses that may be connected to. */
  reach: Reach;
}

/**
 * Whether a sync could read this source now, from where the command runs: opens it, and looks at its columns.
 * @throws {Refusal} saying what is wrong
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

export interface CreateOptions extends SourceOptions {
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

/** What is made of the options, before anything is stored. */
interface Made {
  id: string;
  workspaceId: string;
  source: SourceDefinition;
  credentials: Credentials | undefined;
}

export async function create(options: CreateOptions): Promise<void> {
  const source = readDefinition(options);
  await withInstallation(async (installation) => {
    const { database, config } = installation;
    const { id: workspaceId } = await findWorkspace(database, options.workspace);
    const credentials = await readCredentials(options);
    const made: Made = { id: v7(), workspaceId, source, credentials };
    // Before the test: without a key there is nothing that a person could do with its result.
    const encrypted = credentials && encryptCredentials(credentials, made.id, integrationKeys(config));
    const failure = await whyNot(made, options, installation);
    if (failure && !options.draft)
      throw new Refusal(
        `${failure.message}. Fix the source, or store the integration as a draft with --draft`,
      );
    await store({ ...made, encrypted, status: failure ? 'draft' : 'active' }, options, installation);
    printRow(
      options.json,
      longRow(await findIntegration(database, made.id), new Date()),
      failure
        ? `Stored as a draft: ${failure.message}. To test again and activate it, run ${PENSTOCK} integrations resume.`
        : `Connection and columns are valid. To start a sync now, run ${PENSTOCK} integrations sync ${made.id}.`,
    );
  });
}

async function whyNot(
  { source, credentials }: Made,
  { kind }: CreateOptions,
  { config }: Installation,
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

/** What has been tested, and failed as a draft at most. */
interface Tested extends Made {
  /** The credentials as they are stored. */
  encrypted: Buffer | undefined;
  status: 'active' | 'draft';
}

async function store(
  { id, workspaceId, source, encrypted, status }: Tested,
  { name, kind, warehouseType, schedule, contactEmails, updateExistingOnly }: CreateOptions,
  { database }: Installation,
): Promise<void> {
  await change(database, async (tx) => {
    // One after the other in a workspace: two could else take the same source. Live traffic does not wait.
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
