/** One of several things that are done with a file before the first of its rows is taken. */
export interface Step {
  /** The file, as the person knows it. */
  name: string;
  doing: 'fetching' | 'checking';
  /** What `total` counts, and what is said of how far it is. */
  of: 'bytes' | 'rows';
  /** About: a file says itself how many rows it has. */
  total: number;
}

/** Is told of the steps, one after the other: with a large file each takes minutes. */
export interface Watcher {
  begin(step: Step): void;
  /** @param more what was done since the last time, in what the step counts */
  move(more: number): void;
  /** Of the step, also of one that failed. */
  end(): void;
}

export const unwatched: Watcher = { begin() {}, move() {}, end() {} };

/** Does a step. */
export async function watchedStep<T>(watcher: Watcher, step: Step, work: () => Promise<T>): Promise<T> {
  watcher.begin(step);
  try {
    return await work();
  } finally {
    watcher.end();
  }
}
