import { createRequestSemaphore } from './load-shedding.ts';

/** Concurrent downloads: each has an open file and a buffer. */
const SLOTS = {
  maxRunning: 16,
  maxRunningPerOwner: 8,
  maxWaiting: 64,
  maxWaitingPerOwner: 32,
  patience: 1500,
};

/** Bytes per second from which on a download is never cut, because it ends soon. */
const FAST = 1_048_576;

/** A download in progress. */
interface Download {
  /** Bytes that the receiver has taken. */
  taken(): number;
  /** Aborts it. */
  cut(): void;
}

interface Running extends Download {
  owner: string;
  startedAt: number;
}

/**
 * Assigns slots to downloads. A workspace may use half of them. If another workspace has to wait, the share of each
 * falls: the slowest download of a workspace with more than its share is cut.
 */
export class DownloadSlots {
  readonly #semaphore = createRequestSemaphore(SLOTS);
  readonly #running = new Set<Running>();
  readonly #clock: () => number;

  constructor(clock: () => number = () => performance.now()) {
    this.#clock = clock;
  }

  /** @throws {ApiError} 503 if no slot becomes free in time */
  use(owner: string, download: Download, send: () => Promise<void>): Promise<void> {
    this.#makeRoom(owner);
    return this.#semaphore.use(owner, async () => {
      const running = { ...download, owner, startedAt: this.#clock() };
      this.#running.add(running);
      try {
        await send();
      } finally {
        this.#running.delete(running);
      }
    });
  }

  #makeRoom(owner: string): void {
    if (this.#running.size < SLOTS.maxRunning) return;
    const byOwner = new Map<string, Running[]>([[owner, []]]);
    for (const running of this.#running)
      byOwner.set(running.owner, [...(byOwner.get(running.owner) ?? []), running]);
    const share = Math.max(1, Math.floor(SLOTS.maxRunning / byOwner.size));
    if (byOwner.get(owner)!.length >= share) return;
    const [slowest] = [...byOwner.values()]
      .filter((downloads) => downloads.length > share)
      .flat()
      .map((running) => ({ running, rate: this.#rateOf(running) }))
      .sort((one, other) => one.rate - other.rate);
    if (!slowest || slowest.rate >= FAST) return;
    this.#running.delete(slowest.running);
    slowest.running.cut();
  }

  #rateOf({ taken, startedAt }: Running): number {
    return taken() / Math.max(1, (this.#clock() - startedAt) / 1000);
  }
}
