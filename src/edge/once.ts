import { setTimeout as sleep } from 'node:timers/promises';
import { ApiError, BadRequest } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Reply } from '../operations/operation.ts';
import type { Pool } from '../store/database.ts';
import { endLease } from '../store/idempotency/end-lease.ts';
import { findKey } from '../store/idempotency/find-key.ts';
import { forgetRefused } from '../store/idempotency/forget-refused.ts';
import { insertKeyIfAbsent } from '../store/idempotency/insert-key.ts';
import type { Beginning, FoundKey, Key } from '../store/idempotency/key.ts';
import { recordAnswer } from '../store/idempotency/record-answer.ts';
import { takeLease } from '../store/idempotency/take-lease.ts';

/** Milliseconds that a request waits for another with its key: clients give up after 2 s. */
const PATIENCE = 1700;

/** Milliseconds before the second look for the other's answer; each further one waits longer. */
const FIRST_PAUSE = 10;
/** Milliseconds between two looks at most. */
const LONGEST_PAUSE = 100;

/** The answer that everyone with the key gets. */
export interface Kept {
  reply: Reply;
  /** The first request with the key, whose answer it is. */
  requestId: string;
  /** Objects that this request has handed to the lanes. */
  accepted: number;
  /** Objects that it has refused. */
  rejected: number;
}

/** What has to happen once. */
export interface Attempt {
  /** What to write down before anything happens. Throws what refuses the request. */
  begin(): Promise<Beginning>;
  /**
   * Does it. Also called for what another began: doing it a second time, under the same request id and with the same
   * staged entries, has no second effect.
   */
  carryOut(begun: Beginning): Promise<Omit<Kept, 'requestId'>>;
  /** Milliseconds that this takes at most, unless its process dies or stands still. */
  lease(): number;
}

/**
 * Lets what comes with one key happen once, on however many edges it arrives at the same time, and gives everyone the
 * answer that was written down first. Whoever comes while another is at it waits for that answer; when the other's
 * lease is over without one, it goes on in its place, with what the other has written down.
 */
export function createOnce(pool: Pool, log: Log) {
  /** By key and body: those who arrive here while one is at it share its answer, and ask for nothing. */
  const inHand = new Map<string, Promise<Kept>>();

  /**
   * @throws {ApiError} 422 when the key came with another request; 503 when another is at it for longer than a client
   * waits; and what `attempt` throws
   */
  async function once(key: Key, attempt: Attempt): Promise<Kept> {
    const name = [
      key.ownerId,
      key.operation,
      key.hash.toString('hex'),
      key.fingerprint.toString('hex'),
    ].join();
    const other = inHand.get(name);
    if (other) return { ...(await other), accepted: 0, rejected: 0 };
    const kept = settle(key, attempt).finally(() => inHand.delete(name));
    inHand.set(name, kept);
    return kept;
  }

  async function settle(key: Key, attempt: Attempt): Promise<Kept> {
    const end = performance.now() + PATIENCE;
    for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      const found = await findKey(pool, key);
      if (!found) {
        const beginning = await attempt.begin();
        if (await insertKeyIfAbsent(pool, key, beginning, attempt.lease()))
          return carryOut(key, attempt, beginning);
        continue;
      }
      requireSame(key, found);
      const { answer, requestId, leased } = found;
      if (answer) return { reply: answer, requestId, accepted: 0, rejected: 0 };
      if (!leased && (await takeLease(pool, key, requestId, attempt.lease())))
        return carryOut(key, attempt, found);
      if (performance.now() + pause > end) throw new ApiError('keyInUse', undefined, { 'Retry-After': '1' });
      await sleep(pause);
    }
  }

  async function carryOut(key: Key, attempt: Attempt, begun: Beginning): Promise<Kept> {
    const { requestId } = begun;
    try {
      const done = await attempt.carryOut(begun);
      return { ...done, requestId, reply: await record(key, begun, done.reply) };
    } catch (error) {
      // What was refused had no effect, and may be sent again otherwise. Of anything else nobody knows how far it got:
      // the next one goes on.
      const letGo = error instanceof BadRequest || (error instanceof ApiError && error.status < 500);
      await (letGo ? forgetRefused : endLease)(pool, key, requestId).catch(() => {});
      throw error;
    }
  }

  /** @returns the answer that everyone gets: of several the first that was written down */
  async function record(key: Key, { requestId, staged }: Beginning, reply: Reply): Promise<Reply> {
    try {
      if (await recordAnswer(pool, key, requestId, reply)) return reply;
      const found = await findKey(pool, key);
      return (found?.requestId === requestId && found.answer) || reply;
    } catch (error) {
      log.warn({ err: error, request_id: requestId }, 'an answer could not be kept');
      // The one that is written down already, and that the next one will give.
      return staged?.answer ?? reply;
    }
  }

  /**
   * For what has no effect: the answer is made anew each time.
   * @throws {ApiError} 422 when the key came with another request
   */
  async function read(key: Key, requestId: string): Promise<void> {
    const found = await findKey(pool, key);
    if (found) return requireSame(key, found);
    if (await insertKeyIfAbsent(pool, key, { requestId }, undefined)) return;
    const other = await findKey(pool, key);
    if (other) requireSame(key, other);
  }

  return { once, read };
}

export type Once = ReturnType<typeof createOnce>;

function requireSame(key: Key, found: FoundKey): void {
  if (!found.fingerprint.equals(key.fingerprint)) throw new ApiError('idempotencyKeyReused');
}
