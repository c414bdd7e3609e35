import { poll, rest } from '../../src/platform/poll.ts';
import { linkSignals } from '../../src/platform/time-limit.ts';
import {
  advanceDestination,
  type LeasedDestination,
  renewDestination,
} from '../../src/store/stream-leases.ts';
import type { FileDestination, FileRange, LogPlace, Piece } from '../../src/streams/destination.ts';
import { agesBy, fieldsOf, LEASE_MS, type LeasedContext, LOOK_MS, LOOKS } from './context.ts';
import { cursorBehind, openReader, type Page } from './read.ts';
import type { Told } from './source.ts';

/**
 * A file whose work has come no further for so many milliseconds keeps its lease no longer. A Parquet file may wait for
 * ten minutes until others are written.
 */
const STALLED_MS = 900_000;

/** Behind every id: what a planned file has was decided when it was planned. */
const BEHIND_ALL = '9223372036854775807';

interface FileContext extends LeasedContext {
  destination: FileDestination;
}

/**
 * Delivers one file: the one that was being put, to the same end and by the same name, else what is behind the cursor. Before
 * it is put, its end is stored with the lease; the cursor moves when it is there.
 * @returns `lost`: the lease is gone; `undecided`: nothing is decided of what waits
 * @throws {DeliveryError}
 */
export async function deliverFile(
  leased: LeasedDestination,
  context: FileContext,
): Promise<'delivered' | 'undecided' | 'lost'> {
  const { pool, log, lease, keepMs = LEASE_MS / 3 } = context;
  const lost = new AbortController();
  const linked = linkSignals({ signals: [lease.signal, lost.signal] });
  const progress = { at: performance.now(), isWaiting: false };
  const keeping = poll(
    keepMs,
    async () => {
      if (!progress.isWaiting && performance.now() - progress.at > STALLED_MS) return;
      if (await renewDestination(pool, leased, { milliseconds: LEASE_MS })) lease.renew();
      else lost.abort(new Error('the lease is gone'));
    },
    (error) => log.warn({ err: error, ...fieldsOf(leased) }, 'lease of a stream was not renewed'),
  );
  try {
    return await deliverOne(leased, { ...context, progress }, linked.signal);
  } catch (error) {
    if (lost.signal.aborted) return 'lost';
    throw error;
  } finally {
    linked.release();
    await keeping.stop();
  }
}

/** When a file last came further, and whether it waits for others by design. */
interface Progress {
  at: number;
  isWaiting: boolean;
}

async function deliverOne(
  leased: LeasedDestination,
  context: FileContext & { progress: Progress },
  signal: AbortSignal,
): Promise<'delivered' | 'undecided' | 'lost'> {
  const { pool, destination, metrics, progress } = context;
  const { workspaceId, planned, fileHour, position, place } = leased;
  const from = { position, place };
  // Beyond what is decided there may be gaps, which nobody else is to take for the whole.
  const source = planned ? context.source.apart() : context.source;
  const read = openReader(source, workspaceId, from);
  // A file that was being put is put as soon as can be: it is there under its name, perhaps.
  const ageOf = agesBy(leased);
  let isBegun = planned !== undefined;
  const giveWay = async (at: Date) => {
    progress.isWaiting = true;
    if (!isBegun) await context.yielding.file(ageOf(at), leased.gatherMs, signal);
    progress.isWaiting = false;
    isBegun = true;
  };
  const next = async () => {
    signal.throwIfAborted();
    progress.at = performance.now();
    return read(planned ? BEHIND_ALL : context.horizon(), giveWay);
  };
  const first = await firstPage(next, signal, planned ? 1 : LOOKS);
  // What was planned may have been trimmed since.
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
      const plan = { milliseconds: LEASE_MS, file: { ...end, hour } };
      if (!(await renewDestination(pool, leased, plan))) return 'lost';
      await file.put({ workspaceId, hour, from, to: end }, signal);
      metrics.delivered(leased, messages);
    }
    const moved = { ...end, delivered: messages, milliseconds: LEASE_MS };
    if (!(await advanceDestination(pool, leased, moved))) return 'lost';
    await context.lease.progress();
    return 'delivered';
  } finally {
    await file.discard();
  }
}

/** Waits a little for the horizon. */
async function firstPage(
  next: () => Promise<Page | undefined>,
  signal: AbortSignal,
  looks: number,
): Promise<Page | undefined> {
  for (let look = 0; look < looks; look++) {
    if (look > 0) await rest(LOOK_MS, signal);
    const page = await next();
    if (page) return page;
  }
  return undefined;
}

/** Of the envelopes of a file; and pages, as entries may have nothing to tell. A file ends with the first that is reached. */
const MOST = { bytes: 67_108_864, pages: 2000 };

const HOUR_MS = 3_600_000;

interface GatherOptions {
  from: LogPlace;
  first: Page;
  /** Gives the page behind the last one. */
  next(): Promise<Page | undefined>;
  /** Where the file ends and the hour that it is of, where it was begun before. */
  planned?: { end: LogPlace; hour: Date } | undefined;
  /** The hour of the file before it: hours do not go back. */
  lastHour: Date | null;
  most?: typeof MOST;
}

interface Gathered {
  /** How far it has come: everything up to here is in the file, or has nothing to tell. */
  end: LogPlace;
  messages: number;
  /** That of the first message; absent without one. */
  hour?: FileRange['hour'];
}

/**
 * What goes into one file: up to its planned end, else until it is large, a later hour begins, or nothing more is decided.
 * What is in it is read as it is taken, a page at a time.
 */
export function gather(options: GatherOptions): { gathered: Gathered; pieces: AsyncIterable<Piece> } {
  const { from, first, next, planned, lastHour, most = MOST } = options;
  const gathered: Gathered = planned ? { ...planned, messages: 0 } : { end: from, messages: 0 };
  let bytes = 0;

  /** @returns the envelope; undefined: the file ends before it */
  function taken({ row, place, message, envelope, bytes: length }: Told): string | undefined {
    if (planned && isBehind(cursorBehind(row, place), planned.end)) return undefined;
    const size = length + 1;
    const hour = hourOf(message.time);
    gathered.hour ??= lastHour && lastHour > hour ? lastHour : hour;
    const isFull = gathered.messages > 0 && bytes + size > most.bytes;
    if (!planned && (isFull || hour > gathered.hour)) return undefined;
    bytes += size;
    return envelope;
  }

  /** @returns whether the file goes on behind it */
  function take({ read, end }: Page): { piece: Piece; goesOn: boolean } {
    const piece: Piece = { messages: [], envelopes: [] };
    for (const one of read) {
      const envelope = taken(one);
      if (envelope === undefined) return { piece, goesOn: false };
      piece.messages.push(one.message);
      piece.envelopes.push(envelope);
      gathered.messages += 1;
      if (!planned) gathered.end = cursorBehind(one.row, one.place);
    }
    if (!planned) gathered.end = end;
    return { piece, goesOn: !planned || isBehind(planned.end, end) };
  }

  async function* pieces(): AsyncGenerator<Piece> {
    let page: Page | undefined = first;
    for (let pages = 1; page; pages++) {
      const { piece, goesOn } = take(page);
      yield piece;
      if (!goesOn || (!planned && pages >= most.pages)) return;
      page = await next();
    }
  }

  return { gathered, pieces: pieces() };
}

const hourOf = (time: string) => new Date(Math.floor(Date.parse(time) / HOUR_MS) * HOUR_MS);

function isBehind(one: LogPlace, other: LogPlace): boolean {
  const [a, b] = [BigInt(one.position), BigInt(other.position)];
  return a === b ? one.place > other.place : a > b;
}
