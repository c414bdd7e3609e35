import path from 'node:path';
import { type Command, CommanderError, Option } from 'commander';
import type { Wanted } from '../../import/import-file.ts';
import { type ImportType, type Mapped, parseMap, types } from '../../import/mapping.ts';
import type { Input } from '../../import/open-input.ts';
import { namesMany, type Opening, openInputs } from '../../import/open-inputs.ts';
import { type Layout, layouts } from '../../import/reader.ts';
import { isSameFile, usualPath } from '../../import/refused-rows.ts';
import type { RowOptions } from '../../import/rows.ts';
import { ImportError, NoRows } from '../../import/unpack.ts';
import { type VendorName, vendorFormats, vendorNames } from '../../import/vendor.ts';
import type { BucketAccess } from '../../integrations/bucket-client.ts';
import { reachOfSources } from '../../platform/reach.ts';
import { requireEndpoint } from '../../resources/source.ts';
import { addVerb, Refusal } from '../command.ts';
import { findWorkspace, type Installation, withInstallation } from '../installation.ts';
import { printPage, type Row } from '../output.ts';
import { showRows, showSteps } from '../progress.ts';
import type { QueueContext } from '../queue.ts';
import { addSecretOptions, readKeyPair, type SecretOptions } from '../secret-options.ts';
import { addImportRecords, columnsOf, describe, warningsOf } from './import-records.ts';

/** Number of rows that a dry run shows. */
const SHOWN = 5;

/** Exit code of a completed import with refused rows. */
const SOME_REFUSED = 2;

interface Options extends SecretOptions {
  workspace?: string;
  type?: ImportType;
  format?: Layout | VendorName;
  map?: Mapped[];
  ignore?: string[];
  delimiter?: string;
  updateExistingOnly?: boolean;
  name?: string;
  rejects?: string;
  region?: string;
  endpoint?: string;
  accessKeyId?: string;
  force?: boolean;
  dryRun?: boolean;
  json?: boolean;
}

export function addImport(program: Command): void {
  const verb = addVerb(program, 'import', {
    sentence:
      'Import files of users, events, purchases or subscription states, in order with live requests. Each row takes effect once, however often you run the command.',
    example: 'import users.csv.gz --workspace default --type users --map external_id=Customer --dry-run',
  })
    .argument(
      '<files...>',
      'files, folders, objects of a bucket (s3://bucket/key), or all objects below s3://bucket/folder/',
    )
    .option('--workspace <workspace>', 'name or id of the workspace (required)')
    .addOption(
      new Option('--type <type>', 'type of the rows, if the format does not define it').choices(types),
    )
    .addOption(
      new Option('--format <format>', 'format of the rows (default: by the file name extension)').choices([
        ...layouts,
        ...vendorNames,
      ]),
    )
    .option('--map <field=column,...>', 'fields and the columns that they are read from', collectMap)
    .option('--ignore <columns>', 'columns to ignore, separated by commas', collectNames)
    .option('--delimiter <character>', 'separator of the values in a CSV file')
    .option('--update-existing-only', 'do not create users that do not exist')
    .option('--name <name>', "identify the import by this name instead of the file's checksum")
    .option('--rejects <file>', 'file for refused rows (default: next to the imported file)')
    .option('--force', 'overwrite an existing file of refused rows')
    .option('--region <region>', 's3: region of the bucket')
    .option('--endpoint <url>', 's3: address of an S3-compatible service (default: AWS)')
    .option('--access-key-id <id>', 's3: access key id')
    .option('--dry-run', `show the result of the first ${SHOWN} rows, validate all rows, and write nothing`)
    .action(importFiles);
  addSecretOptions(verb);
  addImportRecords(verb);
}

function collectMap(text: string, before: Mapped[] = []): Mapped[] {
  return [...before, ...parseMap(text)];
}

function collectNames(text: string, before: string[] = []): string[] {
  return [...before, ...text.split(',').map((name) => name.trim())];
}

