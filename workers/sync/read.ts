import { setTimeout as sleep } from 'node:timers/promises';
import { charactersOf } from '../../src/integrations/columns.ts';
import { openSource } from '../../src/integrations/open-source.ts';
import {
  decryptCredentials,
  type Source,
  type SourceColumn,
  type SourceOptions,
  type SourceRow,
} from '../../src/integrations/source.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll, rest } from '../../src/platform/poll.ts';
import { linkSignals } from '../../src/platform/time-limit.ts';
import { inSpan, type Span, tracing } from '../../src/platform/tracing.ts';
import { TakenOver } from '../../src/queue/hand-over.ts';
import type { Pool } from '../../src/store/database.ts';
import { clearBoundary, forgetExpected } from '../../src/store/sync-boundary.ts';
import type { OutboxChunk } from '../../src/store/sync-chunks.ts';
import { advanceRun, isCancelled, type Run } from '../../src/store/sync-runs.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import type { Checkpoint } from './checkpoint.ts';
import { buildChunk, type ChunkBuilding, type Position, type Rules } from './chunk.ts';
import { createDeduplication } from './deduplicate.ts';
import type { Leaving, RunInHand, RunOutboxes } from './run-outbox.ts';
import { createChunkSize, type Throttle } from './throttle.ts';

/**
 * Maximum characters of a chunk, unless a single row has more. It limits the work in a lane ahead of a live
 * request.
 */
const MAX_CHUNK_CHARACTERS = 1_048_576;

/** Creates a function that returns the rows of a source in chunks, in order, and prefetches one batch. */
export function createRowReader(batches: AsyncIterable<SourceRow[]>) {
  const iterator = batches[Symbol.asyncIterator]();
  let held: SourceRow[] = [];
  let index = 0;
  let ahead = readAhead();

  function readAhead(): Promise<IteratorResult<SourceRow[]>> {
    const pending = iterator.next();
    // The error is thrown by the next call that awaits the batch.
    pending.catch(() => {});
    return pending;
  }

  /** @returns at most `size` rows; an empty list at the end */
  async function next(size: number): Promise<SourceRow[]> {
    const rows: SourceRow[] = [];
    let characters = 0;
    while (rows.length < size) {
      if (index === held.length) {
        const { value, done } = await ahead;
        if (done) break;
        held = value;
        index = 0;
        ahead = readAhead();
        continue;
      }
      const row = held[index]!;
      characters += charactersOf(row);
      if (rows.length > 0 && characters > MAX_CHUNK_CHARACTERS) break;
      rows.push(row);
      index++;
    }
    return rows;
  }

  return next;
}

/** Rows of a batch that is read from the source. */
const BATCH = 500;

/** Milliseconds between two checks whether the run was cancelled, while waiting for its source. */
const CANCEL_POLL_MS = 2000;
/** Milliseconds to wait for a source to close. */
const CLOSE_MS = 10_000;

/** Opens the source of a run. @throws {SourceError}, or the reason of the signal */
type OpenSource = (run: Run, signal: AbortSignal) => Promise<Source>;

/** @throws {SourceError} `config` if the source lacks a column or has a forbidden one */
type CheckColumns = (columns: SourceColumn[], run: Run) => void;

export type ReadOn = 'finished' | 'cancelled' | 'too many rows' | 'left';

/** How reading has ended, and the checkpoint of the run at that time. */
type Read = { checkpoint: Checkpoint } & ({ kind: ReadOn } | { kind: 'failed'; error: unknown });

/** The next chunk, or the error of making it. Both are undefined at the end of the source. */
type Next = { chunk?: OutboxChunk | undefined; error?: unknown };

/** Opens the sources of runs. */
export class RunSources {
  readonly #open: OpenSource;
  readonly #checkColumns: CheckColumns;
  readonly #log: Log;

  constructor(open: OpenSource, checkColumns: CheckColumns, log: Log) {
    this.#open = open;
    this.#checkColumns = checkColumns;
    this.#log = log;
  }

  /** @throws {SourceError} if the source cannot be opened or its columns are not sufficient */
  async open(run: Run, signal: AbortSignal): Promise<Source> {
    const source = await this.#open(run, signal);
    try {
      this.#checkColumns(await source.describe(), run);
      return source;
    } catch (error) {
      await source.close().catch(() => {});
      throw error;
    }
  }

