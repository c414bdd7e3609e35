/** Milliseconds in which the other lanes of this process may come before the store is asked about the rest. */
const GRACE_MS = 2;

/** Milliseconds between two looks into the store; only a notification that was lost makes it that long. */
const POLL_MS = 250;

/** Milliseconds of waiting between two lines about it: longer than the lane of a dead worker stands still. */
const WARN_MS = 30_000;

/**
 * What this process knows about one fence: which lanes have come to it, and whether it is passed. Both stay true
 * once they are: a lane comes to a fence when everything before it in that lane has taken effect.
 */
export function createMeeting() {
  const arrived = new Set<number>();
  const watchers = new Set<() => void>();
  let passed = false;

  function tellWatchers(): void {
    for (const look of [...watchers]) look();
  }

  return {
    /** Lanes of this process that stand here now. */
    standing: 0,
    /** Other processes have a part in it, or may have: what becomes of it has to be told in the store. */
    isShared: false,

    hasArrived: (lane: number) => arrived.has(lane),
    isPassed: () => passed,

    arrive(lane: number): void {
      if (arrived.has(lane)) return;
      arrived.add(lane);
      tellWatchers();
    },

    pass(): void {
      passed = true;
      tellWatchers();
    },

    /** Resolves when the condition holds, after so many milliseconds, or when `leaving` says so. */
    until(condition: () => boolean, milliseconds: number, leaving: AbortSignal): Promise<void> {
      if (condition() || leaving.aborted) return Promise.resolve();
      return new Promise((resolve) => {
        const end = () => {
          clearTimeout(timer);
          watchers.delete(look);
          leaving.removeEventListener('abort', end);
          resolve();
        };
        const look = () => {
          if (condition()) end();
        };
        const timer = setTimeout(end, milliseconds);
        watchers.add(look);
        leaving.addEventListener('abort', end);
      });
    },
  };
}

export type Meeting = ReturnType<typeof createMeeting>;

export interface Wait {
  mayGo(): boolean;
  /** Asks the store. */
  ask(): Promise<void>;
  leaving: AbortSignal;
  /** It takes long, and says so. */
  slow(): void;
}

/**
 * Waits in memory alone at first, and then asks the store too, again and again.
 * @returns false: the lane leaves
 */
export async function waitAt(meeting: Meeting, { mayGo, ask, leaving, slow }: Wait): Promise<boolean> {
  await meeting.until(mayGo, GRACE_MS, leaving);
  let warned = performance.now();
  // One question at a time; a store that is silent keeps nobody from leaving.
  let asking = false;
  while (!mayGo()) {
    if (leaving.aborted) return false;
    if (!asking) {
      asking = true;
      void ask().finally(() => {
        asking = false;
      });
    }
    await meeting.until(mayGo, POLL_MS, leaving);
    if (performance.now() - warned < WARN_MS) continue;
    warned = performance.now();
    slow();
  }
  return true;
}
