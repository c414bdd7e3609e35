import { Presets, SingleBar } from 'cli-progress';
import type { Command } from 'commander';
import { exportUsers } from '../../export/export-users.ts';
import { ExportError, type Unfinished, type Wanted } from '../../export/progress.ts';
import type { BucketAccess } from '../../integrations/bucket-client.ts';
import { type ObjectStore, ObjectStoreError } from '../../object-store/object-store.ts';
import { accessBySettings, openObjectStore } from '../../object-store/open-object-store.ts';
import { userFields } from '../../operations/export/user-fields.ts';
import { reachOfSources } from '../../platform/reach.ts';
import { type AuditEntry, recordAudit } from '../../store/audit.ts';
import { findSegment } from '../../store/segments.ts';
import { parseId } from '../arguments.ts';
import { commandLine } from '../audit.ts';
import { addVerb, Refusal } from '../command.ts';
import {
  addSecretOptions,
  readSecret,
  requireEndpoint,
  type SecretOptions,
} from '../integrations/source-options.ts';
import { findWorkspace, type Installation, withInstallation } from '../lookup.ts';
import { printRow } from '../output.ts';

interface Options extends SecretOptions {
  workspace: string;
  to: string;
  segment?: string;
  fields?: string[];
  region?: string;
  endpoint?: string;
  accessKeyId?: string;
  json?: boolean;
}

export function addExport(program: Command): void {
  const verb = addVerb(program, 'export', {
    sentence:
      'Write the users of a workspace, or those of a segment, as gzipped NDJSON; run again after a kill, it goes on.',
    example: 'export --workspace default --to ./users --fields external_id,email',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .requiredOption('--to <place>', 'a folder, or s3://bucket/prefix')
    .option('--segment <id>', 'only users whom this segment means', parseId)
    .option('--fields <names>', 'fields of a user, with commas between; all unless told', collectNames)
    .option('--region <region>', 's3: region of the bucket')
    .option('--endpoint <url>', 's3: address of a service other than AWS')
    .option('--access-key-id <id>', 's3: who writes it; unless told, the settings S3_* say how it is reached')
    .action(exportTo);
  addSecretOptions(verb);
}

const collectNames = (text: string) => text.split(',').map((name) => name.trim());

async function exportTo(options: Options): Promise<void> {
  const leaving = new AbortController();
  const leave = () => leaving.abort(new ExportError('stopped'));
  process.once('SIGINT', leave).once('SIGTERM', leave);
  try {
    await withInstallation(async (installation) => {
      const wanted = await wantedOf(options, installation);
      const store = await openStore(options, installation);
      const bar = showUsers();
      try {
        await recordAudit(installation.database.pool, commandLine(), [auditOf(wanted, store)]);
        const { users, users_cut, files, moments } = await exportUsers(wanted, {
          ...{ pool: installation.database.pool, store, leaving: leaving.signal },
          serviceIdField: installation.config.SERVICE_ID_FIELD,
          onBegin: (unfinished) => bar.begin(unfinished, { json: options.json, where: store.where }),
          onProgress: bar.move,
        }).finally(bar.stop);
        printRow(options.json, {
          ...{ to: store.where, users, users_cut, files: files.length, moments: moments.length },
          bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
        });
      } catch (error) {
        throw inWords(error, store);
      } finally {
        store.close();
      }
    });
  } finally {
    process.off('SIGINT', leave).off('SIGTERM', leave);
  }
}

/** Who has taken the users along, where to, and which of their fields. */
function auditOf({ workspace, segment, fields }: Wanted, { where }: ObjectStore): AuditEntry {
  return {
    ...{
      action: 'exports.begin',
      workspaceId: workspace.id,
      subject: { kind: 'workspace', id: workspace.id },
    },
    detail: { to: where, segment_id: segment?.id ?? null, fields },
  };
}

/** @throws {Refusal} when the segment or a field is not there */
async function wantedOf(options: Options, { config, database }: Installation): Promise<Wanted> {
  const { id, name } = await findWorkspace(database, options.workspace);
  const known = Object.keys(userFields(config.SERVICE_ID_FIELD));
  const fields = options.fields ?? known;
  const unknown = fields.find((field) => !known.includes(field));
  if (unknown !== undefined)
    throw new Refusal(`--fields: a user has no field '${unknown}'; there are ${known.join(', ')}`);
  if (options.segment === undefined) return { workspace: { id, name }, segment: null, fields };
  const segment = await findSegment(database.pool, id, options.segment);
  if (!segment) throw new Refusal(`the workspace has no segment ${options.segment} that is not archived`);
  const { definition } = segment;
  return { workspace: { id, name }, segment: { id: segment.id, name: segment.name, definition }, fields };
}

async function openStore(options: Options, { config }: Installation): Promise<ObjectStore> {
  const { region, endpoint, accessKeyId } = options;
  async function accessTo(): Promise<BucketAccess> {
    if (region === undefined && endpoint === undefined && accessKeyId === undefined)
      return accessBySettings(config);
    if (!region || !accessKeyId) throw new Refusal('s3:// needs --region and --access-key-id');
    if (endpoint !== undefined) requireEndpoint(endpoint);
    const secret_access_key = await readSecret(options, `Secret access key of ${accessKeyId}`);
    return { region, endpoint, credentials: { access_key_id: accessKeyId, secret_access_key } };
  }
  try {
    return await openObjectStore(options.to, { reach: reachOfSources(config), accessTo });
  } catch (error) {
    throw error instanceof ObjectStoreError ? new Refusal(`--to: ${error.message}`) : error;
  }
}

/** What is whole stays: a person should know that nothing is lost. */
function inWords(error: unknown, { where }: ObjectStore): unknown {
  if (error instanceof ExportError && error.message !== 'stopped') return new Refusal(error.message);
  if (error instanceof ObjectStoreError || error instanceof ExportError)
    return new Refusal(
      `${error.message}; files of ${where} that are whole stay: run the same command again to go on`,
    );
  return error;
}

/** A line on stderr, drawn only on a terminal: users that were looked at, those that were written, and their rate. */
function showUsers() {
  const bar = new SingleBar(
    {
      format: '{looked} users looked at, {users} written, {rate}/s, {duration_formatted}',
      ...{ stream: process.stderr, hideCursor: true },
    },
    Presets.shades_classic,
  );
  let started = performance.now();
  return {
    begin({ files, users }: Unfinished, { json, where }: { json: boolean | undefined; where: string }): void {
      started = performance.now();
      bar.start(1, 0, { looked: 0, users: 0, rate: 0 });
      if (files.length > 0 && !json)
        process.stderr.write(`${where}: goes on behind ${files.length} files with ${users} users\n`);
    },
    move({ looked, users }: { looked: number; users: number }): void {
      const rate = Math.round((users * 1000) / Math.max(1, performance.now() - started));
      bar.update(0, { looked, users, rate });
    },
    stop: () => bar.stop(),
  };
}
