import { setTimeout as sleep } from 'node:timers/promises';
import { jobs } from '../jobs/catalog.ts';
import type { AcceptedObject, EnvelopeRequest } from '../jobs/envelope.ts';
import { newId } from '../platform/ids.ts';
import { within } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { FlowProducer } from './bullmq.ts';
import { openQueue, type QueueConnection } from './connection.ts';
import { createCompany, createFlood, createFlushTurns, type FlushTurns, type InLine } from './flush-turns.ts';
import { inPresentLanes } from './installation.ts';
import { type LaneEntry, type LaneProducer, laneName, QueueUnavailable } from './lanes.ts';
import { type Additions, countAdditions } from './loss.ts';
import { whenDisconnected } from './open-redis.ts';
import { MAX_ENVELOPE_BYTES, type Packable, pack } from './pack.ts';
import { addWhereTheLanesAre, waitForReplicas } from './replicas.ts';
import { traceFlush } from './spans.ts';
import { encodeEnvelope, type WireEnvelope } from './wire.ts';

/** Completed envelopes stay visible on the dashboard for a while, bounded by both. */
const KEEP_COMPLETED = { age: 3600, count: 25 };

/** What the backend answered for a lane entry: `[error, id]`. */
type FlowAnswer = [Error | null, string | number] | undefined;

export interface GroupCommitOptions {
  lanes: number;
  /** Most objects in one envelope. */
  maxEnvelopeObjects: number;
  /** Most objects held in memory, and most bytes of them; with more, requests are refused. */
  maxPendingObjects: number;
  maxPendingBytes: number;
  /** Jobs that wait in the lanes, as last seen. */
  backlog(): number;
  /**
   * Flushes on their way at once: with two, those who flood have their own. One where adds that are made at once may take
   * their places in several lanes in different orders, as on Postgres.
   */
  flushesAtOnce?: 1 | 2;
}

/**
 * Most objects in one flush, and most bytes unless one request has more: bounds the size of one command and the
 * time that a late comer waits. 4 MB take 80 to 130 ms on Redis and 300 to 400 ms on Postgres, of the 700 ms that
 * QUEUE_TIMEOUT_MS gives an add; 12 MB take Postgres 750 ms.
 */
const MAX_FLUSH_OBJECTS = 16_000;
const MAX_FLUSH_BYTES = 4_194_304;

/** Waiting jobs per lane from which on the workers count as behind. */
const BEHIND = 3;

/**
 * Milliseconds that a flush lets more requests join while the workers are behind. What waits here would wait
 * in its lane otherwise, and the workers pay per envelope: fewer and larger ones let them catch up.
 */
const LINGER = 2;

/**
 * Requests that arrive while a flush is on its way wait and leave together in the next one: one durable add
 * for all of them. Unless the workers are behind there is no timer: alone, a request leaves at once. Workspaces have their
 * turns (src/queue/flush-turns.ts), and while the workers are behind those who flood wait for each other alone.
 */
