import { hostname } from 'node:os';
import { ConfigError } from '../platform/config.ts';
import { newId } from '../platform/ids.ts';
import { type Service, withTimeout } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import type { Pool } from '../store/database.ts';
import {
  forgetMembers,
  leaveInstallation,
  meetInstallation,
  meetShards,
  type QueueLoss,
  type QueueState,
  type Spread,
} from '../store/installation.ts';
import type { QueueConnection } from './connection.ts';
import {
  everyShard,
  type LaneEntry,
  type LaneProducer,
  type LayoutSettings,
  laneCount,
  layoutOf,
  QueueUnavailable,
} from './lanes.ts';
import { type Additions, describeLoss, printedLoss, watchForLoss } from './loss.ts';
import { whenConnected } from './open-redis.ts';

/** Milliseconds between two checks. Objects added after the last check and not applied yet can be lost undetected. */
const LOOK_MS = 2000;

/** Milliseconds between two checks if the queue is in the Postgres of the tables and can only be lost with them. */
const CALM_LOOK_MS = 10_000;

/** Milliseconds for one check. */
const PATIENCE_MS = 10_000;

/** Milliseconds for the final check: the process has little time to stop. */
const FAREWELL_MS = 1000;

/** Milliseconds between two log lines about an unconfirmed loss. */
const REPEAT_MS = 300_000;

interface Joining {
  /** Name of the process. */
  name: string;
  config: LayoutSettings;
  pool: Pool;
  connection: QueueConnection;
  log: Log;
  /** Counts of the process's own producer, by shard. */
  additions?: Additions[] | undefined;
  /** Called after each loss of queue data. */
  onLoss?(): void;
  /** Called if the installation has another number of lanes while the process is already running. */
  exit?(): void;
}

export interface Installation extends Service {
  /** Resolves when Postgres has confirmed that the installation has the same number of lanes as the process. */
  confirmed: Promise<void>;
  /** The losses of the queue that an operator has not confirmed. */
  loss(): QueueLoss | undefined;
  /** Wraps a producer so that it adds only after the number of lanes is confirmed. */
  guard(producer: LaneProducer): LaneProducer;
}

/**
 * Registers the process as a member of its installation. The number of lanes must match, because two processes that
 * spread objects over different lanes break their order. The process then sends a heartbeat every few seconds and
 * checks whether Redis still holds its data.
 *
 * If the store is unavailable, the promise resolves and the process is confirmed later.
 * @throws {ConfigError} if the installation has another number of lanes
 */
