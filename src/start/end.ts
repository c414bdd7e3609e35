import type { Log } from '../log.ts';

/** How often to see whether npm is still there. */
const PARENT_POLL_MS = 250;
/** A Ctrl-C arrives twice: from the terminal, and from npm, which passes on what it got itself. */
const SAME_SIGNAL_MS = 1000;

export interface EndOfStart {
  /** Aborted when the end has come. */
  signal: AbortSignal;
  /** Resolves with what to exit with. */
  asked: Promise<number>;
  /** Something went wrong that needs a person. Only the first reason counts. */
  because(reason: string, exitCode: number): void;
  /** Nothing that happens from now on is a reason any more. */
  over(): void;
}

/**
 * The one place that decides when `npm start` ends: on Ctrl-C, SIGTERM, the end of npm, or a failure. A
 * second signal ends it at once; the processes and the embedded Postgres then stop by themselves, as they do
 * when a closed terminal ends it (there is no handler for that, so that nohup works).
 */
export function endOfStart(log: Log): EndOfStart {
  const controller = new AbortController();
  let resolve: (exitCode: number) => void;
  const asked = new Promise<number>((settle) => {
    resolve = settle;
  });
  const end = (exitCode: number) => {
    controller.abort();
    resolve(exitCode);
  };
  let first: number | undefined;
  const onSignal = (signal: string) => {
    first ??= Date.now();
    if (Date.now() - first > SAME_SIGNAL_MS) process.exit(1);
    if (controller.signal.aborted) return;
    log.info({ signal }, 'stopping');
    end(0);
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, onSignal);
  watchNpm(() => end(1));
  return {
    signal: controller.signal,
    asked,
    because(reason, exitCode) {
      if (controller.signal.aborted) return;
      log.error(reason);
      end(exitCode);
    },
    over: () => controller.abort(),
  };
}

/** A killed npm tells nobody: whoever killed it means what it ran. */
function watchNpm(onGone: () => void): void {
  if (!process.env.npm_lifecycle_event) return;
  const npm = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === npm) return;
    clearInterval(timer);
    onGone();
  }, PARENT_POLL_MS);
  timer.unref();
}
