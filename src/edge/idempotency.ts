import { createHash } from 'node:crypto';
import { ApiError } from '../errors.ts';
import type { AcceptedObject, EnvelopeRequest } from '../jobs/envelope.ts';
import type { Operation, Plan, Reply } from '../operations/operation.ts';
import type { Log } from '../platform/log.ts';
import { backOff, rest } from '../platform/poll.ts';
import { canonicalPieces, type Json } from '../profile/json.ts';
import type { GroupCommit } from '../queue/enqueue.ts';
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
  recordAnswer,
  replaceLostKey,
  takeLease,
} from '../store/idempotency-keys.ts';
import { readApplied } from '../store/ledger.ts';
import { hasLostSince } from '../store/queue-losses.ts';
import { type Answer, answerOf, NONE_REJECTED } from './reply.ts';

/** Milliseconds that a request waits for another with its key: clients give up after 2 s. */
const PATIENCE = 1700;

/** Milliseconds before the second look for the other's answer; each further one waits longer. */
const FIRST_PAUSE = 10;
/** Milliseconds between two looks at most. */
const LONGEST_PAUSE = 100;

/** The answer that everyone with the key gets. */
interface Kept extends Answer {
  /** The first request with the key, whose answer it is. */
  requestId: string;
}

/** What has to happen once. */
interface Attempt {
  /** What to write down before anything happens. Throws what refuses the request. */
  begin(): Promise<Beginning>;
  /**
   * Does it; also for what another began. A second time, under the same request id and with the entries of the outbox,
   * it has no second effect.
   */
  carryOut(begun: Beginning): Promise<Answer>;
  /** Milliseconds that this takes at most, unless its process dies or stands still. */
  lease(): number;
}

/**
 * Idempotency: what comes with one key happens once, on however many edges it arrives at the same time. Everyone gets
 * the answer that was written down first. Whoever comes while another is at it waits for that answer. When the other's
 * lease is over without one, it goes on in its place, with what stands in the outbox.
 */
export function createIdempotency(pool: Pool, log: Log) {
  /** By key and body: those who arrive here while one is at it share its answer, and ask for nothing. */
  const inHand = new Map<string, Promise<Kept>>();

  /**
   * @throws {ApiError} 422 when the key came with another request; 503 when another is at it for longer than a client
   * waits; and what `attempt` throws
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
    for (const nextPause = backOff(FIRST_PAUSE, LONGEST_PAUSE); ; ) {
      const found = await findKey(pool, key);
      if (!found) {
        const beginning = await attempt.begin();
        if (await insertKeyIfAbsent(pool, key, { ...beginning, lease: attempt.lease() }))
          return carryOut(key, attempt, beginning);
        continue;
      }
      requireSame(key, found);
      const { answer, requestId, leased } = found;
      if (answer) {
        const lost = await beginAgain(key, attempt, found);
        if (lost === undefined) return { ...answerOf(answer), requestId };
        if (await replaceLostKey(pool, key, { ...lost, lease: attempt.lease(), createdAt: found.createdAt }))
          return carryOut(key, attempt, lost);
        continue;
      }
      if (!leased && (await takeLease(pool, key, { requestId, lease: attempt.lease() })))
        return carryOut(key, attempt, found);
      const pause = nextPause();
      if (performance.now() + pause > end)
        throw new ApiError('keyInUse', { headers: { 'Retry-After': '1' } });
      await rest(pause);
    }
  }

  /**
   * Begins a request again whose answer was kept and whose objects the queue has lost. Its envelopes have the ids of the
   * first ones, so that those that have taken effect, or still wait, take effect once.
   *
   * @returns undefined when the kept answer still holds
   */
  async function beginAgain(key: Key, attempt: Attempt, found: FoundKey): Promise<Beginning | undefined> {
    const { envelopes, createdAt } = found;
    if (!envelopes || !(await hasLostSince(pool, createdAt))) return undefined;
    const ids = envelopes.filter(([, , objects]) => objects > 0).map(([id]) => id);
    if ((await readApplied(pool, ids)).size === ids.length) return undefined;
    const beginning = await attempt.begin();
    const entries = beginning.outbox && withIdsOf(envelopes, beginning.outbox.entries as LaneEntry[]);
    if (!entries) {
      log.warn(
        { request_id: found.requestId, operation: key.operation },
        'repeated request differs in its jobs from the request that the queue lost; returned the stored response',
      );
      return undefined;
    }
    log.info(
      { request_id: found.requestId, again: beginning.requestId },
      'objects of a lost request were enqueued again',
    );
    return { ...beginning, outbox: { ...beginning.outbox!, entries }, envelopes };
  }

  async function carryOut(key: Key, attempt: Attempt, begun: Beginning): Promise<Kept> {
    const { requestId } = begun;
    try {
      const done = await attempt.carryOut(begun);
      return { ...done, requestId, reply: await record(key, begun, done.reply) };
    } catch (error) {
      // What was refused had no effect, and may be sent again otherwise. Of anything else nobody knows how far it got:
      // the next one goes on.
      const letGo = error instanceof ApiError && error.status < 500;
      await (letGo ? forgetRefused : endLease)(pool, key, requestId).catch(() => {});
      throw error;
    }
  }

  /** @returns the answer that everyone gets: of several the first that was written down */
  async function record(key: Key, { requestId, outbox }: Beginning, reply: Reply): Promise<Reply> {
    try {
      if (await recordAnswer(pool, key, { ...reply, requestId })) return reply;
      const found = await findKey(pool, key);
      return (found?.requestId === requestId && found.answer) || reply;
    } catch (error) {
      log.warn({ err: error, request_id: requestId }, 'response for an Idempotency-Key was not stored');
      // The one that is written down already, and that the next one will give.
      return outbox?.answer ?? reply;
    }
  }

  /**
   * For what has no effect: the answer is made anew each time.
   * @throws {ApiError} 422 when the key came with another request
   */
  async function read(key: Key, requestId: string): Promise<void> {
    const found = await findKey(pool, key);
    if (found) return requireSame(key, found);
    if (await insertKeyIfAbsent(pool, key, { requestId })) return;
    const other = await findKey(pool, key);
    if (other) requireSame(key, other);
  }

  return { perform, read };
}

