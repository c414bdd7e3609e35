/** A step in which a file is prepared before its first row is read. */
export interface Step {
  /** Name of the file as the user entered it. */
  name: string;
  doing: 'fetching' | 'checking';
  /** Unit of `total` and of the progress. */
  of: 'bytes' | 'rows';
  /** Approximate total. For rows it is the count that the file itself declares. */
  total: number;
}

/** Receives the progress of the steps, one after the other. With a large file each step takes minutes. */
export interface Watcher {
  begin(step: Step): void;
  /** @param more amount since the last call, in the unit of the step */
  move(more: number): void;
  /** Called at the end of a step, also of a failed one. */
  end(): void;
}

export const unwatched: Watcher = { begin() {}, move() {}, end() {} };

/** Runs a step and reports its start and end. */
export async function runStep<T>(watcher: Watcher, step: Step, work: () => Promise<T>): Promise<T> {
  watcher.begin(step);
  try {
    return await work();
  } finally {
    watcher.end();
  }
}
