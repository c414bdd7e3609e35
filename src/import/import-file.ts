import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Config } from '../platform/config.ts';
import { newId } from '../platform/ids.ts';
import type { LongStrings } from '../profile/attribute-rule.ts';
import type { Json } from '../profile/json.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { watchDepth } from '../queue/depth.ts';
import type { LaneProducer } from '../queue/lanes.ts';
import { rulesOf } from '../schemas/vendor-rules.ts';
import type { Actor } from '../store/audit.ts';
import type { Pool } from '../store/database.ts';
import {
  findImport,
  type ImportKey,
  type ImportProgress,
  insertImport,
  type StoredImport,
  withImportLock,
} from '../store/imports.ts';
import { listProcesses } from '../store/processes.ts';
import { STAGED_DAYS } from '../store/staged-envelopes.ts';
import type { Input } from './open-input.ts';
import { openRefusedRows, requireFree } from './refused-rows.ts';
import {
  createCallers,
  createRowValidator,
  type MappedRow,
  mapRows,
  type Routing,
  type RowOptions,
  type RowValidator,
  validateRows,
  verdictOf,
} from './rows.ts';
import { type ImportEnd, runImport } from './run.ts';
import { ImportError } from './unpack.ts';
import type { Sent } from './vendor.ts';
import { createYielding } from './yielding.ts';

/** A file and the options with which its rows are read and validated. */
export interface Wanted {
  input: Input;
  workspaceId: string;
  options: RowOptions;
  updateExistingOnly: boolean;
  /** Name that identifies the import instead of the content of the file. */
  name: string | undefined;
  /** Path of the file for refused rows, and whether an existing file may be overwritten. */
  refusedPath: string;
  isForced: boolean;
}

type JudgeConfig = Pick<Config, 'SERVICE_ID_FIELD' | 'LONG_STRINGS' | 'VENDOR_RULES' | 'KEY_CACHE_MS'>;

interface Context {
  pool: Pool;
  config: JudgeConfig & Pick<Config, 'MAX_ENVELOPE_OBJECTS' | 'MAX_WAITING_ENVELOPES'>;
  producer: LaneProducer;
  connection: QueueConnection;
  lanes: number;
  /** The user who runs the import, for the audit log. */
  actor: Actor;
}

interface Watching {
  onWarning(warning: string): void;
  onBegin(stored: StoredImport): void;
  onProgress(progress: ImportProgress): void;
  /** Called when the lanes have been full for a while. */
  onWait(): void;
  leaving: AbortSignal;
}

/** Result of an import. `known` means that an earlier run has imported the file, and this run did nothing. */
type Imported = Omit<ImportEnd, 'end'> & { end: ImportEnd['end'] | 'known' };

/**
 * Imports a file, or the rest of it after an earlier run was interrupted.
 * @throws {ImportError}
 */
export async function importFile(wanted: Wanted, context: Context, watching: Watching): Promise<Imported> {
  const { pool } = context;
  const key = keyOf(wanted);
  // Check before the import is recorded, so that a file without rows leaves no record of an import.
  for (const warning of await warningsOf(wanted)) watching.onWarning(warning);
  // Two processes would write the same file of refused rows.
  const imported = await withImportLock(pool, key, async () =>
    importRows(wanted, await begin(wanted, key, context), { context, watching }),
  );
  if (imported) return imported;
  throw new ImportError(`${wanted.input.name}: another process is importing this file`);
}

/**
 * Reads the first rows and returns the warnings about their header. @throws {ImportError} if there is no row
 */
async function warningsOf({ input, options }: Wanted): Promise<string[]> {
  const messages: string[] = [];
  const onRouting = ({ file, warnings }: Routing) =>
    void messages.push(...warnings.map((warning) => `${file}: ${warning}`));
  for await (const _ of mapRows({ input, options, onRouting })) break;
  return messages;
}

async function importRows(
  wanted: Wanted,
  stored: StoredImport,
  { context, watching }: { context: Context; watching: Watching },
): Promise<Imported> {
  const { pool, config, producer, connection, lanes } = context;
  const { input, workspaceId } = wanted;
  const { rows, accepted, refused, refusedBytes, finishedAt } = stored;
  const before = { rows, accepted, refused, refusedBytes };
  if (finishedAt) return { ...before, end: 'known', warned: 0 };

  const allLanes = lanes * connection.layout.shards;
  const depth = watchDepth(connection.laneStore, allLanes);
  const yielding = createYielding({
    ...{ heartbeats: () => listProcesses(pool), lanes: allLanes, waiting: depth.waiting },
    ...{ highWaterMark: config.MAX_WAITING_ENVELOPES, onWait: watching.onWait },
  });
  const refusedRows = openRefusedRows(wanted.refusedPath);
  try {
    watching.onBegin(stored);
    const judged = mapRows({ input, options: wanted.options, done: rows });
    return await runImport(stored, untilUnchanged(judged, input), {
      ...{ pool, producer, lanes, yielding, refusedRows },
      ...{ onProgress: watching.onProgress, leaving: watching.leaving },
      maxEnvelopeObjects: config.MAX_ENVELOPE_OBJECTS,
      judge: judgeOf(wanted, config),
      callerOf: createCallers(pool, workspaceId, config.KEY_CACHE_MS),
    });
  } finally {
    await Promise.all([refusedRows.close(), yielding.stop(), depth.stop()]);
  }
}

