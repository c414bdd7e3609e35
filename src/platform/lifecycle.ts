import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import type { Log } from './log.ts';

/** A part of a process that can be stopped. `stop` is called once, in the reverse order of the start. */
export interface Service {
  name: string;
  stop(): Promise<void>;
}

export interface StopOptions {
  /** Milliseconds in which all services must stop; after that the process exits with status 1. */
  deadline: number;
  /**
   * Milliseconds between SIGTERM and the stop. The process keeps serving in this time but reports that it is
   * not ready.
   */
  delay: number;
}

/**
 * Runs until SIGTERM or SIGINT, then stops the services in reverse order and exits with status 0. A second
 * signal, or a stop that takes longer than `deadline` milliseconds, exits with status 1; unfinished work is
 * then delivered again. After SIGTERM the process first waits `delay` milliseconds so that load balancers can
 * see that it is not ready. SIGINT, which a terminal sends, has no such delay.
 *
 * @param services services that run; a process that is still starting adds further ones
 */
export function stopOnSignal(services: Service[], log: Log, { deadline, delay }: StopOptions): void {
  const stop = async (signal: string) => {
    if (stopping) process.exit(1);
    stopping = true;
    if (signal === 'SIGTERM' && delay > 0) {
      log.info({ signal, delay }, 'marked as not ready; continuing to serve until the delay is over');
      await sleep(delay);
    }
    const timer = setTimeout(() => {
      log.error({ signal, deadline }, 'process did not stop in time');
      process.exit(1);
    }, deadline);
    timer.unref();
    for (const service of [...services].reverse()) {
      try {
        await service.stop();
      } catch (error) {
        log.warn({ service: service.name, err: error }, 'service did not stop cleanly');
      }
    }
    log.info({ signal }, 'stopped');
    process.exit(0);
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  process.off('disconnect', abandonStart);
  process.on('disconnect', () => stop('disconnect'));
}

/** Whether the services are being stopped, so that further failures are not reported. */
let stopping = false;

/** Returns whether a stop signal has arrived. From then on the process reports that it is not ready. */
export const isLeaving = () => stopping;

function abandonStart(): void {
  process.exit(1);
}

/**
 * Runs a process. If the start fails, it writes the error message in one line and exits with status 1. Only a
 * programming error is written with its stack.
 */
export function runProcess(name: string, main: () => Promise<void>): void {
  // `npm start` keeps a channel open to each process. When the channel closes, the parent has ended and
  // cannot stop this process. That may happen during the start, or before this line runs.
  if (process.connected === false) abandonStart();
  process.on('disconnect', abandonStart);
  // Bodies and envelopes live just long enough to be moved to the old generation. With its default, V8 would
  // let the heap double before it collects them.
  setFlagsFromString('--heap-growing-percent=60');
  main().catch((error: Error) => {
    if (stopping) return;
    const mistake =
      error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError;
    process.stderr.write(`${name}: ${mistake ? error.stack : error.message}\n`);
    process.exit(1);
  });
}

interface Limits {
  /** Signal that ends the wait; the promise then rejects with the reason of the signal. */
  signal?: AbortSignal;
  /** Builds the error for work that exceeds the limit. */
  late?: () => Error;
}

/** Milliseconds between two questions whether a store is known to be unavailable. */
const AWAY_CHECK_MS = 50;

/**
 * Asks a store and waits for its answer, unless the process knows or finds out meanwhile that the store is unavailable.
 * A store that is already known to be unavailable is not asked.
 * @throws {Error} as soon as `isAway` returns true
 */
export async function unlessUnavailable<T>(isAway: () => boolean, request: () => Promise<T>): Promise<T> {
  const unavailable = () => new Error('the store is unavailable');
  if (isAway()) throw unavailable();
  let timer: NodeJS.Timeout | undefined;
  const failure = new Promise<never>((_resolve, reject) => {
    timer = setInterval(() => isAway() && reject(unavailable()), AWAY_CHECK_MS);
  });
  try {
    return await Promise.race([request(), failure]);
  } finally {
    clearInterval(timer);
  }
}

/**
 * Returns the result of the work if it arrives in time. The work itself is not cancelled.
 * @throws {Error} when the work takes longer, or the reason of the signal
 */
export function withTimeout<T>(
  milliseconds: number,
  work: Promise<T>,
  { signal, late = () => new Error(`no answer within ${milliseconds} ms`) }: Limits = {},
): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(late()), milliseconds);
    const leave = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    if (signal?.aborted) leave();
    else signal?.addEventListener('abort', leave, { once: true });
    work.then(resolve, reject).finally(() => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', leave);
    });
  });
}

/**
 * Returns an address at which a server that listens on `host` can be reached. A wildcard address becomes the
 * loopback address.
 */
export function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

/** Returns whether a process of any user is running. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !isZombie(pid);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/**
 * Returns whether a process has ended but is still in the process table. In a container without an init
 * process, such entries remain when their parent does not wait for them.
 */
function isZombie(pid: number): boolean {
  try {
    return /^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}
