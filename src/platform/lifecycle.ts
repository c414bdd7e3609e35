import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import type { Log } from './log.ts';

/** Something with a life. `stop` is called once, in the reverse order of `start`. */
export interface Service {
  name: string;
  stop(): Promise<void>;
}

export interface StopOptions {
  /** Milliseconds for stopping; then it exits 1. */
  deadline: number;
  /** Milliseconds between SIGTERM and stopping, in which it serves on and is not ready. */
  delay: number;
}

/**
 * Runs until SIGTERM or SIGINT, then stops the services in reverse order and exits 0. A second signal, or
 * `deadline` milliseconds gone, exits 1: what was in hand then is delivered again. Before that, SIGTERM leaves load
 * balancers `delay` milliseconds to see that the process is not ready any more; a person at a terminal waits for none.
 *
 * @param services those that run now; a process that is still starting adds others
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

/** Whether what has been started is being stopped, and nothing that fails is news any more. */
let stopping = false;

/** Whether a signal has come: from then on the process is not ready, whatever it still answers. */
export const isLeaving = () => stopping;

function abandonStart(): void {
  process.exit(1);
}

/**
 * Runs a process. One that cannot start says why in one line, by the name of what is wrong, and exits 1; only
 * a mistake of the program's own shows its stack.
 */
export function runProcess(name: string, main: () => Promise<void>): void {
  // `npm start` keeps a channel open to each process: when it is gone, so is whoever would stop us. It may go
  // while we are still starting, or before this line.
  if (process.connected === false) abandonStart();
  process.on('disconnect', abandonStart);
  // Bodies and envelopes live just long enough to be taken for long-lived. Left alone, V8 lets the heap double before
  // it looks at them again.
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
  /** Who leaves waits no longer, and gets its reason. */
  signal?: AbortSignal;
  /** What is thrown when it takes longer. */
  late?: () => Error;
}

/**
 * What the work gives, if it does so in time; the work itself goes on.
 * @throws {Error} when it takes longer; the reason of the signal
 */
export function within<T>(
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

/** An address that the wildcard addresses answer on as well. */
export function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

/** Whether a process runs, whoever's it is. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !isZombie(pid);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** In a container without an init process, what nobody waits for stays in the table of processes. */
function isZombie(pid: number): boolean {
  try {
    return /^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}
