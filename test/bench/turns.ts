import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from './contender.ts';

/** Milliseconds in which one that was woken finds its connections again. */
const SETTLE = 1000;

/**
 * Lets one contender run at a time; the processes of the others stand still. Idle they would still ask their queues and
 * tell that they are there: eight of them took a fifth of a core from the one that was measured.
 */
export function createTurns() {
  const standing = new Set<Contender>();
  let running: Contender | undefined;

  function signal({ pids }: Contender, name: 'SIGSTOP' | 'SIGCONT'): void {
    for (const pid of Object.values(pids)) process.kill(pid, name);
  }

  /** Another one is about to start or to run. */
  function pause(): void {
    if (!running) return;
    signal(running, 'SIGSTOP');
    standing.add(running);
    running = undefined;
  }

  return {
    pause,
    /** Wakes a contender, if it stands still. */
    async give(contender: Contender): Promise<void> {
      if (running === contender) return;
      pause();
      running = contender;
      if (!standing.delete(contender)) return;
      signal(contender, 'SIGCONT');
      await sleep(SETTLE);
    },
    /** Wakes all of them, so that they can be stopped. */
    end(): void {
      for (const contender of standing) signal(contender, 'SIGCONT');
      standing.clear();
    },
  };
}
