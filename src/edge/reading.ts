import type { ServerResponse } from 'node:http';
import { ApiError, type ErrorName } from '../errors.ts';
import { ByteBudget, type Reservation } from '../platform/byte-budget.ts';

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

/**
 * Bounds the memory of bodies. Large ones are admitted in the order of their arrival as long as there is room. A waiting
 * request is not read from, so the rest of its body stays with its sender. Room is held until the request has been
 * answered, because the body is later converted to text and objects. Small bodies never wait.
 */
export function createReading({
  maxBytes,
  maxSmallBytes,
  maxWaiting,
  patience,
  collectGarbage,
}: ReadingSettings) {
  const large = new ByteBudget({ maxBytes, maxWaiting, patience });
  const holders = new Map<ServerResponse, Reservation>();
  let discarded = 0;

  /** Counts memory that a body has left as garbage. Enough of it is collected before others are admitted. */
  function discard(bytes: number): void {
    if (bytes < HUGE_BODY) return;
    discarded += bytes;
    if (discarded < maxBytes / 4) return;
    discarded = 0;
    collectGarbage();
  }

  return {
    /**
     * Reserves room for this many bytes until the answer has been sent.
     * @throws {ApiError} 503 if too many requests wait, or this one has waited too long; 408 if it was aborted
     * meanwhile
     */
    async take(request: Reader, bytes: number): Promise<void> {
      const response = request.res!;
      const aborted = () => new ApiError(request.broken ?? 'bodyTooSlow');
      if (response.destroyed) throw aborted();
      const gone = new AbortController();
      const abort = () => gone.abort(aborted());
      // The response closes when it has been sent or when its client has disconnected.
      response.once('close', abort);
      const reservation = await large.reserveInTurn(bytes, gone.signal);
      response.off('close', abort);
      if (!reservation) throw refusal();
      const release = () => {
        holders.delete(response);
        // An incomplete body has left no garbage.
        if (response.req.complete) discard(reservation.bytes);
        reservation.release();
      };
      // The client can have disconnected after the room was reserved.
      if (response.destroyed) {
        release();
        throw aborted();
      }
      holders.set(response, reservation);
      response.once('close', release);
    },
    /** Returns the room that a body of this size does not need. Has no effect on a request without room. */
    shrink({ res: response }: Reader, bytes: number): void {
      const reservation = holders.get(response!);
      if (reservation) reservation.grow(Math.min(0, bytes - reservation.bytes));
    },
    /** Counts bytes that have become garbage; large amounts are collected. */
    discard,
    /** Whether the request has room already. */
    holds: ({ res }: Reader) => holders.has(res!),
    /** Bytes that are reserved for large bodies now. */
    held: () => large.held,
    /** All other bodies, which do not wait for room. */
    small: new ByteBudget({ maxBytes: maxSmallBytes }),
  };
}

export type Reading = ReturnType<typeof createReading>;

function refusal(): ApiError {
  return new ApiError('tooManyBodyBytes', { headers: { 'Retry-After': '1' } });
}
