interface BatcherSettings<Key, Result> {
  /**
   * Returns results in the order of the keys: one for each key, or for at least the first key. Calls without a result
   * are the first ones of the next batch.
   */
  run(keys: Key[]): Promise<Result[]>;
  /** Maximum number of calls in a batch. */
  maxCalls: number;
  /** Maximum bytes of the keys in a batch, unless a single key is larger; 65,536 by default. */
  maxBytes?: number;
  bytesOf(key: Key): number;
  /**
   * Returns whether an error means that the server does not answer. Waiting calls would wait as long again for the same
   * failure, so they are rejected with it. Any other error rejects only the calls of its batch.
   */
  isOutage(error: unknown): boolean;
  /** Runs the first call at once. By default, it waits for calls that are made before the next microtask. */
  startsAtOnce?: boolean;
}

const MAX_BYTES = 65_536;

interface Call<Key, Result> {
  key: Key;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

/**
 * Collects concurrent calls into batches, so that a thousand calls become a few statements or commands. One batch runs
 * at a time. Calls that arrive meanwhile share the next batch, which starts when the running batch ends.
 */
export class Batcher<Key, Result> {
  readonly #settings: BatcherSettings<Key, Result>;
  #waiting: Call<Key, Result>[] = [];
  #isRunning = false;

  constructor(settings: BatcherSettings<Key, Result>) {
    this.#settings = settings;
  }

  /** Number of calls that wait for a batch, without those in the running batch. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Resolves to the result of the key. Rejects with the error of its batch, or of an outage during its wait. */
  call(key: Key): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, resolve, reject });
      if (!this.#isRunning) void this.#runAll();
    });
  }

  async #runAll(): Promise<void> {
    this.#isRunning = true;
    if (!this.#settings.startsAtOnce) await undefined;
    while (this.#waiting.length > 0) await this.#runOne();
    this.#isRunning = false;
  }

  async #runOne(): Promise<void> {
    const batch = this.#waiting.splice(0, this.#countOfNext());
    try {
      const results = await this.#settings.run(batch.map(({ key }) => key));
      if (results.length === 0) throw new RangeError('a batch returned no result');
      for (const [index, result] of results.entries()) batch[index]!.resolve(result);
      if (results.length < batch.length) this.#waiting.unshift(...batch.slice(results.length));
    } catch (error) {
      const rejected = this.#settings.isOutage(error) ? [...batch, ...this.#waiting.splice(0)] : batch;
      for (const { reject } of rejected) reject(error);
    }
  }

  /** Returns the number of waiting calls that fit into the next batch: at least one. */
  #countOfNext(): number {
    const { maxCalls, maxBytes = MAX_BYTES, bytesOf } = this.#settings;
    let bytes = 0;
    let count = 0;
    for (const { key } of this.#waiting) {
      bytes += bytesOf(key);
      if (count === maxCalls || (count > 0 && bytes > maxBytes)) break;
      count++;
    }
    return count;
  }
}