export function createGroupCommit(producer: LaneProducer, options: GroupCommitOptions) {
  const company = createCompany();
  const flood = createFlood();
  const calm: Track = { waiting: createFlushTurns(company), flushing: undefined };
  const flooding: Track = { waiting: createFlushTurns(company), flushing: undefined };
  let pendingObjects = 0;
  let pendingBytes = 0;

  /**
   * Resolves when the objects are on disk.
   * @param bytes of the objects' JSON text, about; they are shared over the objects
   * @returns the envelopes of its flush, of which `envelopesOf` tells its own
   * @throws {QueueUnavailable} when that is not known, or at once when too much is waiting already.
   */
  function enqueue(request: EnvelopeRequest, objects: AcceptedObject[], bytes: number): Promise<LaneEntry[]> {
    return wait({ owner: request.workspace_id, request, objects, count: objects.length, bytes });
  }

  /**
   * As `enqueue`, for envelopes that have been packed, and perhaps added, before: those that the queue holds already
   * stay as they are.
   */
  function add(entries: LaneEntry[], bytes: number): Promise<LaneEntry[]> {
    const count = entries.reduce((sum, { envelope }) => sum + envelope.objects.length, 0);
    const owner = entries[0]?.envelope.requests[0]?.workspace_id ?? '';
    return wait({ owner, entries: inPresentLanes(entries, options.lanes), count, bytes });
  }

  function wait(what: Omit<Waiting, 'resolve' | 'reject'>): Promise<LaneEntry[]> {
    const { count, bytes } = what;
    if (pendingObjects + count > options.maxPendingObjects) {
      return Promise.reject(new QueueUnavailable('too many objects are waiting for the queue'));
    }
    if (pendingBytes + bytes > options.maxPendingBytes) {
      return Promise.reject(new QueueUnavailable('too many bytes are waiting for the queue'));
    }
    pendingObjects += count;
    pendingBytes += bytes;
    flood.count(what.owner, count);
    return new Promise((resolve, reject) => {
      const isApart =
        options.flushesAtOnce === 2 && (flood.has(what.owner) || flooding.waiting.has(what.owner));
      enter(isApart ? flooding : calm, { ...what, resolve, reject });
    });
  }

  function enter(track: Track, ...some: Waiting[]): void {
    for (const one of some) track.waiting.push(one);
    if (some.length > 0) track.flushing ??= flushAll(track);
  }

  /** Behind a flush of theirs, which is sent first. */
  function partFlood(): void {
    for (const owner of flood.owners()) enter(flooding, ...calm.waiting.takeOf(owner));
  }

  async function flushAll(track: Track): Promise<void> {
    const { waiting } = track;
    // Let the requests of the present turn of the event loop join the first flush.
    await new Promise(setImmediate);
    while (!waiting.isEmpty()) {
      const isBehind = options.backlog() >= BEHIND * options.lanes;
      if (isBehind && !fillsEnvelope()) await sleep(LINGER);
      const batch = waiting.take({ objects: MAX_FLUSH_OBJECTS, bytes: MAX_FLUSH_BYTES });
      flood.look(isBehind && company.isThere());
      for (const one of batch) one.apart = flood.has(one.owner);
      try {
        const entries = entriesOf(batch);
        const added = traceFlush(entries, () => producer.add(entries));
        if (options.flushesAtOnce === 2) partFlood();
        await added;
        settle(batch, entries);
      } catch (error) {
        // What waited behind this flush would wait as long again; it is refused with it.
        settle([...batch, ...waiting.takeAll()], error as Error);
      }
    }
    track.flushing = undefined;
  }

  function entriesOf(batch: Waiting[]): LaneEntry[] {
    const { lanes, maxEnvelopeObjects } = options;
    if (!batch.some(({ entries }) => entries)) return pack(batch as Packable[], lanes, maxEnvelopeObjects);
    const loose = batch.filter(({ entries }) => !entries) as Packable[];
    return [...pack(loose, lanes, maxEnvelopeObjects), ...batch.flatMap(({ entries }) => entries ?? [])];
  }

  function fillsEnvelope(): boolean {
    return pendingObjects >= options.maxEnvelopeObjects || pendingBytes >= MAX_ENVELOPE_BYTES;
  }

  function settle(batch: Waiting[], result: LaneEntry[] | Error): void {
    for (const { count, bytes, resolve, reject } of batch) {
      pendingObjects -= count;
      pendingBytes -= bytes;
      if (result instanceof Error) reject(result);
      else resolve(result);
    }
  }

  return {
    enqueue,
    add,
    /** One request in envelopes of its own, which are not added yet. */
    pack: (request: EnvelopeRequest, objects: AcceptedObject[], bytes: number): LaneEntry[] =>
      pack([{ request, objects, bytes }], options.lanes, options.maxEnvelopeObjects),
    /** Whether a workspace has a large part of what is sent, while the workers are behind and others send as well. */
    isFlooding: (workspaceId: string) => flood.has(workspaceId),
    /** Objects that wait for the queue, those of the flush on its way included. */
    pending: () => pendingObjects,
    /** Bytes of them. */
    pendingBytes: () => pendingBytes,
    /** Resolves when nothing waits any more. */
    async drain(): Promise<void> {
      while (calm.flushing || flooding.flushing) await Promise.all([calm.flushing, flooding.flushing]);
    },
  };
}

export type GroupCommit = ReturnType<typeof createGroupCommit>;

/** What waits for a flush, and those on their way, one after the other, until nothing waits. */
interface Track {
  waiting: FlushTurns<Waiting>;
  flushing: Promise<void> | undefined;
}

interface Waiting extends InLine, Partial<Omit<Packable, 'bytes'>> {
  /** What waits in envelopes of its own; else there are `request` and `objects`. */
  entries?: LaneEntry[];
  resolve(entries: LaneEntry[]): void;
  reject(error: Error): void;
}

