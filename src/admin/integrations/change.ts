import { integrationKeys } from '../../integration-keys.ts';
import { decryptCredentials, encryptCredentials } from '../../integrations/credentials.ts';
import type { Credentials, IntegrationKind } from '../../integrations/definition.ts';
import type { SourceColumn } from '../../integrations/source.ts';
import { SourceError } from '../../integrations/source.ts';
import { deleteIfIdle } from '../../store/integrations/delete-if-idle.ts';
import type { SelectedIntegration } from '../../store/integrations/select-integrations.ts';
import { PENSTOCK } from '../command-name.ts';
import { type Installation, withInstallation } from '../installation.ts';
import { printJson, printRow } from '../output.ts';
import { Refusal } from '../refusal.ts';
import { findIntegration } from './find-integration.ts';
import { longRow, sourceOf } from './rows.ts';
import { namesSecret, readSecret, type SecretOptions } from './secret.ts';
import { trySource } from './try-source.ts';

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
    if (integration.status === 'draft') throw new Refusal(`the integration '${integration.name}' is a draft`);
    await change(
      installation,
      integration,
      { status: 'paused' },
      json,
      `A job that is in progress goes on; ${PENSTOCK} integrations cancel ends it.`,
    );
  });
}

/** A draft becomes active only when its test succeeds. */
export async function resume(nameOrId: string, { workspace, json }: OneOptions): Promise<void> {
  await withInstallation(async (installation) => {
    const integration = await findIntegration(installation.database, nameOrId, workspace);
    if (integration.status === 'draft') await tryStored(integration, installation);
    await change(installation, integration, { status: 'active' }, json);
  });
}

export interface UpdateOptions extends OneOptions, SecretOptions {
  schedule?: string;
  onDemand?: boolean;
  contactEmails?: string;
}

/** Name, source and kind stay: another source is another integration. */
export async function update(nameOrId: string, options: UpdateOptions): Promise<void> {
  const { schedule, onDemand, contactEmails, workspace, json } = options;
  if (schedule !== undefined && onDemand) throw new Refusal('give one of --schedule and --on-demand');
  const nothing = schedule === undefined && !onDemand && contactEmails === undefined && !namesSecret(options);
  if (nothing)
    throw new Refusal(
      'say what to change: --schedule, --on-demand, --contact-emails, --secret-env or --secret-file',
    );
  await withInstallation(async (installation) => {
    const integration = await findIntegration(installation.database, nameOrId, workspace);
    const credentials = namesSecret(options) ? await renewed(integration, options, installation) : undefined;
    await change(
      installation,
      integration,
      {
        ...(schedule !== undefined && { schedule }),
        ...(onDemand && { schedule: null }),
        ...(contactEmails !== undefined && { contactEmails }),
        ...(credentials && { credentials: new Uint8Array(credentials) }),
      },
      json,
    );
  });
}

/** The credentials with another secret, encrypted with the first key, when the source opens with them. */
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
    const { id, name } = await findIntegration(database, nameOrId, workspace);
    if (!(await deleteIfIdle(database.pool, id)))
      throw new Refusal(`a job of '${name}' is in progress; end it with ${PENSTOCK} integrations cancel`);
    if (json) printJson({ integration_id: id, deleted: true });
    else process.stdout.write(`${name} is deleted, with its logs; what it synced stays\n`);
  });
}

async function change(
  { database }: Installation,
  { id }: SelectedIntegration,
  data: Parameters<Installation['database']['prisma']['integration']['update']>[0]['data'],
  json: boolean | undefined,
  note?: string,
): Promise<void> {
  await database.prisma.integration.update({ where: { id }, data: { ...data, updatedAt: new Date() } });
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
