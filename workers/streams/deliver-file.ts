import { poll, rest } from '../../src/platform/poll.ts';
import {
  advanceDestination,
  type LeasedDestination,
  renewDestination,
} from '../../src/store/stream-leases.ts';
import type { FileDestination } from '../../src/streams/destination.ts';
import { LEASE_MS, LOOK_MS, LOOKS, type StreamContext } from './context.ts';
import { gather } from './gather.ts';
import { openReader, type Page } from './read.ts';
import { agesBy } from './yielding.ts';

/** Behind every id: what a planned file has was decided when it was planned. */
const BEHIND_ALL = '9223372036854775807';

export interface FileContext extends StreamContext {
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
  leaving: AbortSignal,
): Promise<'delivered' | 'undecided' | 'lost'> {
  const { pool, log, keepMs = LEASE_MS / 3 } = context;
  const lost = new AbortController();
  const keeping = poll(
    keepMs,
    async () => {
      if (!(await renewDestination(pool, leased, { milliseconds: LEASE_MS })))
        lost.abort(new Error('the lease is gone'));
    },
    (error) => log.warn({ err: error }, 'the lease of a stream was not renewed'),
  );
  try {
    return await deliverOne(leased, context, AbortSignal.any([leaving, lost.signal]));
  } catch (error) {
    if (lost.signal.aborted) return 'lost';
    throw error;
  } finally {
    await keeping.stop();
  }
}

async function deliverOne(
  leased: LeasedDestination,
  context: FileContext,
  signal: AbortSignal,
): Promise<'delivered' | 'undecided' | 'lost'> {
  const { pool, destination, metrics } = context;
  const { workspaceId, planned, fileHour, position, place } = leased;
  const from = { position, place };
  // Beyond what is decided there may be gaps, which nobody else is to take for the whole.
  const source = planned ? context.source.apart() : context.source;
  const read = openReader(source, workspaceId, from);
  // A file that was being put is put as soon as can be: it is there under its name, perhaps.
  const ageOf = agesBy(leased);
  let isBegun = planned !== undefined;
  const giveWay = async (at: Date) => {
    if (!isBegun) await context.yielding.file(ageOf(at), leased.gatherMs, signal);
    isBegun = true;
  };
  const next = async () => {
    signal.throwIfAborted();
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
  try {
    const { end, messages, hour } = gathered;
    if (messages > 0 && hour) {
      const plan = { milliseconds: LEASE_MS, file: { ...end, hour } };
      if (!(await renewDestination(pool, leased, plan))) return 'lost';
      await file.put({ workspaceId, hour, from, to: end }, signal);
      metrics.delivered(leased, messages);
    }
    const moved = { ...end, delivered: messages, milliseconds: LEASE_MS };
    return (await advanceDestination(pool, leased, moved)) ? 'delivered' : 'lost';
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