function judgeOf({ updateExistingOnly }: Wanted, config: JudgeConfig): RowValidator {
  const { SERVICE_ID_FIELD: serviceIdField, LONG_STRINGS, VENDOR_RULES } = config;
  const rules = rulesOf[VENDOR_RULES];
  return createRowValidator({
    serviceIdField,
    longStrings: LONG_STRINGS as LongStrings,
    rules,
    updateExistingOnly,
  });
}

/** Checks after the last row that the file has not changed since it was opened. */
async function* untilUnchanged(rows: AsyncIterable<MappedRow[]>, input: Input): AsyncGenerator<MappedRow[]> {
  yield* rows;
  await input.requireUnchanged();
}

function keyOf({ input, workspaceId, options, name }: Wanted): ImportKey {
  const { vendor = '', type } = options;
  const parts = name === undefined ? [vendor, type, input.digest.toString('hex')] : ['name', name];
  return { workspaceId, key: createHash('sha256').update(JSON.stringify(parts)).digest() };
}

/**
 * Returns the stored state of the import, and creates it if it does not exist. @throws {ImportError} if the
 * import was started with other options
 */
async function begin(
  wanted: Wanted,
  { workspaceId, key }: ImportKey,
  { pool, actor }: Pick<Context, 'pool' | 'actor'>,
): Promise<StoredImport> {
  const { input, options, updateExistingOnly, name, refusedPath, isForced } = wanted;
  const reading = JSON.parse(JSON.stringify({ ...options, updateExistingOnly })) as Json;
  const { digest } = input;
  const existing = await findImport(pool, { workspaceId, key });
  if (!isForced && !existing?.finishedAt) await requireFree(refusedPath, existing && input.name);
  await insertImport(pool, { workspaceId, key, id: newId(), file: input.name, digest, reading }, actor);
  const stored = await findImport(pool, { workspaceId, key });
  if (!stored) throw new ImportError(`${input.name}: the import was dropped while it was running`);
  if (!stored.digest.equals(digest))
    throw new ImportError(
      `the name ${name} belongs to the import of ${stored.file}, and ${input.name} has other content; choose another name with --name`,
    );
  if (stored.rowsErasedAt)
    throw new ImportError(
      `${input.name}: this import was interrupted more than ${STAGED_DAYS} days ago, and the rows before row ${stored.rows + 1} that the queue had not confirmed were erased. Run 'penstock import drop ${stored.id}', then import the file again from its first row`,
    );
  if (isDeepStrictEqual(stored.reading, reading)) return stored;
  const storedOptions = JSON.stringify(stored.reading);
  throw new ImportError(
    stored.finishedAt
      ? `${input.name}: the file was already imported with other options (${storedOptions}), so no row was sent again; to import it with these options as well, choose a new name with --name`
      : `${input.name}: an import of the file with other options (${storedOptions}) stopped after row ${stored.rows}; resume it with those options, or start again with a new name (--name)`,
  );
}

/** The result of a dry run. */
export interface Preview {
  routings: Routing[];
  first: {
    file: string;
    row: number;
    objects: Sent[] | null;
    refused: string | null;
    warnings: readonly string[];
  }[];
  rows: number;
  accepted: number;
  refused: number;
  warned: number;
}

/**
 * Reads and validates every row without enqueuing any; refused rows are written to their file.
 * @param shown number of rows to show from the beginning of the file
 * @throws {ImportError}
 */
export async function previewFile(
  wanted: Wanted,
  { pool, config }: { pool: Pool; config: JudgeConfig },
  { shown, leaving, onRows }: { shown: number; leaving: AbortSignal; onRows?(rows: number): void },
): Promise<Preview> {
  const preview: Preview = { routings: [], first: [], rows: 0, accepted: 0, refused: 0, warned: 0 };
  if (!wanted.isForced) await requireFree(wanted.refusedPath, undefined);
  const judge = judgeOf(wanted, config);
  const callerOf = createCallers(pool, wanted.workspaceId, config.KEY_CACHE_MS);
  const refusedRows = openRefusedRows(wanted.refusedPath);
  const onRouting = (routing: Routing) => void preview.routings.push(routing);
  try {
    for await (const rows of mapRows({ input: wanted.input, options: wanted.options, onRouting })) {
      if (leaving.aborted) break;
      const caller = await callerOf(newId());
      for (const row of rows.slice(0, shown - preview.first.length)) {
        const { locate: _, ...data } = row;
        const verdict = verdictOf(structuredClone(data), judge, caller);
        preview.first.push({
          ...{
            file: row.file,
            row: row.number,
            objects: row.sent ?? null,
            refused: 'refused' in verdict ? verdict.refused : null,
          },
          warnings: 'refused' in verdict ? [] : (verdict.warnings ?? []),
        });
      }
      const { objects, refused, warned } = validateRows(rows, judge, caller);
      await refusedRows.write(refused);
      preview.rows += rows.length;
      preview.accepted += objects.length;
      preview.refused += refused.length;
      preview.warned += warned;
      onRows?.(preview.rows);
    }
    return preview;
  } finally {
    await refusedRows.close();
  }
}
