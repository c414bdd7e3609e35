import type { ServerResponse } from 'node:http';
import { ApiError } from '../errors.ts';
import type { RequestInHand } from './broken-requests.ts';

/** Bytes up to which a body is read without more ado, as sent and as unpacked: two reads of a socket. */
export const SMALL_BODY = 131_072;

/** Bytes from which on a body takes longer to read than its share of a collection of garbage does. */
const HUGE_BODY = 1_048_576;

export interface ReadingSettings {
  /** Bytes that large bodies may take together. A larger body takes all of it. */
  mostBytes: number;
  /** How many may wait; whoever comes behind them is refused at once. */
  mostWaiting: number;
  /** How long one waits, in ms: less than a body may take to come. */
  patience: number;
  /** Gives back the memory of what nobody needs any more, at the price of many small requests. */
  collectGarbage(): void;
}

interface Waiting {
  weight: number;
  begin(): void;
}

/**
 * Bounds what large bodies take in memory: they are let in as long as there is room, in the order in which they came.
 * Who waits is not read from, so that the rest stays with its sender. Room is held until the request has been
 * answered, since a body goes on to be text and objects.
 */
export function createReading({ mostBytes, mostWaiting, patience, collectGarbage }: ReadingSettings) {
  const holders = new Map<ServerResponse, number>();
  const waiting = new Set<Waiting>();
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

  function untilRoom(request: RequestInHand, response: ServerResponse, weight: number): Promise<void> {
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
      const one: Waiting = {
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
    async take(request: RequestInHand, bytes: number): Promise<void> {
      const response = request.res!;
      if (response.destroyed) throw new ApiError(request.broken ?? 'bodyTooSlow');
      const weight = Math.min(bytes, mostBytes);
      if (waiting.size === 0 && held + weight <= mostBytes) return hold(response, weight);
      if (waiting.size >= mostWaiting) throw refusal();
      return untilRoom(request, response, weight);
    },
    /** Gives back what a body does not need, now that its bytes are known; of a request without room nothing. */
    shrink({ res: response }: RequestInHand, bytes: number): void {
      const weight = holders.get(response!);
      if (weight === undefined || bytes >= weight) return;
      held -= weight - bytes;
      holders.set(response!, bytes);
      letIn();
    },
    /** Whether the request has room already. */
    holds: ({ res }: RequestInHand) => holders.has(res!),
    /** Bytes that large bodies may take at this moment. */
    held: () => held,
  };
}

export type Reading = ReturnType<typeof createReading>;

function refusal(): ApiError {
  return new ApiError('unavailable', undefined, { 'Retry-After': '1' });
}
