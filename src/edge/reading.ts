import type { ServerResponse } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { ApiError, type ErrorName } from '../errors.ts';

/** A body that is counted, by what it takes. */
export interface Counted {
  /** It takes so many bytes more, or fewer, if it still counts. */
  grow(bytes: number): void;
  /** Its sender is known to have a key. */
  know(): void;
  /** All of it is there. */
  complete(): void;
  /** It takes nothing any more; a second time changes nothing. */
  release(): void;
}

interface Entry {
  bytes: number;
  isComplete: boolean;
  isOver: boolean;
  shed(): void;
}

/**
 * Bounds what the bodies that wait for no room take together, from their first byte to their answer. Past it the oldest
 * of a sender without a key yet is shed, then the oldest that is still on its way. An honest body comes at once, so
 * that one which is held open is the older.
 */
export function createSmallBodies(mostBytes: number) {
  /** Each in the order in which they began. */
  const strangers = new Set<Entry>();
  const arriving = new Set<Entry>();
  let held = 0;

  function release(entry: Entry): void {
    held -= entry.bytes;
    entry.bytes = 0;
    entry.isOver = true;
    strangers.delete(entry);
    arriving.delete(entry);
  }

  return {
    /** @param shed drops what there is of it */
    count(shed: () => void): Counted {
      const entry: Entry = { bytes: 0, isComplete: false, isOver: false, shed };
      strangers.add(entry);
      return {
        grow(bytes) {
          if (entry.isOver) return;
          entry.bytes += bytes;
          held += bytes;
          while (held > mostBytes) {
            const [oldest = entry] = strangers.size > 0 ? strangers : arriving;
            release(oldest);
            oldest.shed();
            if (oldest === entry) return;
          }
        },
        know() {
          if (strangers.delete(entry) && !entry.isComplete) arriving.add(entry);
        },
        complete() {
          entry.isComplete = true;
          arriving.delete(entry);
        },
        release: () => release(entry),
      };
    },
    /** Bytes that they take at this moment. */
    held: () => held,
  };
}

export type SmallBodies = ReturnType<typeof createSmallBodies>;

/** Bytes up to which a body is read without more ado, as sent and as unpacked: two reads of a socket. */
export const SMALL_BODY = 131_072;

/** A request whose body is read. */
interface Reader {
  /** Its answer, under Express's name. */
  res?: ServerResponse | undefined;
  /** Set when the rest of it cannot be read: what it was answered with. */
  broken?: ErrorName;
}

/** Bytes from which on a body takes longer to read than its share of a collection of garbage does. */
const HUGE_BODY = 1_048_576;

export interface ReadingSettings {
  /** Bytes that large bodies may take together. A larger body takes all of it. */
  mostBytes: number;
  /** Bytes that all others may take together. */
  mostSmallBytes: number;
  /** How many may wait; whoever comes behind them is refused at once. */
  mostWaiting: number;
  /** How long one waits, in ms: less than a body may take to come. */
  patience: number;
  /** Gives back the memory of what nobody needs any more, at the price of many small requests. */
  collectGarbage(): void;
}

interface WaitingReader {
  weight: number;
  begin(): void;
}

/**
 * Bounds what large bodies take in memory: they are let in as long as there is room, in the order in which they came.
 * Who waits is not read from, so that the rest stays with its sender. Room is held until the request has been
 * answered, since a body goes on to be text and objects.
 */
export function createReading({
  mostBytes,
  mostSmallBytes,
  mostWaiting,
  patience,
  collectGarbage,
}: ReadingSettings) {
  const holders = new Map<ServerResponse, number>();
  const waiting = new Set<WaitingReader>();
  let held = 0;
  let discarded = 0;

  function hold(response: ServerResponse, weight: number): void {
    held += weight;
    holders.set(response, weight);
    // It closes when it has been sent, or when nobody is there any more.
    response.once('close', () => {
      const bytes = holders.get(response)!;
      held -= bytes;
      holders.delete(response);
      // What never came has left nothing.
      if (response.req.complete) discard(bytes);
      letIn();
    });
  }

  /** What a body has left behind in memory; enough of it is swept away before others are let in. */
  function discard(bytes: number): void {
    if (bytes < HUGE_BODY) return;
    discarded += bytes;
    if (discarded < mostBytes / 4) return;
    discarded = 0;
    collectGarbage();
  }

  function letIn(): void {
    for (const next of waiting) {
      if (held + next.weight > mostBytes) return;
      next.begin();
    }
  }

  function untilRoom(request: Reader, response: ServerResponse, weight: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer);
        waiting.delete(one);
        response.off('close', gone);
      };
      const gone = () => {
        leave();
        reject(new ApiError(request.broken ?? 'bodyTooSlow'));
        letIn();
      };
      const timer = setTimeout(() => {
        leave();
        reject(refusal());
        letIn();
      }, patience);
      const one: WaitingReader = {
        weight,
        begin() {
          leave();
          hold(response, weight);
          resolve();
        },
      };
      waiting.add(one);
      response.once('close', gone);
    });
  }

  return {
    /**
     * Room for so many bytes, until the answer has been sent.
     * @throws {ApiError} 503 when too many wait, or this one has waited too long; 408 when it broke off meanwhile
     */
    async take(request: Reader, bytes: number): Promise<void> {
      const response = request.res!;
      if (response.destroyed) throw new ApiError(request.broken ?? 'bodyTooSlow');
      const weight = Math.min(bytes, mostBytes);
      if (waiting.size === 0 && held + weight <= mostBytes) return hold(response, weight);
      if (waiting.size >= mostWaiting) throw refusal();
      return untilRoom(request, response, weight);
    },
    /** Gives back what a body does not need, now that its bytes are known; of a request without room nothing. */
    shrink({ res: response }: Reader, bytes: number): void {
      const weight = holders.get(response!);
      if (weight === undefined || bytes >= weight) return;
      held -= weight - bytes;
      holders.set(response!, bytes);
      letIn();
    },
    /** Notes bytes that were used and are garbage now; large amounts are collected. */
    discard,
    /** Whether the request has room already. */
    holds: ({ res }: Reader) => holders.has(res!),
    /** Bytes that large bodies may take at this moment. */
    held: () => held,
    /** All others, which wait for no room. */
    small: createSmallBodies(mostSmallBytes),
  };
}

export type Reading = ReturnType<typeof createReading>;

function refusal(): ApiError {
  return new ApiError('tooManyBodyBytes', { headers: { 'Retry-After': '1' } });
}

let gc: (() => void) | undefined;

/** Gives back what buffers and strings take that nobody needs any more: all of them, while the event loop waits. */
export function collectGarbage(): void {
  gc ??= exposed();
  gc();
}

function exposed(): () => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc');
}
