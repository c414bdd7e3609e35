import { integrationKeys } from '../../embedded/address.ts';
import {
  type Credentials,
  decryptCredentials,
  encryptCredentials,
  type IntegrationKind,
  type SourceColumn,
  SourceError,
} from '../../integrations/source.ts';
import { reachOfSources } from '../../platform/reach.ts';
import { audited } from '../../store/audit.ts';
import { deleteIfIdle, type SelectedIntegration } from '../../store/integrations.ts';
import { PENSTOCK, Refusal } from '../command.ts';
import * as audit from '../installation.ts';
import { type Installation, withInstallation } from '../installation.ts';
import { printJson, printRow } from '../output.ts';
import { trySource } from './create.ts';
import { findIntegration, longRow, sourceOf } from './runs.ts';
import { namesSecret, readSecret, type SecretOptions } from './source-options.ts';

interface OneOptions {
  workspace?: string;
  json?: boolean;
}

export async function test(nameOrId: string, { workspace, json }: OneOptions): Promise<void> {
  await withInstallation(async (installation) => {
    const integration = await findIntegration(installation.database, nameOrId, workspace);
    const columns = await tryStored(integration, installation);
    printRow(json, {
      integration_id: integration.id,
      name: integration.name,
      columns: columns.map(({ name }) => name),
    });
  });
}

export async function pause(nameOrId: string, { workspace, json }: OneOptions): Promise<void> {
  await withInstallation(async (installation) => {
    const integration = await findIntegration(installation.database, nameOrId, workspace);
    if (integration.status === 'draft')
      throw new Refusal(`the integration '${integration.name}' is a draft, which has no schedule to pause`);
    await change(installation, integration, {
      action: 'integrations.pause',
      data: { status: 'paused' },
      json,
      note: `A running job continues; to cancel it, run ${PENSTOCK} integrations cancel.`,
    });
  });
}

/** Activates a paused integration, or a draft if the test of its source succeeds. */
export async function resume(nameOrId: string, { workspace, json }: OneOptions): Promise<void> {
  await withInstallation(async (installation) => {
    const integration = await findIntegration(installation.database, nameOrId, workspace);
    if (integration.status === 'draft') await tryStored(integration, installation);
    await change(installation, integration, {
      ...{ action: 'integrations.resume' as const, data: { status: 'active' }, json },
    });
  });
}

interface UpdateOptions extends OneOptions, SecretOptions {
  schedule?: string;
  onDemand?: boolean;
  contactEmails?: string;
}

/** Changes the schedule, contacts or secret. Name, source and kind are fixed: create another integration instead. */
export async function update(nameOrId: string, options: UpdateOptions): Promise<void> {
  const { schedule, onDemand, contactEmails, workspace, json } = options;
  if (schedule !== undefined && onDemand) throw new Refusal('set one of --schedule and --on-demand');
  const nothing = schedule === undefined && !onDemand && contactEmails === undefined && !namesSecret(options);
  if (nothing)
    throw new Refusal(
      'nothing to change: set --schedule, --on-demand, --contact-emails, --secret-env or --secret-file',
    );
  await withInstallation(async (installation) => {
    const integration = await findIntegration(installation.database, nameOrId, workspace);
    const credentials = namesSecret(options) ? await renewed(integration, options, installation) : undefined;
    await change(installation, integration, {
      action: 'integrations.update',
      data: {
        ...(schedule !== undefined && { schedule }),
        ...(onDemand && { schedule: null }),
        ...(contactEmails !== undefined && { contactEmails }),
        ...(credentials && { credentials: new Uint8Array(credentials) }),
      },
      json,
    });
  });
}

/** Replaces the secret of the credentials, tests the source, and encrypts them with the first key. */
async function renewed(
  integration: SelectedIntegration,
  options: SecretOptions,
  installation: Installation,
): Promise<Buffer> {
  const before = await storedCredentials(integration, installation);
  if (!before) throw new Refusal(`the integration '${integration.name}' has no credentials`);
  const secret = await readSecret(options, 'Secret');
  const credentials: Credentials =
    'user' in before ? { ...before, password: secret } : { ...before, secret_access_key: secret };
  await tryWith(integration, credentials, installation);
  return encryptCredentials(credentials, integration.id, integrationKeys(installation.config));
}

export async function remove(nameOrId: string, { workspace, json }: OneOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id, name, ...found } = await findIntegration(database, nameOrId, workspace);
    const isDeleted = await audited(database.pool, audit.commandLine(), async (tx) => {
      const result = await deleteIfIdle(tx, id);
      const subject = { kind: 'integration', id };
      const entry = { subject, workspaceId: found.workspaceId, detail: { name } };
      return { result, entries: result ? [{ action: 'integrations.delete', ...entry }] : [] };
    });
    if (!isDeleted)
      throw new Refusal(`a job of '${name}' is in progress; cancel it with ${PENSTOCK} integrations cancel`);
    if (json) printJson({ integration_id: id, deleted: true });
    else process.stdout.write(`${name} and its logs were deleted; synced data stays\n`);
  });
}

interface Change {
  action: 'integrations.pause' | 'integrations.resume' | 'integrations.update';
  data: Parameters<Installation['database']['prisma']['integration']['update']>[0]['data'];
  /** Whether the row is printed as JSON. */
  json: boolean | undefined;
  /** Printed below the row. */
  note?: string;
}

/** Stores the change and an audit entry, and prints the updated integration. */
async function change(
  { database }: Installation,
  { id, name, workspaceId }: SelectedIntegration,
  { action, data, json, note }: Change,
): Promise<void> {
  await audit.change(database, async (tx) => {
    const result = await tx.integration.update({ where: { id }, data: { ...data, updatedAt: new Date() } });
    // Only the names of the members: values can contain a secret or an address.
    const detail = { name, changed: Object.keys(data) };
    return { result, entries: [{ action, subject: { kind: 'integration', id }, workspaceId, detail }] };
  });
  printRow(json, longRow(await findIntegration(database, id), new Date()), note);
}

async function tryStored(
  integration: SelectedIntegration,
  installation: Installation,
): Promise<SourceColumn[]> {
  return tryWith(integration, await storedCredentials(integration, installation), installation);
}

function tryWith(
  integration: SelectedIntegration,
  credentials: Credentials | undefined,
  { config }: Installation,
): Promise<SourceColumn[]> {
  return trySource({
    kind: integration.kind as IntegrationKind,
    source: sourceOf(integration),
    credentials,
    serviceIdField: config.SERVICE_ID_FIELD,
    scratchBytes: config.SYNC_SCRATCH_BYTES,
    reach: reachOfSources(config),
  });
}

async function storedCredentials(
  { id }: SelectedIntegration,
  { database, config }: Installation,
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
