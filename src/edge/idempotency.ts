import { ApiError } from '../errors.ts';
import type { AcceptedRequest } from '../jobs/envelope.ts';
import type { Reply } from '../operations/operation.ts';
import type { Log } from '../platform/log.ts';
import { backOff, rest } from '../platform/poll.ts';
import type { GroupCommit } from '../queue/enqueue.ts';
import { handOver } from '../queue/hand-over.ts';
import type { LaneEntry } from '../queue/lanes.ts';
import { shapeOf, withIdsOf } from '../queue/pack.ts';
import type { Pool } from '../store/database.ts';
import {
  type Beginning,
  endLease,
  type FoundKey,
  findKey,
  forgetRefused,
  insertKeyIfAbsent,
  type Key,
  type KeyLease,
  recordAnswer,
  replaceLostKey,
  takeLease,
} from '../store/idempotency-keys.ts';
import { readApplied } from '../store/ledger.ts';
import { hasLostSince } from '../store/queue-losses.ts';
import type { EnqueuePlan, ObjectsPlan } from './plan-request.ts';
import { type Answer, answerOf, NONE_REJECTED } from './reply.ts';

/** Milliseconds that a request waits for another request with its key. Clients time out after 2 s. */
const PATIENCE = 1700;

/** Milliseconds before the second check for the other request's answer. Each further check waits longer. */
const FIRST_PAUSE_MS = 10;
/** Maximum milliseconds between two checks. */
const MAX_PAUSE_MS = 100;

/** The stored answer, which every request with the key gets. */
interface Kept extends Answer {
  /** Id of the first request with the key, which created the answer. */
  requestId: string;
}

/** The steps of a request that must take effect once. */
interface Attempt {
  /** Returns what to store before the request takes effect. Throws if the request is refused. */
  begin(): Promise<Beginning>;
  /**
   * Executes the request, or completes one that another process began. A second execution with the same request id
   * and the entries of the outbox has no second effect.
   */
  carryOut(begun: Beginning): Promise<Answer>;
  /** Maximum milliseconds that this takes, unless its process dies or freezes. */
  lease(): number;
}

/**
 * Idempotency: requests with one key take effect once, even if they arrive at several web processes at the same time.
 * All of them get the answer that was stored first. A request that arrives during the execution waits for that
 * answer. If the lease of the first request expires without an answer, a later request completes it from the outbox.
 */
export function createIdempotency(pool: Pool, log: Log) {
  /** Running requests by key and body. Further ones in this process share the answer without a query. */
  const inHand = new Map<string, Promise<Kept>>();

  /**
   * @throws {ApiError} 422 if the key was used for another request; 503 if another request with the key runs for
   * longer than a client waits; and errors of `attempt`
   */
  async function perform(key: Key, attempt: Attempt): Promise<Kept> {
    const name = [
      key.ownerId,
      key.operation,
      key.hash.toString('hex'),
      key.fingerprint.toString('hex'),
    ].join();
    const other = inHand.get(name);
    if (other) {
      const { reply, requestId } = await other;
      return { ...answerOf(reply), requestId };
    }
    const kept = carryOutOnce(key, attempt).finally(() => inHand.delete(name));
    inHand.set(name, kept);
    return kept;
  }

  async function carryOutOnce(key: Key, attempt: Attempt): Promise<Kept> {
    const end = performance.now() + PATIENCE;
    for (const nextPause = backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS); ; ) {
      const stored = await findKey(pool, key);
      if (!stored) {
        const beginning = await attempt.begin();
        const inserted = await insertKeyIfAbsent(pool, key, { ...beginning, lease: attempt.lease() });
        if (inserted) return carryOut(key, attempt, { ...beginning, ...inserted });
        continue;
      }
      requireSame(key, stored);
      const { answer, requestId, leased } = stored;
      if (answer) {
        const lost = await beginAgain(key, attempt, stored);
        if (lost === undefined) return { ...answerOf(answer), requestId };
        const again = { ...lost, lease: attempt.lease(), createdAt: stored.createdAt };
        const replaced = await replaceLostKey(pool, key, again);
        if (replaced) return carryOut(key, attempt, { ...lost, ...replaced });
        continue;
      }
      const taken = leased ? undefined : await takeLease(pool, key, { requestId, lease: attempt.lease() });
      if (taken) return carryOut(key, attempt, { ...stored, ...taken });
      const pause = nextPause();
      if (performance.now() + pause > end)
        throw new ApiError('keyInUse', { headers: { 'Retry-After': '1' } });
      await rest(pause);
    }
  }

  /**
   * Starts a request again whose answer is stored and whose objects the queue has lost. Its envelopes get the ids of
   * the first ones, so that envelopes that have taken effect, or still wait, take effect once.
   *
   * @returns undefined if the stored answer still holds
   */
  async function beginAgain(key: Key, attempt: Attempt, stored: FoundKey): Promise<Beginning | undefined> {
    const { envelopes, createdAt } = stored;
    if (!envelopes || !(await hasLostSince(pool, createdAt))) return undefined;
    const ids = envelopes.filter(([, , objects]) => objects > 0).map(([id]) => id);
    if ((await readApplied(pool, ids)).size === ids.length) return undefined;
    const beginning = await attempt.begin();
    const entries = beginning.outbox && withIdsOf(envelopes, beginning.outbox.entries as LaneEntry[]);
    if (!entries) {
      log.warn(
        { request_id: stored.requestId, operation: key.operation },
        'repeated request differs in its jobs from the request that the queue lost; returned the stored response',
      );
      return undefined;
    }
    log.info(
      { request_id: stored.requestId, again: beginning.requestId },
      'objects of a lost request were enqueued again',
    );
    return { ...beginning, outbox: { ...beginning.outbox!, entries }, envelopes };
  }

  async function carryOut(key: Key, attempt: Attempt, begun: Beginning & KeyLease): Promise<Kept> {
    const { requestId } = begun;
    try {
      const done = await attempt.carryOut(begun);
      return { ...done, requestId, reply: await record(key, begun, done.reply) };
    } catch (error) {
      // A refused request had no effect, so its key may be used for another request. After any other error it is
      // unknown how far the request got, so the next request completes it.
      const letGo = error instanceof ApiError && error.status < 500;
      await (letGo ? forgetRefused : endLease)(pool, key, begun).catch(() => {});
      throw error;
    }
  }

  /** @returns the answer for all requests with the key: the one that was stored first */
  async function record(key: Key, { requestId, outbox }: Beginning, reply: Reply): Promise<Reply> {
    try {
      if (await recordAnswer(pool, key, { ...reply, requestId })) return reply;
      const stored = await findKey(pool, key);
      return (stored?.requestId === requestId && stored.answer) || reply;
    } catch (error) {
      log.warn({ err: error, request_id: requestId }, 'response for an Idempotency-Key was not stored');
      // The answer in the outbox is stored already, and the next request will return it.
      return outbox?.answer ?? reply;
    }
  }

  /**
   * For operations without effects, which compute their answer each time.
   * @throws {ApiError} 422 if the key was used for another request
   */
  async function read(key: Key, requestId: string): Promise<void> {
    const stored = await findKey(pool, key);
    if (stored) return requireSame(key, stored);
    if (await insertKeyIfAbsent(pool, key, { requestId })) return;
    const other = await findKey(pool, key);
    if (other) requireSame(key, other);
  }

  return { perform, read };
}