async function importFiles(files: string[], options: Options): Promise<void> {
  const { json, rejects, name, workspace } = options;
  if (workspace === undefined) throw new Refusal('--workspace is required: the workspace of the users');
  // Loaded only by the commands that use the queue, for a fast start of the others.
  const { withQueue } = await import('../queue.ts');
  const isMany = files.length > 1 || files.some(namesMany);
  if (isMany && (rejects !== undefined || name !== undefined))
    throw new Refusal('--name and --rejects need exactly one file');
  const leaving = new AbortController();
  const leave = () => leaving.abort();
  process.once('SIGINT', leave).once('SIGTERM', leave);
  try {
    await withInstallation(async (installation) => {
      const { id: workspaceId } = await findWorkspace(installation.database, workspace);
      const results: Row[] = [];
      async function each(queue?: QueueContext): Promise<void> {
        const job = { installation, workspaceId, options, leaving: leaving.signal, queue };
        try {
          for (const file of files)
            for await (const input of openInputs(file, openingOf(job)))
              results.push(await (isMany ? oneOfMany(input, job) : one(input, job)));
        } catch (error) {
          throw inWords(error, results);
        }
      }
      await (options.dryRun ? each() : withQueue(installation, each));
      printPage(json, 'imports', { rows: results, next: null });
      if (results.some(({ state }) => state === NO_ROWS)) throw new CommanderError(1, 'penstock.import', '');
      if (results.some(({ refused }) => Number(refused) > 0))
        throw new CommanderError(SOME_REFUSED, 'penstock.import', '');
    });
  } finally {
    process.off('SIGINT', leave).off('SIGTERM', leave);
  }
}

/** Adds to an error how many files were imported before the failure. */
function inWords(error: unknown, done: Row[]): unknown {
  if (!(error instanceof ImportError)) return error;
  const before = done.length > 0 ? ` (${done.length} files before it were imported)` : '';
  return new Refusal(`${error.message}${before}`);
}

interface Job {
  installation: Installation;
  workspaceId: string;
  options: Options;
  leaving: AbortSignal;
  /** Undefined in a dry run, which enqueues no jobs. */
  queue: QueueContext | undefined;
}

async function one(input: Input, job: Job): Promise<Row> {
  const wanted = wantedOf(input, job);
  return job.queue ? bringIn(wanted, job, job.queue) : tryOut(wanted, job);
}

/** State of an empty file if several files are imported. Programs that export many files leave some of them empty. */
const NO_ROWS = 'no rows';

async function oneOfMany(input: Input, job: Job): Promise<Row> {
  try {
    return await one(input, job);
  } catch (error) {
    if (!(error instanceof NoRows)) throw error;
    process.stderr.write(`${error.message}\n`);
    const none = { rows: 0, accepted: 0, refused: 0, warned: 0, rejects: null };
    return { file: input.name, state: NO_ROWS, ...none };
  }
}

function openingOf({ installation: { config }, options, leaving }: Omit<Job, 'queue'>): Opening {
  const { region, endpoint, accessKeyId } = options;
  let credentials: BucketAccess['credentials'] | undefined;
  return {
    scratchBytes: config.SYNC_SCRATCH_BYTES,
    reach: reachOfSources(config),
    watcher: showSteps(),
    leaving,
    async accessTo() {
      if (!region || !accessKeyId) throw new Refusal('s3:// needs --region and --access-key-id');
      if (endpoint !== undefined) requireEndpoint(endpoint);
      credentials ??= await readKeyPair(options, accessKeyId);
      return { region, endpoint, credentials };
    },
  };
}

function wantedOf(input: Input, { workspaceId, options, installation }: Job): Wanted {
  const {
    map = [],
    ignore = [],
    delimiter,
    updateExistingOnly = false,
    name,
    rejects,
    dryRun,
    force,
  } = options;
  const refusedPath = rejects ?? usualPath(input, dryRun === true);
  if (isSameFile(refusedPath, input.path))
    throw new Refusal(`--rejects is the imported file ${input.name} itself; name another file`);
  const serviceIdField = installation.config.SERVICE_ID_FIELD;
  return {
    ...{ input, workspaceId, updateExistingOnly, name },
    options: { map, ignore, delimiter, serviceIdField, ...formOf(input, options) },
    refusedPath,
    // A dry run may overwrite the file of refused rows of an earlier dry run.
    isForced: force === true || (dryRun === true && rejects === undefined),
  };
}

