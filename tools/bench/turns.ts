import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from './contender.ts';

/** Milliseconds in which one that was woken finds its connections again. */
const SETTLE = 1000;

/**
 * Lets one contender run at a time; the processes that the others name in `pids` stand still. Idle they would still ask
 * their queues and tell that they are there: eight of them took a fifth of a core from the one that was measured.
 */
export function createTurns() {
  const standing = new Set<Contender>();
  let ended = false;
  let running: Contender | undefined;

  function signal({ pids }: Contender, name: 'SIGSTOP' | 'SIGCONT'): void {
    for (const pid of Object.values(pids)) {
      try {
        process.kill(pid, name);
      } catch (error) {
        // One that has ended by itself is found by whoever asks it for something.
        if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
      }
    }
  }

  /** Another one is about to start or to run. */
  function pause(): void {
    if (!running || ended) return;
    signal(running, 'SIGSTOP');
    standing.add(running);
    running = undefined;
  }

  return {
    pause,
    /** Wakes a contender, if it stands still. */
    async give(contender: Contender): Promise<void> {
      if (running === contender || ended) return;
      pause();
      running = contender;
      if (!standing.delete(contender)) return;
      signal(contender, 'SIGCONT');
      await sleep(SETTLE);
    },
    /** Wakes all of them, so that they can be stopped; from now on nobody is paused. */
    end(): void {
      ended = true;
      for (const contender of standing) signal(contender, 'SIGCONT');
      standing.clear();
    },
  };
}
