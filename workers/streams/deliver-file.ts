import type { Log } from '../../src/platform/log.ts';
import { rest } from '../../src/platform/poll.ts';
import type { FileDestination, FileRange, LogPosition, Piece } from '../../src/streams/destination.ts';
import { fieldsOf, LEASE_MS, type LeasedCursor } from './leased-cursor.ts';
import { cursorAfter, IDLE_POLL_MS, type LogReading, MAX_IDLE_POLLS, openReader, type Page } from './read.ts';
import type { ReadMessage } from './source.ts';
import { agesBy } from './yielding.ts';

/**
 * Milliseconds without progress after which the lease of a file is not renewed any longer. A Parquet file may
 * wait up to ten minutes for other files to be written.
 */
const STALLED_MS = 900_000;

/**
 * Largest id. The content of a planned file was decided when it was planned, so it is read without a horizon.
 */
const LARGEST_ID = '9223372036854775807';

interface FileDelivery {
  reading: LogReading;
  log: Log;
  /** Milliseconds after which the lease is renewed; default a third of the lease. */
  keepMs?: number | undefined;
}

/**
 * Delivers one file: the planned file that an earlier attempt may have stored, with the same end and the same
 * name, or otherwise the entries after the cursor. The end of a file is recorded with the lease before the
 * file is stored, and the cursor moves after that.
 * @returns `undecided` if no entry after the cursor is below the horizon
 * @throws {DeliveryError}
 * @throws {LeaseLost} if the lease is gone
 */
export async function deliverFile(
  destination: FileDestination,
  cursor: LeasedCursor,
  { reading, log, keepMs = LEASE_MS / 3 }: FileDelivery,
): Promise<'delivered' | 'undecided'> {
  const { leased, lease } = cursor;
  const progress = { at: performance.now(), isWaiting: false };
  lease.keep(keepMs, {
    isStalled: () => !progress.isWaiting && performance.now() - progress.at > STALLED_MS,
    failed: (error) => log.warn({ err: error, ...fieldsOf(leased) }, 'lease of a stream was not renewed'),
  });
  return deliverOne(destination, cursor, { reading, progress });
}

/** Time of the last progress of a file, and whether it is waiting on purpose. */
interface Progress {
  at: number;
  isWaiting: boolean;
}

async function deliverOne(
  destination: FileDestination,
  cursor: LeasedCursor,
  { reading, progress }: { reading: LogReading; progress: Progress },
): Promise<'delivered' | 'undecided'> {
  const { leased } = cursor;
  const { signal } = cursor.lease;
  const { workspaceId, planned, fileHour, position, place } = leased;
  const from = { position, place };
  // A planned file is read beyond the horizon. Such reads may have gaps and must not be shared with other
  // destinations.
  const source = planned ? reading.source.withoutSharing() : reading.source;
  const read = openReader(source, workspaceId, from);
  // A planned file does not yield, because it may already exist under its name.
  const ageOf = agesBy(leased);
  let isBegun = planned !== undefined;
  const yieldOnce = async (at: Date) => {
    progress.isWaiting = true;
    if (!isBegun) await reading.yielding.file(ageOf(at), leased.gatherMs, signal);
    progress.isWaiting = false;
    isBegun = true;
  };
  const next = async () => {
    signal.throwIfAborted();
    progress.at = performance.now();
    return read(planned ? LARGEST_ID : reading.horizon(), yieldOnce);
  };
  const first = await firstPage(next, signal, planned ? 1 : MAX_IDLE_POLLS);
  // The entries of a planned file may have been trimmed since.
  const none = planned && { read: [], end: planned };
  const page = first ?? none;
  if (!page) return 'undecided';
  const again = planned && fileHour ? { end: planned, hour: fileHour } : undefined;
  const { gathered, pieces } = gather({
    ...{ from, first: page, next, planned: again, lastHour: fileHour },
  });
  const file = await destination.write(pieces, signal);
  progress.at = performance.now();
  try {
    const { end, messages, hour } = gathered;
    if (messages > 0 && hour) {
      await cursor.plan({ ...end, hour });
      await file.put({ workspaceId, hour, from, to: end }, signal);
      cursor.count(messages);
    }
    await cursor.advance(end, messages);
    return 'delivered';
  } finally {
    await file.discard();
  }
}

