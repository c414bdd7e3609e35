import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import { integrationKeys } from '../../integration-keys.ts';
import { encryptCredentials } from '../../integrations/credentials.ts';
import type { Credentials, IntegrationKind, SourceDefinition } from '../../integrations/definition.ts';
import { isSameSource } from '../../integrations/same-source.ts';
import { PENSTOCK } from '../command-name.ts';
import { findWorkspace } from '../find-workspace.ts';
import { type Installation, withInstallation } from '../installation.ts';
import { printRow } from '../output.ts';
import { codeOf, Refusal } from '../refusal.ts';
import { findIntegration } from './find-integration.ts';
import { longRow } from './rows.ts';
import { readCredentials, readDefinition, type SourceOptions } from './source-options.ts';
import { trySource } from './try-source.ts';

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
    const stored = credentials && encryptCredentials(credentials, made.id, integrationKeys(config));
    const failure = await whyNot(made, options, installation);
    if (failure && !options.draft)
      throw new Refusal(`${failure.message}; mend it, or keep the integration as a draft with --draft`);
    await store(made, stored, failure ? 'draft' : 'active', options, installation);
    printRow(
      options.json,
      longRow(await findIntegration(database, made.id), new Date()),
      failure
        ? `It is a draft: ${failure.message}. ${PENSTOCK} integrations resume tests again and activates it.`
        : `Columns and connection are in order. ${PENSTOCK} integrations sync ${made.id} starts a sync now.`,
    );
  });
}

async function whyNot(
  { source, credentials }: Made,
  { kind }: CreateOptions,
  { config }: Installation,
): Promise<Refusal | undefined> {
  try {
    await trySource({ kind, source, credentials, serviceIdField: config.SERVICE_ID_FIELD });
    return undefined;
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

async function store(
  { id, workspaceId, source }: Made,
  credentials: Buffer | undefined,
  status: 'active' | 'draft',
  { name, kind, warehouseType, schedule, contactEmails, updateExistingOnly }: CreateOptions,
  { database }: Installation,
): Promise<void> {
  await database.prisma
    .$transaction(async (tx) => {
      // One after the other in a workspace: two could else take the same source. Live traffic does not wait.
      await tx.$executeRaw`select from workspaces where id = ${workspaceId}::uuid for no key update`;
      const others = await tx.integration.findMany({
        where: { workspaceId },
        select: { name: true, source: true },
      });
      const taken = others.find((other) => isSameSource(other.source as unknown as SourceDefinition, source));
      if (taken)
        throw new Refusal(
          `the integration '${taken.name}' has this source; each table serves one integration`,
        );
      await tx.integration.create({
        data: {
          id,
          workspaceId,
          name,
          kind,
          status,
          warehouseType: warehouseType ?? source.type,
          source: source as unknown as Prisma.InputJsonObject,
          ...(credentials && { credentials: new Uint8Array(credentials) }),
          schedule: schedule ?? null,
          contactEmails,
          updateExistingOnly: updateExistingOnly === true,
        },
      });
    })
    .catch((error) => {
      if (codeOf(error) !== 'P2002') throw error;
      throw new Refusal(`an integration of this workspace is named '${name}' already`);
    });
}
