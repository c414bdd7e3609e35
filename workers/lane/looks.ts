/** Milliseconds before a look; each that finds nobody doubles the pause. */
const FIRST_PAUSE_MS = 3;

/** Where one workspace has sent alone for long a look is in vain, and costs the lane a round trip. */
const LONGEST_PAUSE_MS = 96;

/** The longest pause while others send as well: they wait for half of it, on an average. */
const LONGEST_AMONG_NEIGHBOURS_MS = 24;

/** Milliseconds for which whoever was found counts as one that sends; web counts neighbours for as long. */
const NEIGHBOURS_MS = 10_000;

/**
 * When a lane looks who may overtake what it works. The pause goes on over the ends of transactions: however short those
 * are, a look is due after it.
 */
export function createLooks(clock: () => number = () => performance.now()) {
  let pause = FIRST_PAUSE_MS;
  let lookedAt = Number.NEGATIVE_INFINITY;
  let foundAt = Number.NEGATIVE_INFINITY;

  return {
    /** Milliseconds until the next one. */
    wait: (): number => Math.max(0, lookedAt + pause - clock()),

    /** One has ended. */
    note(hasFound: boolean): void {
      lookedAt = clock();
      if (hasFound) foundAt = lookedAt;
      const longest = lookedAt - foundAt < NEIGHBOURS_MS ? LONGEST_AMONG_NEIGHBOURS_MS : LONGEST_PAUSE_MS;
      pause = hasFound ? FIRST_PAUSE_MS : Math.min(pause * 2, longest);
    },
  };
}