/** Returns format and type of the rows. @throws {Refusal} if the type is missing or does not fit the format */
function formOf(input: Input, { format, type }: Options): Pick<RowOptions, 'layout' | 'type' | 'vendor'> {
  const vendor = vendorNames.find((one) => one === format);
  if (!vendor) {
    if (!type) throw new Refusal(`--type is required: the type of the rows (${types.join(', ')})`);
    return { layout: (format as Layout | undefined) ?? layoutOf(input), type, vendor };
  }
  const form = vendorFormats[vendor];
  const layout = tableOf(input) ?? form.layout;
  if (type && !form.types.includes(type))
    throw new Refusal(
      `--type ${type} cannot be combined with --format ${vendor}${form.types.length > 0 ? `, which has ${form.types.join(' or ')}` : ': each row has its own type'}`,
    );
  return { layout, type: type ?? form.types[0] ?? 'events', vendor };
}

const endings: Record<string, Layout> = {
  '.csv': 'csv',
  '.tsv': 'csv',
  ...{ '.ndjson': 'ndjson', '.jsonl': 'ndjson', '.json': 'ndjson', '.parquet': 'parquet' },
};

/** Layout that was detected from the first bytes of the file, if any. */
const tableOf = ({ kind }: Pick<Input, 'kind'>): Layout | undefined =>
  layouts.find((layout) => layout === kind);

/** @throws {ImportError} if neither the content nor the file name reveals the format */
function layoutOf({ name, innerName, kind }: Input): Layout {
  const table = tableOf({ kind });
  if (table) return table;
  const layout = endings[path.extname(innerName.toLowerCase().replace(/\.(gz|zst)$/, ''))];
  if (layout) return layout;
  throw new ImportError(`${name}: the format cannot be derived from the file name; set it with --format`);
}

async function tryOut(wanted: Wanted, { installation, options, leaving }: Job): Promise<Row> {
  const { previewFile } = await import('../../import/import-file.ts');
  const { config, database } = installation;
  const bar = showRows(wanted.input);
  bar.begin(0);
  const preview = await previewFile(
    wanted,
    { pool: database.pool, config },
    { shown: SHOWN, leaving, onRows: bar.move },
  ).finally(bar.stop);
  const { rows, accepted, refused, warned } = preview;
  const result = {
    file: wanted.input.name,
    state: 'dry run',
    rows,
    accepted,
    refused,
    warned,
    rejects: shownPath(refused, wanted),
  };
  if (options.json)
    return {
      ...result,
      columns: columnsOf(preview),
      warnings: warningsOf(preview),
      first_rows: preview.first.map((row) => ({ ...row, warnings: [...row.warnings] })),
    };
  describe(preview);
  return result;
}

const shownPath = (refused: number, { refusedPath }: Wanted) => (refused > 0 ? refusedPath : null);

async function bringIn(
  wanted: Wanted,
  { installation, options, leaving }: Job,
  { producer, connection, lanes, actor }: QueueContext,
): Promise<Row> {
  const { importFile } = await import('../../import/import-file.ts');
  const { config, database } = installation;
  const { input } = wanted;
  const bar = showRows(input);
  const context = { pool: database.pool, config, producer, connection, lanes, actor };
  const imported = await importFile(wanted, context, {
    leaving,
    onWarning: (warning) => void process.stderr.write(`warning: ${warning}\n`),
    onBegin(stored) {
      bar.begin(stored.rows);
      if (stored.rows > 0 && !options.json)
        process.stderr.write(`${input.name}: resuming after row ${stored.rows}\n`);
    },
    onProgress: ({ rows }) => bar.move(rows),
    onWait: () => void process.stderr.write('waiting: the queue is full. Check that a worker is running\n'),
  }).finally(bar.stop);
  const { end, rows, accepted, refused, warned } = imported;
  if (end === 'left')
    throw new Refusal(`${input.name}: stopped after row ${rows}; run the same command again to resume`);
  const state = end === 'known' ? 'imported before' : 'imported';
  return { file: input.name, state, rows, accepted, refused, warned, rejects: shownPath(refused, wanted) };
}
