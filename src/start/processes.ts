import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import { startedByNpm } from '../platform/environment.ts';
import { packageRoot } from '../platform/files.ts';
import type { Log } from '../platform/log.ts';
import { backOff, poll, until } from '../platform/poll.ts';
import { withTimeLimit } from '../platform/time-limit.ts';

/** A process that has lived this long has started well: its next end is a first one again. */
const HEALTHY_MS = 10_000;
/** Wait before the first restart; it doubles with each further one. */
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 30_000;
/** After so many ends in a row without a healthy life between them, something is wrong that no restart cures. */
const HOPELESS_ENDS = 4;
/** Beyond the process's own deadline. */
const KILL_AFTER_MS = 1000;

export interface ProcessesOptions {
  lines: ProcfileLine[];
  env: NodeJS.ProcessEnv;
  log: Log;
  /** Milliseconds that a process may take to stop. */
  deadline: number;
  /** Called with the name of a process that ends again and again; it is still restarted. */
  onHopeless(name: string): void;
}

/**
 * Runs the processes, and starts one again that ends by itself. Each is in a process group of its own, so that a Ctrl-C
 * reaches only this process, which then stops them in their order. Each holds a channel to this process, whose end
 * stops them too, however this process ends.
 * @returns what stops them: one after another, in the order of `lines`.
 */
export function startProcesses(options: ProcessesOptions): () => Promise<void> {
  const processes = options.lines.map((line) => keepRunning(line, options));
  return async () => {
    for (const stop of processes) await stop();
  };
}

function keepRunning(line: ProcfileLine, { env, log, deadline, onHopeless }: ProcessesOptions) {
  let child: ChildProcess | undefined;
  let ends = 0;
  let nextWait = backOff(FIRST_WAIT_MS, LONGEST_WAIT_MS);
  let restart: NodeJS.Timeout | undefined;
  let stopping = false;

  const run = () => {
    const started = Date.now();
    child = fork(path.join(packageRoot, line.file), line.args, {
      env,
      execArgv: [...process.execArgv, ...line.nodeArgs],
      detached: true,
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    child.once('exit', (code, signal) => {
      child = undefined;
      if (stopping) return;
      if (Date.now() - started >= HEALTHY_MS) {
        ends = 0;
        nextWait = backOff(FIRST_WAIT_MS, LONGEST_WAIT_MS);
      }
      ends++;
      const wait = nextWait();
      log.warn({ name: line.name, code, signal, wait }, 'process exited unexpectedly; restarting');
      restart = setTimeout(run, wait);
      if (ends >= HOPELESS_ENDS) onHopeless(line.name);
    });
  };
  run();

  return async () => {
    stopping = true;
    clearTimeout(restart);
    const running = child;
    if (!running) return;
    const ended = new Promise((resolve) => running.once('exit', resolve));
    running.kill('SIGTERM');
    const timer = setTimeout(() => {
      log.warn({ name: line.name }, 'process did not stop in time; killing it');
      running.kill('SIGKILL');
    }, deadline + KILL_AFTER_MS);
    await ended;
    clearTimeout(timer);
  };
}

/** A line of the Procfile whose program is one of ours. */
interface ProcfileLine {
  name: string;
  /** Options of Node itself. */
  nodeArgs: string[];
  /** The compiled file, relative to the package. */
  file: string;
  args: string[];
}

/**
 * Reads lines such as `web: node --max-semi-space-size=32 dist/src/web.js`, in their order.
 * @throws {Error} naming a line that is anything else: `npm start` has no shell to give it to.
 */
export function parseProcfile(text: string): ProcfileLine[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line && !line.startsWith('#'))
    .map((line) => {
      const [, name, options, file, args] =
        /^(\w+): *node ((?:--\S+ )*)(\S+\.js)((?: \S+)*)$/.exec(line) ?? [];
      if (!name || !file) throw new Error(`Procfile: not "name: node file.js": ${line}`);
      return { name, nodeArgs: words(options), file, args: words(args) };
    });
}

function words(text = ''): string[] {
  return text.split(' ').filter(Boolean);
}

/** Far beyond what a start takes, also on a machine that is busy with other things. */
const DEADLINE_MS = 120_000;
const POLL_MS = 50;
const PATIENCE_MS = 2000;

/**
 * Resolves when all of the pages have answered with 2xx, each once.
 * @param signal ends the wait when it is aborted.
 * @throws {Error} with the last word of the page that is missing, when that takes too long.
 */
export async function waitUntilReady(pages: string[], signal: AbortSignal): Promise<void> {
  const deadline = Date.now() + DEADLINE_MS;
  for (const page of pages) {
    if (signal.aborted) return;
    let missing = `no answer of ${page}`;
    async function isReady(): Promise<boolean> {
      try {
        return await withTimeLimit({ milliseconds: PATIENCE_MS }, async (limit) => {
          const response = await fetch(page, { signal: limit });
          missing = await response.text();
          return response.ok;
        });
      } catch {
        // It does not listen yet.
        return false;
      }
    }
    const came = await until(isReady, { every: POLL_MS, deadline, leaving: signal });
    if (!came && !signal.aborted) throw new Error(`not ready after ${DEADLINE_MS / 1000} s: ${missing}`);
  }
}

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
 * The one place that decides when `npm start` ends: on Ctrl-C, SIGTERM, the end of npm, or a failure. A second signal
 * ends it at once. The processes and the embedded Postgres then stop by themselves, as they do when a closed terminal
 * ends it. There is no handler for that, so that nohup works.
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
  if (!startedByNpm().script) return;
  const npm = process.ppid;
  const looks = poll(PARENT_POLL_MS, () => {
    if (process.ppid === npm) return;
    void looks.stop();
    onGone();
  });
}