  /** Closes a source. A source that opens too slowly is closed after it has opened. */
  async close(opening: Promise<Source>): Promise<void> {
    const closed = opening.then(
      (source) => source.close().catch((error) => this.#log.warn({ err: error }, 'source did not close')),
      () => {},
    );
    await Promise.race([closed, sleep(CLOSE_MS, undefined, { ref: false })]);
  }
}

/** Reads the sources of runs. */
export class RunReader {
  /** Maximum rows of a run. */
  readonly maxRows: number;
  readonly #pool: Pool;
  readonly #outboxes: RunOutboxes;
  readonly #sources: RunSources;
  readonly #rulesOf: (run: Run) => Rules;
  readonly #throttleOf: (run: Run) => Throttle;
  readonly #building: Omit<ChunkBuilding, 'run' | 'caller'>;

  constructor(parts: {
    maxRows: number;
    pool: Pool;
    outboxes: RunOutboxes;
    sources: RunSources;
    /** Returns the rules of the run's workspace, which may change during the run. */
    rulesOf(run: Run): Rules;
    throttleOf(run: Run): Throttle;
    /** How rows become chunks. */
    building: Omit<ChunkBuilding, 'run' | 'caller'>;
  }) {
    this.maxRows = parts.maxRows;
    this.#pool = parts.pool;
    this.#outboxes = parts.outboxes;
    this.#sources = parts.sources;
    this.#rulesOf = parts.rulesOf;
    this.#throttleOf = parts.throttleOf;
    this.#building = parts.building;
  }