/** Reads the first page; waits briefly if no entry is below the horizon yet. */
async function firstPage(
  next: () => Promise<Page | undefined>,
  signal: AbortSignal,
  maxPolls: number,
): Promise<Page | undefined> {
  for (let polls = 0; polls < maxPolls; polls++) {
    if (polls > 0) await rest(IDLE_POLL_MS, signal);
    const page = await next();
    if (page) return page;
  }
  return undefined;
}

/**
 * Maximum bytes of the envelopes of a file, and maximum pages, because entries may have no message. A file
 * ends at the first limit that is reached.
 */
const FILE_LIMITS = { bytes: 67_108_864, pages: 2000 };

const HOUR_MS = 3_600_000;

interface GatherOptions {
  from: LogPosition;
  first: Page;
  /** Returns the next page. */
  next(): Promise<Page | undefined>;
  /** End and hour of a file that an earlier attempt has planned. */
  planned?: { end: LogPosition; hour: Date } | undefined;
  /** Hour of the previous file. Hours never decrease. */
  lastHour: Date | null;
  limits?: typeof FILE_LIMITS;
}

interface Gathered {
  /** The position up to which all entries are in the file or have no message. */
  end: LogPosition;
  messages: number;
  /** Hour of the first message; absent without a message. */
  hour?: FileRange['hour'];
}

/**
 * Collects the content of a file: up to its planned end, or until it is large enough, a later hour begins, or
 * the horizon is reached. The content is read while it is consumed, one page at a time.
 */
export function gather(options: GatherOptions): { gathered: Gathered; pieces: AsyncIterable<Piece> } {
  const { from, first, next, planned, lastHour, limits = FILE_LIMITS } = options;
  const gathered: Gathered = planned ? { ...planned, messages: 0 } : { end: from, messages: 0 };
  let bytes = 0;

  /** @returns the envelope, or undefined if the file ends before it */
  function accept({ row, index, message, envelope, bytes: length }: ReadMessage): string | undefined {
    if (planned && isAfter(cursorAfter(row, index), planned.end)) return undefined;
    const size = length + 1;
    const hour = hourOf(message.time);
    gathered.hour ??= lastHour && lastHour > hour ? lastHour : hour;
    const isFull = gathered.messages > 0 && bytes + size > limits.bytes;
    if (!planned && (isFull || hour > gathered.hour)) return undefined;
    bytes += size;
    return envelope;
  }

  /** @returns whether the file continues after the page */
  function take({ read, end }: Page): { piece: Piece; continues: boolean } {
    const piece: Piece = { messages: [], envelopes: [] };
    for (const one of read) {
      const envelope = accept(one);
      if (envelope === undefined) return { piece, continues: false };
      piece.messages.push(one.message);
      piece.envelopes.push(envelope);
      gathered.messages += 1;
      if (!planned) gathered.end = cursorAfter(one.row, one.index);
    }
    if (!planned) gathered.end = end;
    return { piece, continues: !planned || isAfter(planned.end, end) };
  }

  async function* pieces(): AsyncGenerator<Piece> {
    let page: Page | undefined = first;
    for (let pages = 1; page; pages++) {
      const { piece, continues } = take(page);
      yield piece;
      if (!continues || (!planned && pages >= limits.pages)) return;
      page = await next();
    }
  }

  return { gathered, pieces: pieces() };
}

const hourOf = (time: string) => new Date(Math.floor(Date.parse(time) / HOUR_MS) * HOUR_MS);

function isAfter(one: LogPosition, other: LogPosition): boolean {
  const [a, b] = [BigInt(one.position), BigInt(other.position)];
  return a === b ? one.place > other.place : a > b;
}
