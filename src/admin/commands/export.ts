import { type Command, InvalidArgumentError, Option } from 'commander';
import { exportRows, type Reached } from '../../export/export-rows.ts';
import {
  ExportError,
  type Format,
  type Unfinished,
  type Wanted,
  type What,
  whats,
} from '../../export/progress.ts';
import type { BucketAccess } from '../../integrations/bucket-client.ts';
import { type ObjectStore, ObjectStoreError, requireKey } from '../../object-store/object-store.ts';
import { accessBySettings, openObjectStore } from '../../object-store/open-object-store.ts';
import { ParquetError } from '../../object-store/parquet.ts';
import { userFields } from '../../operations/export/user-fields.ts';
import { codeOf, describeFailure } from '../../platform/format.ts';
import { reachOfSources } from '../../platform/reach.ts';
import { parseTime, toIso } from '../../profile/time.ts';
import { requireEndpoint } from '../../resources/source.ts';
import { type AuditEntry, recordAudit } from '../../store/audit.ts';
import { findSegment } from '../../store/segments.ts';
import { addVerb, parseId, Refusal } from '../command.ts';
import { commandLine, findWorkspace, type Installation, withInstallation } from '../installation.ts';
import { printRow } from '../output.ts';
import { showRows } from '../progress.ts';
import { addSecretOptions, readKeyPair, type SecretOptions } from '../secret-options.ts';

interface Options extends TargetOptions {
  workspace: string;
  what: What;
  segment?: string;
  fields?: string[];
  from?: string;
  until?: string;
  json?: boolean;
}