/**
 * Adds envelopes to lanes in one atomic step (one MULTI on Redis, one statement on Postgres).
 *
 * BullMQ's FlowProducer does not report entries that the backend refused, so every entry's answer is checked
 * here before anything is acknowledged. `timeout` is in milliseconds: BullMQ waits without end for a
 * connection that is not there.
 */
export function createLaneProducer(
  connection: QueueConnection,
  timeout: number,
  log: Log,
): LaneProducer & { additions: Additions; stop(): Promise<void> } {
  const { replication } = connection;
  const own = replication?.open();
  const flow = new FlowProducer(
    own ? { ...connection.options, connection: own } : connection.options,
    connection.factory,
  );
  flow.on('error', () => {});
  const backend = flow.getBackend() as unknown as {
    addFlow(entries: unknown[]): Promise<FlowAnswer[]>;
  };
  const additions = countAdditions(backend);
  const replicas = own && waitForReplicas(backend, own, { replicas: replication!.replicas, timeout });
  const addFlow = backend.addFlow.bind(backend);
  backend.addFlow = async (entries) => {
    const answers = await addFlow(entries);
    for (let index = 0; index < entries.length; index++) {
      const [error, id] = answers[index] ?? [new Error('no answer'), -1];
      if (error) throw error;
      if (typeof id === 'number' && id < 0) throw new Error(`refused with code ${id}`);
    }
    return answers;
  };

  /**
   * Lanes known to let one job through at a time. A Redis that comes back empty has forgotten that too, and would
   * hand out what is added to it to several workers at once until one of them says so again.
   */
  const limited = new Set<number>();
  for (const redis of [connection.redis, own]) if (redis) whenDisconnected(redis, () => limited.clear());

  async function limitLanes(entries: LaneEntry[]): Promise<void> {
    const lanes = [...new Set(entries.map(({ lane }) => lane))].filter((lane) => !limited.has(lane));
    await Promise.all(
      lanes.map(async (lane) => {
        const queue = openQueue<WireEnvelope>(connection, laneName(lane));
        await queue.setGlobalConcurrency(1).finally(() => queue.close());
      }),
    );
    for (const lane of lanes) limited.add(lane);
  }

  async function add(entries: LaneEntry[]): Promise<void> {
    const flows = entries.map(({ lane, id, envelope }) => ({
      name: envelope.fence ? jobs.fence : jobs.envelope,
      queueName: laneName(lane),
      data: encodeEnvelope(envelope),
      opts: { jobId: id, attempts: 1, removeOnComplete: KEEP_COMPLETED },
    }));
    if (!connection.ready() || (own && own.status !== 'ready'))
      throw new QueueUnavailable('the queue is not connected');
    const once = () => flow.addBulk(flows);
    const addAll = (): Promise<unknown> => (own ? addWhereTheLanesAre(own, once, timeout) : once());
    try {
      if (replicas) await within(timeout, replicas.caughtUp());
      await within(timeout, limitLanes(entries));
      await within(timeout, addAll());
    } catch (error) {
      if (!isScriptMissing(error))
        throw new QueueUnavailable('the queue did not store the objects', { cause: error });
      // After a restart or SCRIPT FLUSH the server has forgotten BullMQ's scripts, and a transaction cannot
      // load them; a plain add does.
      log.warn('the queue had lost its scripts; they are loaded again');
      try {
        await within(timeout, loadScripts(entries[0]!.lane));
        await within(timeout, addAll());
      } catch (second) {
        throw new QueueUnavailable('the queue did not store the objects', { cause: second });
      }
    }
  }

  /** By an envelope of nothing: one entry of a fence alone would stand in another order than those that follow. */
  async function loadScripts(lane: number): Promise<void> {
    const queue = openQueue<WireEnvelope>(connection, laneName(lane));
    const nothing = { requests: [], objects: [] };
    const opts = { jobId: newId(), attempts: 1, removeOnComplete: KEEP_COMPLETED };
    await queue.add(jobs.envelope, nothing, opts).finally(() => queue.close());
  }

  return {
    add,
    additions,
    async stop() {
      await flow.close();
      own?.disconnect();
    },
  };
}

function isScriptMissing(error: unknown): boolean {
  return String((error as Error)?.message).includes('NOSCRIPT');
}
