import type { ObjectStore, Written } from '../object-store/object-store.ts';
import { listFiles } from '../store/archive-files.ts';
import type { Pool } from '../store/database.ts';
import { inSnapshot, type Snapshot } from '../store/transactions.ts';
import {
  ExportError,
  type ExportedFile,
  findUnfinished,
  finish,
  type Progress,
  type Unfinished,
  type Wanted,
  type What,
  writeUnfinished,
} from './progress.ts';
import {
  activitySource,
  type ExportedRow,
  type Page,
  profilesSource,
  type Reading,
  type Source,
} from './source.ts';
import { statesSource } from './states.ts';
import { prepare, writeRows } from './write-rows.ts';

/**
 * Maximum rows that are read for one file, even if few of them are exported, so that a killed run loses a
 * limited amount of work.
 */
const MAX_READ_PER_FILE = 1_000_000;
/** Maximum characters of a file before compression. */
const MAX_CHARACTERS_PER_FILE = 268_435_456;

const sources: Record<What, (reading: Reading) => Source> = {
  profiles: profilesSource,
  events: (reading) => activitySource('events', reading),
  purchases: (reading) => activitySource('purchases', reading),
  states: statesSource,
};

/** Progress of an export. */
export interface Reached {
  /** Rows that this run has read. */
  looked: number;
  /** Rows that this run and earlier runs have written. */
  rows: number;
}

export interface ExportOptions {
  pool: Pool;
  store: ObjectStore;
  /**
   * Writes all rows into one file with this name, without a manifest. If absent, the export has several
   * files, and a run after a killed one continues after its last file.
   */
  file?: string | undefined;
  serviceIdField: string;
  /** Stops the export between two pages. Completed files are kept. */
  leaving: AbortSignal;
  /** Maximum rows of a file, which must not be less than the rows of a page. */
  rowsOfFile?: number;
  lookedAt?: number;
  /** @param estimatedRows approximate number of rows to read */
  onBegin?(unfinished: Unfinished, estimatedRows: number): void;
  onProgress?(reached: Reached): void;
}

/**
 * Writes the data of one kind of a workspace as files, in the order of keys, followed by a manifest. An
 * unfinished export at the same location is resumed after its last complete file.
 * @throws {ExportError} if the location or the data does not allow the export
 * @throws {ObjectStoreError}
 * @throws {ParquetError}
 */
export async function exportRows(wanted: Wanted, options: ExportOptions): Promise<Progress> {
  const { pool, store, file } = options;
  await prepare(wanted.format);
  const location = file === undefined ? store.where : `${store.where} ${file}`;
  const exported = await inSnapshot(pool, location, (snapshot) => exportFrom(wanted, options, snapshot));
  if (exported) return exported;
  throw new ExportError(`another process is exporting to ${location}; wait until it has finished`);
}

async function exportFrom(wanted: Wanted, options: ExportOptions, snapshot: Snapshot): Promise<Progress> {
  const { store, file, serviceIdField, leaving, lookedAt, onBegin } = options;
  const source = sources[wanted.what]({
    ...{ wanted, connection: snapshot.connection, serviceIdField, leaving, lookedAt },
  });
  if (file !== undefined && (await store.stat(file)))
    throw new ExportError(`${store.where} has a file ${file} already; name another one`);
  const unfinished = file === undefined ? await findUnfinished(store, wanted) : undefined;
  let progress: Unfinished = {
    ...(unfinished ?? { ...wanted, rows: 0, rows_cut: 0, moments: [], files: [], after: source.first }),
    archived_months: await archivedMonths(options.pool, wanted),
  };
  onBegin?.(progress, await source.estimate(progress.after));
  const writer = createWriter(wanted, options, { source, progress });
  const as_of = snapshot.asOf.toISOString();
  for (;;) {
    const step = await writer.next();
    if (step.file) {
      const isSameSnapshot = progress.moments.at(-1)?.as_of === as_of;
      const first_file = step.file.key;
      progress = {
        ...progress,
        moments: isSameSnapshot ? progress.moments : [...progress.moments, { as_of, first_file }],
        files: [...progress.files, step.file],
      };
    }
    progress = { ...progress, ...step.counts };
    if (step.isEnd || file !== undefined) break;
    await writeUnfinished(store, progress);
  }
  if (file === undefined) return finish(store, progress);
  const { after: _, ...whole } = progress;
  return whole;
}

/** Result of a step: a file, or a number of rows that were read without an exported row among them. */
interface Step {
  file?: ExportedFile;
  counts: Pick<Unfinished, 'rows' | 'rows_cut' | 'after'>;
  isEnd: boolean;
}

function createWriter(
  { what, format }: Wanted,
  { store, file, leaving, onProgress, rowsOfFile }: ExportOptions,
  { source, progress }: { source: Source; progress: Unfinished },
) {
  const { columns, maxRowsPerPage } = source;
  const counts = { rows: progress.rows, rows_cut: progress.rows_cut, after: progress.after };
  const bounds =
    file === undefined
      ? {
          rows: rowsOfFile ?? source.rowsOfFile,
          maxRead: MAX_READ_PER_FILE,
          characters: MAX_CHARACTERS_PER_FILE,
        }
      : { rows: Infinity, maxRead: Infinity, characters: Infinity };
  const pages = source.pages(progress.after);
  let page: IteratorResult<Page, void> | undefined;
  let [files, totalRead] = [progress.files.length, 0];

  /** Finishes a page and reads the next one. An interrupted export resumes after the last finished page. */
  async function nextPage({ cut, last, ...passed }: Page): Promise<void> {
    counts.rows += passed.rows.length;
    counts.rows_cut += cut;
    counts.after = last;
    totalRead += passed.read;
    onProgress?.({ looked: totalRead, rows: counts.rows });
    page = await pages.next();
  }

  async function next(): Promise<Step> {
    page ??= await pages.next();
    const before = totalRead;
    // Skip rows that are not exported without creating a file. A file with a given name is created even
    // without rows.
    while (!page.done && page.value.rows.length === 0 && totalRead - before < bounds.maxRead)
      await nextPage(page.value);
    const hasNoRow = page.done || page.value.rows.length === 0;
    if (hasNoRow && file === undefined) return { counts, isEnd: page.done === true };
    let [rows, characters] = [0, 0];
    async function* rowsOfNextFile(): AsyncGenerator<ExportedRow> {
      const readBefore = totalRead;
      const isFull = () =>
        rows + maxRowsPerPage > bounds.rows ||
        totalRead - readBefore >= bounds.maxRead ||
        characters >= bounds.characters;
      for (; page && !page.done && (rows === 0 || !isFull()); await nextPage(page.value)) {
        yield* page.value.rows;
        rows += page.value.rows.length;
      }
    }
    files += 1;
    const key = file ?? `${what}-${String(files).padStart(6, '0')}.${format}`;
    const { bytes, sha256 }: Written = await writeRows(rowsOfNextFile(), {
      ...{ store, key, format, columns, signal: leaving },
      onRow: (more) => {
        characters += more;
      },
    });
    return { file: { key, rows, bytes, sha256 }, counts, isEnd: page.done === true };
  }

  return { next };
}

/** Returns the months whose rows are only in the archive. */
async function archivedMonths(pool: Pool, { what, workspace }: Wanted): Promise<string[]> {
  if (what !== 'events' && what !== 'purchases') return [];
  const months = new Set<string>();
  for await (const { kind, month, object } of listFiles(pool, ['removed'], workspace.id))
    if (kind === what && object !== null) months.add(month);
  return [...months].sort();
}