  /**
   * Reads a source from the watermark and adds its rows to the lanes in chunks. Only one chunk is in the lanes
   * at a time, so that a live request waits for at most one; meanwhile the next chunk is read and validated.
   *
   * @returns how reading ended and the checkpoint. A failure is returned with its error: a {SourceError}, a
   * {TakenOver}, or an error of the store or the queue
   */
  async read(given: RunInHand, leaving: Leaving): Promise<Read> {
    const { run } = given;
    const pool = this.#pool;
    const own = this.#outboxes.open(given, leaving);
    const { outbox, checkpoint } = own;
    const rules = this.#rulesOf(run);
    const throttle = this.#throttleOf(run);
    const size = createChunkSize();
    let position: Position = {
      rows: checkpoint.read,
      failed: checkpoint.failed,
      warned: 0,
      newest: checkpoint.watermark,
    };
    if (checkpoint.read === 0) await forgetUnreadable(checkpoint, pool);
    const attempt = newId();
    const reading = new AbortController();
    const cancelled = watchForCancel(run.id, pool, reading.signal);
    const stopping = linkSignals({ signals: [leaving.soon, leaving.now, cancelled] });
    const stop = stopping.signal;
    const { signal, release } = linkSignals({ signals: [reading.signal, stop] });
    const opening = this.#sources.open(run, signal);
    try {
      const source = await unlessAborted(opening, stop);
      if (!source) return { kind: cancelled.aborted ? 'cancelled' : 'left', checkpoint: own.checkpoint };
      const deduplicate = await createDeduplication(pool, run, attempt);
      const read = createRowReader(source.rowsSince(run.watermark ?? undefined, { batch: BATCH, signal }));

      const makeNext = async (span?: Span): Promise<OutboxChunk | undefined> => {
        for (;;) {
          const rows = await read(size.now());
          if (rows.length === 0) return undefined;
          const fresh = await deduplicate(rows);
          if (fresh.length === 0) continue;
          const making = { ...this.#building, run, caller: await rules.caller() };
          const make = () => buildChunk(fresh, position, making);
          const made = tracing ? tracing.withSpan(span, make) : make();
          position = made.position;
          return made.chunk;
        }
      };
      const prepare = (): Promise<Next> =>
        traceChunk(run, makeNext).then(
          (chunk) => ({ chunk }),
          (error) => ({ error }),
        );

      /** Waits until the chunk may be added to the lanes. The previous chunk is recorded before a wait. */
      const waitForThrottle = async ({ progress }: OutboxChunk): Promise<void> => {
        for (;;) {
          const milliseconds = await throttle(progress.rows, await rules.limit());
          if (milliseconds === 0 || leaving.soon.aborted) return;
          if (await outbox.handedOver()) await outbox.advance();
          await rest(milliseconds, leaving.soon);
          if (await isCancelled(pool, run.id)) return;
        }
      };

      for (let ahead = prepare(); ; ) {
        const { chunk, error } = (await unlessAborted(ahead, stop)) ?? {};
        if (chunk) await waitForThrottle(chunk);
        const done = await outbox.handedOver();
        const full =
          chunk !== undefined &&
          own.checkpoint.read + (done?.chunk.progress.rows ?? 0) + chunk.progress.rows > this.maxRows;
        // A source that was asked to stop may look as if it were at its end.
        const leave = leaving.soon.aborted;
        const next = full || stop.aborted ? undefined : chunk;
        await outbox.advance(next);
        if (own.isCancelled) return { kind: 'cancelled', checkpoint: own.checkpoint };
        if (leave) return { kind: 'left', checkpoint: own.checkpoint };
        if (error) throw error;
        if (full) return { kind: 'too many rows', checkpoint: own.checkpoint };
        if (!next) return { kind: 'finished', checkpoint: own.checkpoint };
        ahead = prepare();
        const settled = await outbox.handedOver();
        if (next.entries.length > 0) size.learn(next.progress.rows, settled!.milliseconds);
      }
    } catch (error) {
      return { kind: 'failed', error, checkpoint: own.checkpoint };
    } finally {
      reading.abort();
      release();
      stopping.release();
      await this.#sources.close(opening);
      await forgetExpected(pool, attempt).catch(() => {});
    }
  }
}

/** Creates a chunk in a span, so that the processing of its rows belongs to the same trace. */
function traceChunk(
  { id, integrationId, workspaceId }: Run,
  make: (span?: Span) => Promise<OutboxChunk | undefined>,
): Promise<OutboxChunk | undefined> {
  const sdk = tracing;
  if (!sdk) return make();
  const span = sdk.begin('read chunk', { kind: 'INTERNAL' });
  span.setAttributes({
    'penstock.sync.job_id': id,
    'penstock.sync.integration_id': integrationId,
    'penstock.workspace.id': workspaceId,
  });
  return inSpan(sdk, span, async () => {
    const chunk = await make(span);
    span.setAttribute('penstock.sync.rows', chunk?.progress.rows ?? 0);
    return chunk;
  });
}

/** Forgets the rows without a valid time, so that each run counts them once. */
async function forgetUnreadable({ jobId, integrationId }: Checkpoint, pool: Pool): Promise<void> {
  await inTransaction(pool, async (tx) => {
    const nothing = { read: 0, synced: 0, failed: 0, watermark: undefined };
    if ((await advanceRun(tx, { jobId, expected: 0, ...nothing })) === undefined) throw new TakenOver();
    await clearBoundary(tx, integrationId, true);
  });
}

/** Watches for a cancellation of the run, because its source may take long to respond. */
function watchForCancel(jobId: string, pool: Pool, over: AbortSignal): AbortSignal {
  const cancelled = new AbortController();
  const poller = poll(CANCEL_POLL_MS, async () => {
    if ((await isCancelled(pool, jobId)) && !over.aborted) cancelled.abort();
  });
  for (const signal of [over, cancelled.signal])
    signal.addEventListener('abort', () => void poller.stop(), { once: true });
  return cancelled.signal;
}

/**
 * Returns the result of the work, or undefined as soon as the signal aborts. The work continues, and its
 * result is ignored.
 */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  work.catch(() => {});
  if (signal.aborted) return Promise.resolve(undefined);
  return new Promise((resolve, reject) => {
    const leave = () => resolve(undefined);
    signal.addEventListener('abort', leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
}

/**
 * Creates a function that opens the source of a run's integration. It decrypts the credentials and does not
 * keep them.
 */
export function createSourceOpener(keys: readonly Buffer[], options: SourceOptions): OpenSource {
  /** @throws {SourceError}, or the reason of the signal */
  return async function openRunSource(
    { integrationId, source, credentials }: Run,
    signal: AbortSignal,
  ): Promise<Source> {
    const secret = credentials ? decryptCredentials(credentials, integrationId, keys) : undefined;
    return openSource(source, secret, { ...options, signal });
  };
}
