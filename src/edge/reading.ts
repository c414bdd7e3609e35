import type { ServerResponse } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { ApiError, type ErrorName } from '../errors.ts';

/** A body whose memory is counted. */
interface Counted {
  /** Adds bytes, or subtracts them if negative. Has no effect after the body was released. */
  grow(bytes: number): void;
  /** Marks its sender as having a valid key. */
  know(): void;
  /** Marks the body as received completely. */
  complete(): void;
  /** Stops counting the body. Repeated calls have no effect. */
  release(): void;
}

interface Entry {
  bytes: number;
  isComplete: boolean;
  isOver: boolean;
  shed(): void;
}

/**
 * Bounds the memory of all bodies that do not wait for room, from their first byte to their answer. Above the bound,
 * the oldest body of a sender without a verified key is dropped, or else the oldest body that is still arriving. A
 * legitimate body arrives at once, so a body that is held open is older.
 */
export function createSmallBodies(maxBytes: number) {
  /** Both in the order in which the bodies began. */
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
    /** @param shed discards the body */
    count(shed: () => void): Counted {
      const entry: Entry = { bytes: 0, isComplete: false, isOver: false, shed };
      strangers.add(entry);
      return {
        grow(bytes) {
          if (entry.isOver) return;
          entry.bytes += bytes;
          held += bytes;
          while (held > maxBytes) {
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
    /** Bytes in use now. */
    held: () => held,
  };
}

export type SmallBodies = ReturnType<typeof createSmallBodies>;

/** Bytes up to which a body is read without waiting for room, both as sent and as unpacked: two reads of a socket. */
export const SMALL_BODY = 131_072;

/** A request whose body is being read. */
interface Reader {
  /** Response of the request, under Express's name. */
  res?: ServerResponse | undefined;
  /** Set if the rest cannot be read: the error that it was answered with. */
  broken?: ErrorName;
}

/** Bytes above which reading a body takes longer than its share of a garbage collection. */
const HUGE_BODY = 1_048_576;

interface ReadingSettings {
  /** Maximum bytes of all large bodies together. A body larger than this takes all of it. */
  maxBytes: number;
  /** Maximum bytes of all other bodies together. */
  maxSmallBytes: number;
  /** Maximum number of waiting requests. Further ones are refused at once. */
  maxWaiting: number;
  /** Maximum wait in milliseconds, less than a body may take to arrive. */
  patience: number;
  /** Frees the memory of unreachable buffers, which takes as long as many small requests. */
  collectGarbage(): void;
}

interface WaitingReader {
  weight: number;
  begin(): void;
}

/**
 * Bounds the memory of large bodies: requests are admitted in the order of their arrival as long as there is room. A
 * waiting request is not read from, so the rest of its body stays with its sender. Room is held until the request has
 * been answered, because the body is later converted to text and objects.
 */
export function createReading({
  maxBytes,
  maxSmallBytes,
  maxWaiting,
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
    // The response closes when it has been sent or when its client has disconnected.
    response.once('close', () => {
      const bytes = holders.get(response)!;
      held -= bytes;
      holders.delete(response);
      // An incomplete body has left no garbage.
      if (response.req.complete) discard(bytes);
      letIn();
    });
  }

  /** Counts memory that a body has left as garbage. Enough of it is collected before others are admitted. */
  function discard(bytes: number): void {
    if (bytes < HUGE_BODY) return;
    discarded += bytes;
    if (discarded < maxBytes / 4) return;
    discarded = 0;
    collectGarbage();
  }

  function letIn(): void {
    for (const next of waiting) {
      if (held + next.weight > maxBytes) return;
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
     * Reserves room for this many bytes until the answer has been sent.
     * @throws {ApiError} 503 if too many requests wait, or this one has waited too long; 408 if it was aborted
     * meanwhile
     */
    async take(request: Reader, bytes: number): Promise<void> {
      const response = request.res!;
      if (response.destroyed) throw new ApiError(request.broken ?? 'bodyTooSlow');
      const weight = Math.min(bytes, maxBytes);
      if (waiting.size === 0 && held + weight <= maxBytes) return hold(response, weight);
      if (waiting.size >= maxWaiting) throw refusal();
      return untilRoom(request, response, weight);
    },
    /** Returns the room that a body of this size does not need. Has no effect on a request without room. */
    shrink({ res: response }: Reader, bytes: number): void {
      const weight = holders.get(response!);
      if (weight === undefined || bytes >= weight) return;
      held -= weight - bytes;
      holders.set(response!, bytes);
      letIn();
    },
    /** Counts bytes that have become garbage; large amounts are collected. */
    discard,
    /** Whether the request has room already. */
    holds: ({ res }: Reader) => holders.has(res!),
    /** Bytes that are reserved for large bodies now. */
    held: () => held,
    /** All other bodies, which do not wait for room. */
    small: createSmallBodies(maxSmallBytes),
  };
}

export type Reading = ReturnType<typeof createReading>;

function refusal(): ApiError {
  return new ApiError('tooManyBodyBytes', { headers: { 'Retry-After': '1' } });
}

let gc: (() => void) | undefined;

/** Collects all garbage, including unreachable buffers and strings. Blocks the event loop. */
export function collectGarbage(): void {
  gc ??= exposed();
  gc();
}

function exposed(): () => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc');
}
