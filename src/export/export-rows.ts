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

/** Rows that are looked at for one file: whatever few of them are meant, what a kill costs is bounded. */
const LOOKED_AT_OF_FILE = 1_000_000;
/** Characters of a file, before it is packed. */
const CHARACTERS_OF_FILE = 268_435_456;

const sources: Record<What, (reading: Reading) => Source> = {
  profiles: profilesSource,
  events: (reading) => activitySource('events', reading),
  purchases: (reading) => activitySource('purchases', reading),
  states: statesSource,
};

/** How far an export is. */
export interface Reached {
  /** Rows that were looked at in this run. */
  looked: number;
  /** Rows that were written, by earlier runs as well. */
  rows: number;
}

export interface ExportOptions {
  pool: Pool;
  store: ObjectStore;
  /** All in one file of this name, without a manifest; absent: files of some rows each, which a killed run goes on behind. */
  file?: string | undefined;
  serviceIdField: string;
  /** Leaves between two pages; what is whole by then stays. */
  leaving: AbortSignal;
  /** Rows of a file at most; at least as many as a page has. */
  rowsOfFile?: number;
  lookedAt?: number;
  /** @param toLook about how many rows there are to look at */
  onBegin?(unfinished: Unfinished, toLook: number): void;
  onProgress?(reached: Reached): void;
}

/**
 * Writes what a workspace has of one kind as files, in the order of keys, and their manifest in the end. What an earlier
 * run has left at the place is gone on with, behind its last whole file.
 * @throws {ExportError} that says what is in the way
 * @throws {ObjectStoreError}
 * @throws {ParquetError}
 */
export async function exportRows(wanted: Wanted, options: ExportOptions): Promise<Progress> {
  const { pool, store, file } = options;
  await prepare(wanted.format);
  const place = file === undefined ? store.where : `${store.where} ${file}`;
  const exported = await inSnapshot(pool, place, (snapshot) => goOn(wanted, options, snapshot));
  if (exported) return exported;
  throw new ExportError(`another process exports to ${place} just now`);
}

async function goOn(wanted: Wanted, options: ExportOptions, snapshot: Snapshot): Promise<Progress> {
  const { store, file, serviceIdField, leaving, lookedAt, onBegin } = options;
  const source = sources[wanted.what]({
    ...{ wanted, connection: snapshot.connection, serviceIdField, leaving, lookedAt },
  });
  if (file !== undefined && (await store.stat(file)))
    throw new ExportError(`${store.where} has a file ${file} already; name another one`);
  const found = file === undefined ? await findUnfinished(store, wanted) : undefined;
  let progress: Unfinished = {
    ...(found ?? { ...wanted, rows: 0, rows_cut: 0, moments: [], files: [], after: source.first }),
    archived_months: await archivedMonths(options.pool, wanted),
  };
  onBegin?.(progress, await source.estimate(progress.after));
  const writer = createWriter(wanted, options, { source, progress });
  const as_of = snapshot.asOf.toISOString();
  for (;;) {
    const step = await writer.next();
    if (step.file) {
      const isOfMoment = progress.moments.at(-1)?.as_of === as_of;
      const first_file = step.file.key;
      progress = {
        ...progress,
        moments: isOfMoment ? progress.moments : [...progress.moments, { as_of, first_file }],
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

/** What one step has come to: a file, or many rows of which none was meant. */
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
  const { columns, most } = source;
  const counts = { rows: progress.rows, rows_cut: progress.rows_cut, after: progress.after };
  const bounds =
    file === undefined
      ? { rows: rowsOfFile ?? source.rowsOfFile, looked: LOOKED_AT_OF_FILE, characters: CHARACTERS_OF_FILE }
      : { rows: Infinity, looked: Infinity, characters: Infinity };
  const pages = source.pages(progress.after);
  let page: IteratorResult<Page, void> | undefined;
  let [files, looked] = [progress.files.length, 0];

  /** The page is behind us: the next run would begin behind it. */
  async function turn({ cut, last, ...passed }: Page): Promise<void> {
    counts.rows += passed.rows.length;
    counts.rows_cut += cut;
    counts.after = last;
    looked += passed.looked;
    onProgress?.({ looked, rows: counts.rows });
    page = await pages.next();
  }

  async function next(): Promise<Step> {
    page ??= await pages.next();
    const begin = looked;
    // Of rows that nobody wants no file is made, but for a file that is asked for by its name.
    while (!page.done && page.value.rows.length === 0 && looked - begin < bounds.looked)
      await turn(page.value);
    const isNobody = page.done || page.value.rows.length === 0;
    if (isNobody && file === undefined) return { counts, isEnd: page.done === true };
    let [rows, characters] = [0, 0];
    async function* ofFile(): AsyncGenerator<ExportedRow> {
      const beginOfFile = looked;
      const isFull = () =>
        rows + most > bounds.rows || looked - beginOfFile >= bounds.looked || characters >= bounds.characters;
      for (; page && !page.done && (rows === 0 || !isFull()); await turn(page.value)) {
        yield* page.value.rows;
        rows += page.value.rows.length;
      }
    }
    files += 1;
    const key = file ?? `${what}-${String(files).padStart(6, '0')}.${format}`;
    const { bytes, sha256 }: Written = await writeRows(ofFile(), {
      ...{ store, key, format, columns, signal: leaving },
      onRow: (more) => {
        characters += more;
      },
    });
    return { file: { key, rows, bytes, sha256 }, counts, isEnd: page.done === true };
  }

  return { next };
}

/** Months whose rows the archive has, and the store no more. */
async function archivedMonths(pool: Pool, { what, workspace }: Wanted): Promise<string[]> {
  if (what !== 'events' && what !== 'purchases') return [];
  const months = new Set<string>();
  for await (const { kind, month, object } of listFiles(pool, ['removed'], workspace.id))
    if (kind === what && object !== null) months.add(month);
  return [...months].sort();
}