export type Idempotency = ReturnType<typeof createIdempotency>;

function requireSame(key: Key, stored: FoundKey): void {
  if (!stored.fingerprint.equals(key.fingerprint)) throw new ApiError('idempotencyKeyReused');
}

/** The answer that every request with the same `Idempotency-Key` gets. */
export async function idempotentAnswer(answering: Promise<Kept>, requestId: string): Promise<Answer> {
  const { requestId: first, ...answer } = await answering;
  return first === requestId ? answer : { ...answer, repeats: first };
}

/** Maximum milliseconds to add envelopes to the lanes. Adding them twice is harmless. */
const HANDING_OVER = 1000;

/** Additional milliseconds that a request waits for the workers. */
const SETTLING = 1500;

/** Maximum milliseconds of a direct operation: several statements and templates, each with its own timeout. */
const HANDLING = 10_000;

interface QueuedSteps {
  plan: EnqueuePlan;
  /** The answer once the envelopes are on disk. */
  answer(planned: ObjectsPlan, entries: LaneEntry[]): Promise<Answer>;
}

/**
 * Executes a queued request once. The ids of its envelopes are created only here, and the envelopes are stored in the
 * outbox before they are added to the lanes. A later attempt adds the stored envelopes, which the lanes and the
 * ledger recognize by their ids.
 */
export function queuedAttempt(
  queue: Pick<GroupCommit, 'pack' | 'add' | 'lanes'>,
  request: AcceptedRequest,
  { plan, answer }: QueuedSteps,
): Attempt {
  let own: ObjectsPlan | undefined;

  /** Adds envelopes without retries: the client waits for at most 2 s and retries the request itself. */
  function handOverOnce(entries: LaneEntry[], bytes: number): Promise<unknown> {
    const add = (present: LaneEntry[]) => queue.add(present, bytes);
    return handOver(entries, { lanes: queue.lanes, add }, { patience: 0 });
  }

  return {
    async begin() {
      own = await plan.planObjects();
      const entries = queue.pack(request, own.objects, own.bytes);
      const outbox = { entries, answer: own.answer.reply };
      return { requestId: request.request_id, outbox, envelopes: shapeOf(entries) };
    },
    async carryOut({ requestId, outbox }) {
      const entries = outbox!.entries as LaneEntry[];
      if (requestId === request.request_id && own) {
        const planned = own;
        await handOverOnce(entries, planned.bytes);
        return answer(planned, entries);
      }
      await handOverOnce(entries, JSON.stringify(entries).length);
      const accepted = entries.reduce((sum, { envelope }) => sum + envelope.objects.length, 0);
      // The outcome of the objects would need the plan, which is not stored, so the answer is that of a wait that
      // timed out.
      return { reply: outbox!.answer, accepted, rejected: NONE_REJECTED };
    },
    lease: () => HANDING_OVER + ((own?.isAwaited ?? plan.waitMs !== undefined) ? SETTLING : 0),
  };
}

/**
 * Executes a direct request once, provided that its answer gets stored. If the process dies before that, the request
 * is executed again under the same request id, by which the operation finds what it has created.
 */
export function directAttempt(requestId: string, handle: (requestId: string) => Promise<Reply>): Attempt {
  return {
    begin: async () => ({ requestId }),
    carryOut: async (begun) => answerOf(await handle(begun.requestId)),
    lease: () => HANDLING,
  };
}