export type Idempotency = ReturnType<typeof createIdempotency>;

function requireSame(key: Key, found: FoundKey): void {
  if (!found.fingerprint.equals(key.fingerprint)) throw new ApiError('idempotencyKeyReused');
}

/** The answer that everyone with the same `Idempotency-Key` gets. */
export async function idempotentAnswer(answering: Promise<Kept>, requestId: string): Promise<Answer> {
  const { requestId: first, ...answer } = await answering;
  return first === requestId ? answer : { ...answer, repeats: first };
}

/** A key as the specification of structured headers writes a string. */
const QUOTED = /^"((?:[^"\\]|\\["\\])*)"$/;
/** A few milliseconds' work. */
const PIECES_IN_A_ROW = 4;
const VISIBLE = /^[!-~]{1,255}$/;

/** What the key of a request has to mean one request of. */
export interface Asked {
  /** The workspace, or the company of a SCIM token. */
  ownerId: string;
  operation: Operation;
  params: Record<string, string>;
  query: Record<string, Json>;
  body: Record<string, Json>;
}

/**
 * What a request's `Idempotency-Key` means; undefined: it has none, or its method needs none. Bodies are the same
 * when they say the same: space and the order of members make no difference, since clients make the text anew.
 *
 * @param header as it was sent, quoted or not
 * @throws {ApiError} 400 when it can be no key
 */
export async function readIdempotencyKey(
  header: string | string[] | undefined,
  { ownerId, operation, params, query, body }: Asked,
): Promise<Key | undefined> {
  if (header === undefined || operation.method !== 'POST') return undefined;
  const sent = String(header).trim();
  const key = QUOTED.exec(sent)?.[1]?.replace(/\\(["\\])/g, '$1') ?? sent;
  if (!VISIBLE.test(key)) throw new ApiError('invalidIdempotencyKey');
  const fingerprint = createHash('sha256');
  let pieces = 0;
  for (const piece of canonicalPieces([params, query, body])) {
    fingerprint.update(piece);
    // Others get their turn while a large body is read.
    if (++pieces % PIECES_IN_A_ROW === 0) await new Promise(setImmediate);
  }
  return {
    ownerId,
    operation: operation.id,
    hash: createHash('sha256').update(key).digest(),
    fingerprint: fingerprint.digest(),
  };
}

/** Milliseconds that handing envelopes to the lanes takes at most; a second time does no harm. */
const HANDING_OVER = 1000;

/** Milliseconds that a request waits for the workers beside that. */
const SETTLING = 1500;

/** Milliseconds that a direct operation takes at most: several statements and templates, each with its patience. */
const HANDLING = 10_000;

export interface Queued {
  queue: GroupCommit;
  request: EnvelopeRequest;
  /** @throws what refuses the request */
  makePlan(): Promise<Plan>;
  bytesOf(objects: AcceptedObject[]): number;
  /** The answer when the envelopes are on disk. */
  answer(plan: Plan, entries: LaneEntry[]): Promise<Answer>;
  /** Whether the answer waits until they have taken effect. */
  waits: boolean;
}

/**
 * A queued request once: its envelopes, whose ids are made here and nowhere else, are written down before the lanes
 * get them. Whoever finds them there hands over the same ones, which the lanes and the ledger know by their ids.
 */
export function queuedAttempt({ queue, request, makePlan, bytesOf, answer, waits }: Queued): Attempt {
  let own: { plan: Plan; bytes: number } | undefined;
  return {
    async begin() {
      const plan = await makePlan();
      const bytes = bytesOf(plan.objects);
      own = { plan, bytes };
      const entries = queue.pack(request, plan.objects, bytes);
      const outbox = { entries, answer: plan.reply };
      return { requestId: request.request_id, outbox, envelopes: shapeOf(entries) };
    },
    async carryOut({ requestId, outbox }) {
      const entries = outbox!.entries as LaneEntry[];
      if (requestId === request.request_id && own) {
        const { plan, bytes } = own;
        await queue.add(entries, bytes);
        return answer(plan, entries);
      }
      await queue.add(entries, JSON.stringify(entries).length);
      const accepted = entries.reduce((sum, { envelope }) => sum + envelope.objects.length, 0);
      // How the objects end is what its plan would know: the answer is the one to a caller who has waited in vain.
      return { reply: outbox!.answer, accepted, rejected: NONE_REJECTED };
    },
    lease: () => HANDING_OVER + (waits || own?.plan.replyOf ? SETTLING : 0),
  };
}

/**
 * A direct request once, as far as its answer gets written down. One that dies before is tried again under the same
 * request id, by which it finds what it had made.
 */
export function directAttempt(requestId: string, handle: (requestId: string) => Promise<Reply>): Attempt {
  return {
    begin: async () => ({ requestId }),
    carryOut: async (begun) => answerOf(await handle(begun.requestId)),
    lease: () => HANDLING,
  };
}
