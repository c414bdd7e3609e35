import { freePort, tryListen } from '../embedded/address.ts';
import type { EmbeddedPostgres } from '../embedded/postgres.ts';
import type { Config } from '../platform/config.ts';
import { describeFailure } from '../platform/format.ts';
import { whyNotListening } from '../platform/listen.ts';
import type { Log } from '../platform/log.ts';
import { backOff, rest, until } from '../platform/poll.ts';

/**
 * Milliseconds for which a server must answer so that its start counts as successful and the count of
 * failures is reset.
 */
const STEADY_MS = 2000;
/** Number of failed starts in a row after which the server is not restarted. */
const MAX_FAILURES = 5;
/** Milliseconds before the first restart. The wait doubles with each further failure, up to the maximum. */
const FIRST_WAIT_MS = 250;
const MAX_WAIT_MS = 4000;

interface KeepPostgresOptions {
  log: Log;
  /** Called with the reason when the server is not restarted any longer. */
  onHopeless(reason: string): void;
}

/**
 * Restarts the embedded Postgres when it ends unexpectedly, at the same address, so that the processes can
 * reconnect as to any restarted server.
 * @returns a function that stops it permanently
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
    let nextWait = backOff(FIRST_WAIT_MS, MAX_WAIT_MS);
    for (let failures = 0; !signal.aborted; ) {
      const wait = nextWait();
      log.warn({ wait }, 'embedded Postgres exited unexpectedly; restarting');
      await rest(wait, signal);
      if (signal.aborted) return;
      const reason = await runUntilExit();
      if (signal.aborted) return;
      if (reason === undefined) {
        failures = 0;
        nextWait = backOff(FIRST_WAIT_MS, MAX_WAIT_MS);
      } else if (++failures === MAX_FAILURES) {
        return onHopeless(
          `the embedded Postgres exited unexpectedly and could not be restarted in ${MAX_FAILURES} attempts: ${reason}`,
        );
      }
    }
  }

  /** Restarts the server and resolves when it has ended again, with the reason if the start failed. */
  async function runUntilExit(): Promise<string | undefined> {
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
 * Chooses a free port where PORT or BOARD_PORT is 0, and checks that the other ports are free.
 * @param patience milliseconds to wait for ports that processes of a killed start still hold
 * @throws {Error} naming each setting whose port is in use or not allowed for this user
 */
export async function claimPorts(config: Config, patience: number): Promise<Ports> {
  const findProblems = async () => {
    const portProblems = await Promise.all(listeners.map(([port, host]) => problemOf(config, port, host)));
    return portProblems.filter((problem) => problem !== undefined);
  };
  const problems = await until(findProblems, {
    ...{ every: 50, deadline: Date.now() + patience },
    isSo: (portProblems) => portProblems.length === 0,
  });
  if (problems.length > 0) throw new Error(problems.join('; '));
  return {
    PORT: config.PORT || (await freePort(config.HOST)),
    BOARD_PORT: config.BOARD_PORT || (await freePort(config.BOARD_HOST)),
    // For these two, port 0 turns the listener off.
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
