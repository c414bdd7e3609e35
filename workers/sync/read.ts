import { setTimeout as sleep } from 'node:timers/promises';
import { charactersOf } from '../../src/integrations/columns.ts';
import { openSource } from '../../src/integrations/open-source.ts';
import {
  decryptCredentials,
  type Source,
  type SourceOptions,
  type SourceRow,
} from '../../src/integrations/source.ts';
import { newId } from '../../src/platform/ids.ts';
import { poll, rest } from '../../src/platform/poll.ts';
import { linkSignals } from '../../src/platform/time-limit.ts';
import { inSpan, type Span, tracing } from '../../src/platform/tracing.ts';
import { clearBoundary, forgetExpected } from '../../src/store/sync-boundary.ts';
import type { OutboxChunk } from '../../src/store/sync-chunks.ts';
import { advanceRun, isCancelled, type Run } from '../../src/store/sync-runs.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { advanceCheckpoint, type Checkpoint, RunLost, type Settled } from './checkpoint.ts';
import { makeChunk, type Position } from './chunk.ts';
import { createDeduplication, type Leaving, type SyncContext, settle } from './context.ts';
import { createChunkSize } from './throttle.ts';

/** Characters in one chunk, unless one row has more: bounds what stands in a lane before a live request. */
const MAX_CHUNK_CHARACTERS = 1_048_576;

/** Hands out the rows of a source in chunks, in their order, and reads a batch ahead. */
export function createRowReader(batches: AsyncIterable<SourceRow[]>) {
  const iterator = batches[Symbol.asyncIterator]();
  let held: SourceRow[] = [];
  let place = 0;
  let ahead = ask();

  function ask(): Promise<IteratorResult<SourceRow[]>> {
    const asked = iterator.next();
    // Whoever asks for the next chunk gets the error.
    asked.catch(() => {});
    return asked;
  }

  /** @returns at most `size` rows; none at the end */
  async function next(size: number): Promise<SourceRow[]> {
    const rows: SourceRow[] = [];
    let characters = 0;
    while (rows.length < size) {
      if (place === held.length) {
        const { value, done } = await ahead;
        if (done) break;
        held = value;
        place = 0;
        ahead = ask();
        continue;
      }
      const row = held[place]!;
      characters += charactersOf(row);
      if (rows.length > 0 && characters > MAX_CHUNK_CHARACTERS) break;
      rows.push(row);
      place++;
    }
    return rows;
  }

  return next;
}

/** Rows of one read from the source. */
const BATCH = 500;

/** Between two looks whether a run has been cancelled while its source is waited for. */
const LOOK_FOR_CANCEL_MS = 2000;
/** A source that does not close is left to itself. */
const CLOSE_MS = 10_000;

export type ReadOn = 'finished' | 'cancelled' | 'too many rows' | 'left';

/** How reading ended, and how far the run has come by then. */
type Read = { checkpoint: Checkpoint } & ({ kind: ReadOn } | { kind: 'failed'; error: unknown });

/** What is read, and from where. */
interface Reading {
  run: Run;
  checkpoint: Checkpoint;
  /** Rows have taken effect since the reading began. */
  onProgress?: () => Promise<void>;
}

/** What the next chunk has turned out to be; nothing of it at the end of the source. */
type Next = { chunk?: OutboxChunk | undefined; error?: unknown };

/**
 * Reads a source from the watermark on, and hands its rows over chunk by chunk. One chunk is in the lanes at a time: a
 * live request waits behind one at most. Meanwhile the next is read and judged.
 *
 * @returns beside how it ended, the checkpoint by then, also where it failed: by a {SourceError}, a {RunLost}, or what the
 * store or the queue report
 */