export async function joinInstallation(joining: Joining): Promise<Installation> {
  const { name, config, pool, connection, log, additions = [], exit = () => process.exit(1) } = joining;
  const { redis, laneStore } = connection;
  const { shards } = layoutOf(config);
  const spread = { lanes: laneCount(config), shards };
  const member = { id: newId(), name, host: hostname(), pid: process.pid };
  const onLoss = joining.onLoss ?? (() => {});
  const watches = everyShard(redis ? shards : 0).map((shard) =>
    watchForLoss({
      ...{ pool, redis: redis!, shard, name, log, onLoss },
      oldest: () => laneStore.oldestInShard(shard),
      additions: additions[shard],
    }),
  );
  let loss: QueueLoss | undefined;
  let lastReport = { latest: 0, at: Number.NEGATIVE_INFINITY };
  let isConfirmed = false;
  let confirm = () => {};
  const confirmed = new Promise<void>((resolve) => {
    confirm = resolve;
  });

  /** @returns whether every shard could be checked */
  async function checkOnce(last: boolean): Promise<boolean> {
    let state = await meetInstallation(pool, member, spread);
    if (state.lanes !== spread.lanes || state.shards !== shards)
      throw new ConfigError(otherSpread(spread, state));
    isConfirmed = true;
    confirm();
    const seen = await checkShards(state, last);
    if (seen.includes('lost')) state = await meetInstallation(pool, member, spread);
    report(state.loss);
    return seen.every((one) => one === 'seen');
  }

  /** Checks all shards concurrently, so that one that does not answer does not delay the others. */
  async function checkShards(first: QueueState, last: boolean) {
    if (watches.length < 2) return Promise.all(watches.map((watch) => watch.check(first, last)));
    const others = await meetShards(pool, shards);
    const states = watches.map((_, shard) => (shard === 0 ? first : others.get(shard)));
    const results = await Promise.allSettled(
      watches.map((watch, shard) => (states[shard] ? watch.check(states[shard], last) : ('away' as const))),
    );
    const failed = results.find((one) => one.status === 'rejected');
    if (failed && results.every((one) => one.status === 'rejected')) throw failed.reason;
    return results.map((one) => (one.status === 'fulfilled' ? one.value : 'away'));
  }

  function report(current: QueueLoss | undefined): void {
    loss = current;
    if (!loss) return;
    const now = performance.now();
    if (loss.latest === lastReport.latest && now - lastReport.at < REPEAT_MS) return;
    lastReport = { latest: loss.latest, at: now };
    log.error(printedLoss(loss), describeLoss(loss));
  }

  let checking: Promise<void> | undefined;
  let again = false;
  let warned = false;

  /** Runs one check at a time. A call during a check starts another one afterwards. Never rejects. */
  function check(): void {
    again = true;
    checking ??= checkWhileRequested().finally(() => {
      checking = undefined;
    });
  }

  async function checkWhileRequested(): Promise<void> {
    while (again) {
      again = false;
      try {
        await withTimeout(PATIENCE_MS, checkOnce(false));
        warned = false;
      } catch (error) {
        if (error instanceof ConfigError) return leaveAtOnce(error);
        if (!warned) log.warn({ err: error }, 'number of lanes could not be checked; will retry');
        warned = true;
      }
    }
  }

  function leaveAtOnce(error: ConfigError): void {
    log.fatal(error.message);
    exit();
  }

  try {
    await withTimeout(PATIENCE_MS, checkOnce(false));
    await forgetMembers(pool);
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    log.warn({ err: error }, 'number of lanes could not be read; will retry');
    warned = true;
  }
  const poller = poll(redis ? LOOK_MS : CALM_LOOK_MS, check);
  const forget = redis && whenConnected(redis, check);
  for (const one of additions) one.onFall(check);

  return {
    name: 'installation',
    confirmed,
    loss: () => loss,
    guard({ add, placing }) {
      const guarded = <Given extends unknown[], Answer>(work: (...given: Given) => Promise<Answer>) => {
        return async (...given: Given): Promise<Answer> => {
          if (!isConfirmed) throw new QueueUnavailable('the number of lanes is not known yet');
          return work(...given);
        };
      };
      return {
        add: guarded(add),
        ...(placing && { placing: { ...placing, addTo: guarded(placing.addTo) } }),
      };
    },
    async stop() {
      void poller.stop();
      forget?.();
      again = false;
      // Do not wait for a store that hangs.
      await withTimeout(FAREWELL_MS, Promise.resolve(checking)).catch(() => {});
      // If the final check fails, the process may have added objects that no check has seen. It stays registered, so
      // that other processes notice its missing heartbeats.
      if (await withTimeout(FAREWELL_MS, checkOnce(true))) await leaveInstallation(pool, member.id);
    },
  };
}

function otherSpread(mine: Spread, theirs: Spread): string {
  const change = 'or stop every process and change it by penstock queue set-lanes';
  const [lanes, others] = [mine, theirs].map((one) => one.lanes / one.shards);
  if (mine.shards === theirs.shards)
    return `wrong setting: LANES is ${lanes}, and this installation has ${others}; set LANES=${others}, ${change} ${lanes}`;
  return `wrong setting: SHARDS is ${mine.shards}, and this installation has ${theirs.shards} of ${others} lanes; set SHARDS=${theirs.shards} and LANES=${others}, ${change} ${lanes} --shards ${mine.shards}`;
}

/**
 * Adapts entries that were packed when there may have been more lanes. If an entry uses a lane that no longer exists,
 * all entries go to the first lane. Envelopes keep their ids, by which the ledger recognizes them.
 */
export function inPresentLanes(entries: LaneEntry[], lanes: number): LaneEntry[] {
  const isPresent = ({ lane, envelope: { fence } }: LaneEntry) =>
    lane < lanes && (fence?.lanes ?? []).every((other) => other < lanes);
  if (entries.every(isPresent)) return entries;
  return entries
    .filter(({ envelope }) => envelope.objects.length > 0)
    .map(({ id, envelope: { fence: _, ...envelope } }) => ({ lane: 0, id, envelope }));
}