export function addExport(program: Command): void {
  const verb = addVerb(program, 'export', {
    sentence:
      'Write users, events, purchases or subscription states of a workspace as NDJSON or Parquet. Run the same command again to resume an interrupted export.',
    example: 'export --workspace default --what events --from 2026-01-01 --to ./events',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .requiredOption(
      '--to <place>',
      'target: a folder, s3://bucket/prefix, or one file (.ndjson, .ndjson.gz, .parquet)',
    )
    .addOption(new Option('--what <what>', 'data to export').choices(whats).default('profiles'))
    .addOption(new Option('--format <format>', 'file format (default: ndjson)').choices(formats))
    .option('--no-gzip', 'ndjson: do not compress the files')
    .option('--segment <id>', 'only users in this segment', parseId)
    .option(
      '--fields <names>',
      'profiles: fields to export, separated by commas (default: all)',
      collectNames,
    )
    .option('--from <time>', 'events, purchases: only from this time on, in ISO 8601', parseInstant)
    .option('--until <time>', 'events, purchases: only before this time, in ISO 8601', parseInstant)
    .option('--region <region>', 's3: region of the bucket')
    .option('--endpoint <url>', 's3: address of an S3-compatible service (default: AWS)')
    .option('--access-key-id <id>', 's3: access key id (default: the settings S3_*)')
    .action(exportTo);
  addSecretOptions(verb);
}

const collectNames = (text: string) => text.split(',').map((name) => name.trim());

function parseInstant(text: string): string {
  const time = parseTime(text);
  if (time === undefined)
    throw new InvalidArgumentError('A time must be written as 2026-01-31T12:00:00Z or 2026-01-31.');
  return toIso(time);
}

async function exportTo(options: Options): Promise<void> {
  const leaving = new AbortController();
  const leave = () => leaving.abort(new ExportError('stopped'));
  process.once('SIGINT', leave).once('SIGTERM', leave);
  try {
    await withInstallation(async (installation) => {
      const wanted = await wantedOf(options, installation);
      const target = await openTarget(options, installation);
      try {
        await write({ ...wanted, format: target.format }, target, {
          ...{ installation, options, leaving: leaving.signal },
        });
      } finally {
        target.store.close();
      }
    });
  } finally {
    process.off('SIGINT', leave).off('SIGTERM', leave);
  }
}

interface Job {
  installation: Installation;
  options: Options;
  leaving: AbortSignal;
}

async function write(wanted: Wanted, { store, file }: Target, job: Job): Promise<void> {
  const { installation, options, leaving } = job;
  const { pool } = installation.database;
  const where = file === undefined ? store.where : `${store.where.replace(/\/$/, '')}/${file}`;
  const bar = createBar(where, options);
  await recordAudit(pool, commandLine(), [auditOf(wanted, where)]);
  const exported = await exportRows(wanted, {
    ...{ pool, store, file, leaving },
    serviceIdField: installation.config.SERVICE_ID_FIELD,
    onBegin: bar.begin,
    onProgress: bar.move,
  })
    .finally(bar.stop)
    .catch((error) => {
      throw inWords(error, where, file !== undefined);
    });
  const { what, rows, rows_cut, files, moments, archived_months } = exported;
  printRow(
    options.json,
    {
      ...{ to: where, what, rows, rows_cut, files: files.length, moments: Math.max(1, moments.length) },
      ...{ bytes: files.reduce((sum, { bytes }) => sum + bytes, 0), archived_months },
    },
    archived_months.length > 0
      ? `Rows of ${archived_months.join(', ')} are in the archive and not in this export.`
      : undefined,
  );
}

/** Builds the audit entry of an export: what was exported, to which target, with which filters. */
function auditOf({ what, workspace, segment, fields, from, until }: Wanted, to: string): AuditEntry {
  return {
    ...{
      action: 'exports.begin',
      workspaceId: workspace.id,
      subject: { kind: 'workspace', id: workspace.id },
    },
    detail: { what, to, segment_id: segment?.id ?? null, fields, from, until },
  };
}

/** @throws {Refusal} if the segment or a field does not exist, or an option does not apply to this kind of export */
async function wantedOf(options: Options, installation: Installation): Promise<Omit<Wanted, 'format'>> {
  const { config, database } = installation;
  const { what, from = null, until = null } = options;
  if (what !== 'profiles' && options.fields) throw new Refusal(`--fields needs --what profiles`);
  if (what !== 'events' && what !== 'purchases' && (from ?? until) !== null)
    throw new Refusal('--from and --until require --what events or --what purchases');
  if (from !== null && until !== null && from >= until)
    throw new Refusal(`--until ${until} must be later than --from ${from}`);
  const { id, name } = await findWorkspace(database, options.workspace);
  const supported = Object.keys(userFields(config.SERVICE_ID_FIELD));
  const fields = what === 'profiles' ? (options.fields ?? supported) : null;
  const unknown = fields?.find((field) => !supported.includes(field));
  if (unknown !== undefined)
    throw new Refusal(`--fields: unknown field '${unknown}'; known fields are ${supported.join(', ')}`);
  const common = { what, workspace: { id, name }, fields, from, until };
  if (options.segment === undefined) return { ...common, segment: null };
  const segment = await findSegment(database.pool, id, options.segment);
  if (!segment) throw new Refusal(`the workspace has no active segment ${options.segment}`);
  const { definition } = segment;
  return { ...common, segment: { id: segment.id, name: segment.name, definition } };
}

/** Adds to an error that complete files are kept, and how to resume the export. */
function inWords(error: unknown, where: string, isOneFile: boolean): unknown {
  const goOn = isOneFile
    ? 'no file was written; run the same command again to start over'
    : `complete files in ${where} are kept; run the same command again to resume`;
  if (error instanceof ExportError && error.message !== 'stopped') return new Refusal(error.message);
  if (error instanceof ObjectStoreError || error instanceof ExportError || error instanceof ParquetError)
    return new Refusal(`${error.message}; ${goOn}`);
  // Errors with a code come from Postgres: a lost connection, or a replica that had to cancel the snapshot.
  const code = codeOf(error);
  return code === undefined ? error : new Refusal(`${describeFailure(error)} (${code}); ${goOn}`);
}

/** Creates a progress bar on stderr, drawn only on a terminal: rows read, estimated total, and rate. */
function createBar(where: string, { json }: Options) {
  let [total, looked] = [1, 0];
  let bar: ReturnType<typeof showRows> | undefined;
  return {
    begin({ files, rows }: Unfinished, estimated: number): void {
      total = Math.max(1, estimated);
      bar = showRows({ name: where, length: total, read: () => Math.min(looked, total) });
      bar.begin(rows);
      if (files.length > 0 && !json)
        process.stderr.write(`${where}: resuming after ${files.length} files with ${rows} rows\n`);
    },
    move(reached: Reached): void {
      looked = reached.looked;
      bar?.move(reached.rows);
    },
    stop: () => bar?.stop(),
  };
}

const formats = ['ndjson', 'parquet'] as const;

interface TargetOptions extends SecretOptions {
  to: string;
  format?: (typeof formats)[number];
  /** False: `--no-gzip`. */
  gzip: boolean;
  region?: string;
  endpoint?: string;
  accessKeyId?: string;
}

/** Target and format of the exported files. */
interface Target {
  store: ObjectStore;
  /** Name of the single file to write; undefined: as many files as needed. */
  file: string | undefined;
  format: Format;
}

const ENDING = /\.(ndjson|ndjson\.gz|parquet)$/;

/**
 * Opens the target of `--to`. A path that ends in .ndjson, .ndjson.gz or .parquet is one file; any other path is a
 * folder or, in a bucket, a key prefix.
 * @throws {Refusal} if the target and the options contradict each other, or the target is invalid
 */
async function openTarget(options: TargetOptions, installation: Installation): Promise<Target> {
  const ending = ENDING.exec(options.to)?.[1] as Format | undefined;
  if (!ending)
    return { store: await openStore(options, installation), file: undefined, format: formatOf(options) };
  const at = options.to.lastIndexOf('/') + 1;
  const [folder, file] = [options.to.slice(0, at) || '.', options.to.slice(at)];
  if (options.format !== undefined && !ending.startsWith(options.format))
    throw new Refusal(`--to: ${file} ends in .${ending}, but --format is ${options.format}`);
  if (!options.gzip && ending === 'ndjson.gz')
    throw new Refusal(`--to: ${file} ends in .gz, but --no-gzip is set`);
  try {
    requireKey(file);
  } catch (error) {
    throw targetInWords(error);
  }
  return { store: await openStore({ ...options, to: folder }, installation), file, format: ending };
}

const formatOf = ({ format, gzip }: TargetOptions): Format =>
  format === 'parquet' ? 'parquet' : gzip ? 'ndjson.gz' : 'ndjson';

async function openStore(options: TargetOptions, { config }: Installation): Promise<ObjectStore> {
  const { region, endpoint, accessKeyId } = options;
  async function accessTo(): Promise<BucketAccess> {
    if (region === undefined && endpoint === undefined && accessKeyId === undefined)
      return accessBySettings(config);
    if (!region || !accessKeyId) throw new Refusal('s3:// needs --region and --access-key-id');
    if (endpoint !== undefined) requireEndpoint(endpoint);
    return { region, endpoint, credentials: await readKeyPair(options, accessKeyId) };
  }
  try {
    return await openObjectStore(options.to, { reach: reachOfSources(config), accessTo });
  } catch (error) {
    throw targetInWords(error);
  }
}

const targetInWords = (error: unknown) =>
  error instanceof ObjectStoreError ? new Refusal(`--to: ${error.message}`) : error;