export async function readOn(
  { run, checkpoint: begun, onProgress }: Reading,
  context: SyncContext,
  leaving: Leaving,
): Promise<Read> {
  const { pool, maxRows } = context;
  const rules = context.rulesOf(run);
  const throttle = context.throttleOf(run);
  const size = createChunkSize();
  let checkpoint = begun;
  let position: Position = {
    rows: checkpoint.read,
    failed: checkpoint.failed,
    warned: 0,
    newest: checkpoint.watermark,
  };
  if (checkpoint.read === 0) await forgetUnreadable(checkpoint, context);
  const attempt = newId();
  const reading = new AbortController();
  const cancelled = watchForCancel(run.id, context, reading.signal);
  const stopping = linkSignals({ signals: [leaving.soon, leaving.now, cancelled] });
  const stop = stopping.signal;
  const { signal, release } = linkSignals({ signals: [reading.signal, stop] });
  const opening = openChecked(run, context, signal);
  let done: Settled | undefined;
  try {
    const source = await unlessAborted(opening, stop);
    if (!source) return { kind: cancelled.aborted ? 'cancelled' : 'left', checkpoint };
    const deduplicate = await createDeduplication(pool, run, attempt);
    const read = createRowReader(source.rowsSince(run.watermark ?? undefined, { batch: BATCH, signal }));

    const makeNext = async (span?: Span): Promise<OutboxChunk | undefined> => {
      for (;;) {
        const rows = await read(size.now());
        if (rows.length === 0) return undefined;
        const fresh = await deduplicate(rows);
        if (fresh.length === 0) continue;
        const making = { ...context.making, run, caller: await rules.caller() };
        const make = () => makeChunk(fresh, position, making);
        const made = tracing ? tracing.within(span, make) : make();
        position = made.position;
        return made.chunk;
      }
    };
    const prepare = (): Promise<Next> =>
      traceChunk(run, makeNext).then(
        (chunk) => ({ chunk }),
        (error) => ({ error }),
      );

    /** Until the chunk may be handed over; what has taken effect is settled before a wait. */
    const waitForThrottle = async ({ progress }: OutboxChunk): Promise<void> => {
      for (;;) {
        const milliseconds = await throttle(progress.rows, await rules.limit());
        if (milliseconds === 0 || leaving.soon.aborted) return;
        if (done) ({ checkpoint } = await advanceCheckpoint(pool, checkpoint, { done }));
        done = undefined;
        await rest(milliseconds, leaving.soon);
        if (await isCancelled(pool, run.id)) return;
      }
    };

    for (let ahead = prepare(); ; ) {
      const { chunk, error } = (await unlessAborted(ahead, stop)) ?? {};
      if (chunk) await waitForThrottle(chunk);
      const full =
        chunk !== undefined &&
        checkpoint.read + (done?.chunk.progress.rows ?? 0) + chunk.progress.rows > maxRows;
      // A source that is told to stop may look like one that is at its end.
      const leave = leaving.soon.aborted;
      const next = full || stop.aborted ? undefined : chunk;
      const advanced = await advanceCheckpoint(pool, checkpoint, { done, next });
      done = undefined;
      if (advanced.checkpoint.read > checkpoint.read) await onProgress?.();
      checkpoint = advanced.checkpoint;
      if (advanced.cancelled) return { kind: 'cancelled', checkpoint };
      if (leave) return { kind: 'left', checkpoint };
      if (error) throw error;
      if (full) return { kind: 'too many rows', checkpoint };
      if (!next) return { kind: 'finished', checkpoint };
      ahead = prepare();
      done = await settle({ chunk: next, run }, context, leaving.now);
      if (next.entries.length > 0) size.learn(next.progress.rows, done.milliseconds);
    }
  } catch (error) {
    return { kind: 'failed', error, checkpoint };
  } finally {
    reading.abort();
    release();
    stopping.release();
    await closeOpened(opening, context);
    await forgetExpected(pool, attempt).catch(() => {});
  }
}

/** A span for each chunk: what becomes of its rows is part of the same trace. */
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

/** Rows without a readable time are counted once in a run, and again in the next one. */
async function forgetUnreadable({ jobId, integrationId }: Checkpoint, { pool }: SyncContext): Promise<void> {
  await inTransaction(pool, async (tx) => {
    const nothing = { read: 0, synced: 0, failed: 0, watermark: undefined };
    if ((await advanceRun(tx, { jobId, expected: 0, ...nothing })) === undefined) throw new RunLost();
    await clearBoundary(tx, integrationId, true);
  });
}

/** @throws {SourceError} also when its columns do not do */
async function openChecked(run: Run, context: SyncContext, signal: AbortSignal): Promise<Source> {
  const source = await context.open(run, signal);
  try {
    context.checkColumns(await source.describe(), run);
    return source;
  } catch (error) {
    await source.close().catch(() => {});
    throw error;
  }
}

/** One that opens too slowly to be waited for closes when it has opened. */
async function closeOpened(opening: Promise<Source>, { log }: SyncContext): Promise<void> {
  const closed = opening.then(
    (source) => source.close().catch((error) => log.warn({ err: error }, 'source did not close')),
    () => {},
  );
  await Promise.race([closed, sleep(CLOSE_MS, undefined, { ref: false })]);
}

/** A source may be silent for long: whether its run has been cancelled is asked beside it. */
function watchForCancel(jobId: string, { pool }: SyncContext, over: AbortSignal): AbortSignal {
  const cancelled = new AbortController();
  const looks = poll(LOOK_FOR_CANCEL_MS, async () => {
    if ((await isCancelled(pool, jobId)) && !over.aborted) cancelled.abort();
  });
  for (const signal of [over, cancelled.signal])
    signal.addEventListener('abort', () => void looks.stop(), { once: true });
  return cancelled.signal;
}

/** What the work gives, or nothing as soon as the signal comes; the work goes on and is heard by nobody. */
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
 * Opens the source of a run's integration with its credentials, which are decrypted here and kept by nobody.
 */
export function createSourceOpener(keys: readonly Buffer[], options: SourceOptions) {
  /** @throws {SourceError}; the reason of the signal */
  return async function openRunSource(
    { integrationId, source, credentials }: Run,
    signal: AbortSignal,
  ): Promise<Source> {
    const secret = credentials ? decryptCredentials(credentials, integrationId, keys) : undefined;
    return openSource(source, secret, { ...options, signal });
  };
}
