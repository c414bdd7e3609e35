/** A signal that follows other signals until it is released. */
export interface LinkedSignal {
  signal: AbortSignal;
  /** Whether the time ran out before anything else aborted the signal. */
  isLate(): boolean;
  /** Clears the timer and the listeners. Call it when the work has ended. */
  release(): void;
}

interface Links {
  /** Signals to follow. The linked signal aborts with the reason of the first that aborts. */
  signals?: readonly (AbortSignal | undefined)[];
  /**
   * Milliseconds after which the signal aborts with a `TimeoutError`. If absent, there is no time limit.
   */
  milliseconds?: number | undefined;
}

/** The longest delay that `setTimeout` accepts; it runs a longer one immediately. */
const MAX_TIMER_MS = 2_147_483_647;

/**
 * Combines signals and a time limit into one signal.
 *
 * `AbortSignal.any` and `AbortSignal.timeout` hold their signals weakly: on Node 20, a garbage collection
 * during the work loses the limit, and the work never ends. This signal is held strongly by its timer and
 * listeners.
 */
export function linkSignals({ signals = [], milliseconds }: Links): LinkedSignal {
  const sources = signals.filter((signal) => signal !== undefined);
  const linked = new AbortController();
  const follow = ({ target }: Pick<Event, 'target'>) => end((target as AbortSignal).reason);
  let isLate = false;
  let timer: NodeJS.Timeout | undefined;

  function release(): void {
    clearTimeout(timer);
    for (const source of sources) source.removeEventListener('abort', follow);
  }

  function end(reason: unknown): void {
    release();
    linked.abort(reason);
  }

  const aborted = sources.find((source) => source.aborted);
  if (aborted) end(aborted.reason);
  else {
    for (const source of sources) source.addEventListener('abort', follow);
    if (milliseconds !== undefined)
      timer = setTimeout(
        () => {
          isLate = true;
          end(new DOMException(`not done within ${milliseconds} ms`, 'TimeoutError'));
        },
        Math.min(milliseconds, MAX_TIMER_MS),
      );
    timer?.unref();
  }
  return { signal: linked.signal, isLate: () => isLate, release };
}

/**
 * Runs work with a signal, and rejects as soon as the signal aborts, even if the work ignores it.
 * @throws the error of the work, the reason of the signal, or a `TimeoutError`
 */
export async function withTimeLimit<T>(links: Links, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const { signal, release } = linkSignals(links);
  try {
    return await unlessAborted(signal, work(signal));
  } finally {
    release();
  }
}

/** Waits for work until the signal aborts. @throws the error of the work, or the reason of the signal */
export function unlessAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = () => reject(signal.reason);
    if (signal.aborted) leave();
    else signal.addEventListener('abort', leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
}
