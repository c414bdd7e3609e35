import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from './contender.ts';

/** Milliseconds in which a resumed contender restores its connections. */
const RECONNECT_MS = 1000;

/**
 * Runs one contender at a time; the processes in `pids` of the others are stopped with a signal. Idle
 * processes still poll their queues and send heartbeats: eight of them took a fifth of a core from the
 * measured one.
 */
export function createTurns() {
  const stopped = new Set<Contender>();
  let ended = false;
  let running: Contender | undefined;

  function signal({ pids }: Contender, name: 'SIGSTOP' | 'SIGCONT'): void {
    for (const pid of Object.values(pids)) {
      try {
        process.kill(pid, name);
      } catch (error) {
        // If a process has ended, the next request to it fails.
        if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
      }
    }
  }

  /** Stops the running contender, because another one is about to start or run. */
  function pause(): void {
    if (!running || ended) return;
    signal(running, 'SIGSTOP');
    stopped.add(running);
    running = undefined;
  }

  return {
    pause,
    /** Resumes a contender if it is stopped. */
    async resume(contender: Contender): Promise<void> {
      if (running === contender || ended) return;
      pause();
      running = contender;
      if (!stopped.delete(contender)) return;
      signal(contender, 'SIGCONT');
      await sleep(RECONNECT_MS);
    },
    /** Resumes all contenders, so that they can be ended. From then on, contenders are no longer stopped. */
    end(): void {
      ended = true;
      for (const contender of stopped) signal(contender, 'SIGCONT');
      stopped.clear();
    },
  };
}
