import { freePort, tryListen } from '../embedded/address.ts';
import type { EmbeddedPostgres } from '../embedded/postgres.ts';
import type { Config } from '../platform/config.ts';
import { describeFailure } from '../platform/format.ts';
import { whyNotListening } from '../platform/listen.ts';
import type { Log } from '../platform/log.ts';
import { backOff, rest, until } from '../platform/poll.ts';

/** A server that has answered for this long has started well: its next end is a first one again. */
const STEADY_MS = 2000;
/** Starts in a row that come to nothing, after which something is wrong that no restart cures. */
const MOST_FAILURES = 5;
/** Wait before the first restart; it doubles with each further one, up to the longest. */
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 4000;

export interface KeepPostgresOptions {
  log: Log;
  /** Called with one sentence when it is not started again any more. */
  onHopeless(reason: string): void;
}

/**
 * Starts the embedded Postgres again when it ends by itself, at the same address: the processes find it there, as they
 * would a server of somebody else's that was restarted.
 * @returns what stops it for good
 */
export function keepPostgresRunning(
  postgres: EmbeddedPostgres,
  { log, onHopeless }: KeepPostgresOptions,
): () => Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  let starting: Promise<unknown> | undefined;
  const watching = watch();

  async function watch(): Promise<void> {
    await postgres.exited;
    let nextWait = backOff(FIRST_WAIT_MS, LONGEST_WAIT_MS);
    for (let failures = 0; !signal.aborted; ) {
      const wait = nextWait();
      log.warn({ wait }, 'embedded Postgres exited unexpectedly; restarting');
      await rest(wait, signal);
      if (signal.aborted) return;
      const reason = await livesUntilItEnds();
      if (signal.aborted) return;
      if (reason === undefined) {
        failures = 0;
        nextWait = backOff(FIRST_WAIT_MS, LONGEST_WAIT_MS);
      } else if (++failures === MOST_FAILURES) {
        return onHopeless(
          `the embedded Postgres exited unexpectedly and could not be restarted in ${MOST_FAILURES} attempts: ${reason}`,
        );
      }
    }
  }

  /** Resolves when a new server has ended again; with a reason when it came to nothing. */
  async function livesUntilItEnds(): Promise<string | undefined> {
    try {
      starting = postgres.startAgain(signal);
      await starting;
    } catch (error) {
      return describeFailure(error);
    }
    const answered = performance.now();
    log.info('the embedded Postgres answered again');
    await postgres.exited;
    if (performance.now() - answered >= STEADY_MS) return undefined;
    return 'each time it ended within two seconds';
  }

  return async () => {
    stopping.abort();
    await starting?.catch(() => {});
    await postgres.stop();
    await watching;
  };
}

/** The settings of the ports that the processes listen on, with the address of each. */
const listeners = [
  ['PORT', 'HOST'],
  ['BOARD_PORT', 'BOARD_HOST'],
  ['WORKER_PORT', 'WORKER_HOST'],
  ['SYNC_PORT', 'SYNC_HOST'],
] as const;

export type Ports = Pick<Config, (typeof listeners)[number][0]>;

/**
 * Chooses a free port where PORT or BOARD_PORT is 0, and sees to it that the others are free.
 * @param patience milliseconds in which the processes of a killed start may still let go of theirs.
 * @throws {Error} naming each setting whose port is taken, or that this user may not listen on.
 */
export async function claimPorts(config: Config, patience: number): Promise<Ports> {
  const findProblems = async () => {
    const found = await Promise.all(listeners.map(([port, host]) => problemOf(config, port, host)));
    return found.filter((problem) => problem !== undefined);
  };
  const problems = await until(findProblems, {
    ...{ every: 50, deadline: Date.now() + patience },
    isSo: (found) => found.length === 0,
  });
  if (problems.length > 0) throw new Error(problems.join('; '));
  return {
    PORT: config.PORT || (await freePort(config.HOST)),
    BOARD_PORT: config.BOARD_PORT || (await freePort(config.BOARD_HOST)),
    // 0 stands for none here.
    WORKER_PORT: config.WORKER_PORT,
    SYNC_PORT: config.SYNC_PORT,
  };
}

type Listener = (typeof listeners)[number];

async function problemOf(
  config: Config,
  name: Listener[0],
  hostName: Listener[1],
): Promise<string | undefined> {
  const port = config[name];
  const host = config[hostName];
  if (port === 0) return undefined;
  const double = listeners.find(([other]) => other !== name && config[other] === port);
  if (double) return `${name} and ${double[0]} are both ${port}; set one of them to another port`;
  try {
    await tryListen(port, host);
    return undefined;
  } catch (error) {
    return whyNotListening(error as Error, [name, port], [hostName, host]);
  }
}
