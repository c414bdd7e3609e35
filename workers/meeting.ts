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
