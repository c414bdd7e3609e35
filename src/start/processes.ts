import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import { startedByNpm } from '../platform/environment.ts';
import { packageRoot } from '../platform/files.ts';
import type { Log } from '../platform/log.ts';
import { backOff, poll, until } from '../platform/poll.ts';
import { withTimeLimit } from '../platform/time-limit.ts';

/**
 * Milliseconds that a process must run so that its start counts as successful and the count of exits is
 * reset.
 */
const HEALTHY_MS = 10_000;
/** Milliseconds before the first restart. The wait doubles with each further restart, up to the maximum. */
const FIRST_WAIT_MS = 250;
const MAX_WAIT_MS = 30_000;
/** Number of early exits in a row after which `onRepeatedExit` is called. */
const MAX_EARLY_EXITS = 4;
/** Milliseconds after the deadline of a process until it is killed. */
const KILL_AFTER_MS = 1000;

interface ProcessesOptions {
  lines: ProcfileLine[];
  env: NodeJS.ProcessEnv;
  log: Log;
  /** Milliseconds that a process may take to stop. */
  deadline: number;
  /** Called with the name of a process that exits repeatedly. The process is still restarted. */
  onRepeatedExit(name: string): void;
}

/**
 * Runs the processes and restarts those that exit unexpectedly. Each has its own process group, so that
 * Ctrl-C reaches only this process, which then stops them in order. Each holds a channel to this process;
 * when the channel closes, the process stops as well, however this process has ended.
 * @returns a function that stops them one after another in the order of `lines`
 */
export function startProcesses(options: ProcessesOptions): () => Promise<void> {
  const processes = options.lines.map((line) => keepRunning(line, options));
  return async () => {
    for (const stop of processes) await stop();
  };
}

function keepRunning(line: ProcfileLine, { env, log, deadline, onRepeatedExit }: ProcessesOptions) {
  let child: ChildProcess | undefined;
  let earlyExits = 0;
  let nextWait = backOff(FIRST_WAIT_MS, MAX_WAIT_MS);
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
        earlyExits = 0;
        nextWait = backOff(FIRST_WAIT_MS, MAX_WAIT_MS);
      }
      earlyExits++;
      const wait = nextWait();
      log.warn({ name: line.name, code, signal, wait }, 'process exited unexpectedly; restarting');
      restart = setTimeout(run, wait);
      if (earlyExits >= MAX_EARLY_EXITS) onRepeatedExit(line.name);
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

/** A line of the Procfile. */
interface ProcfileLine {
  name: string;
  /** Options of Node. */
  nodeArgs: string[];
  /** The compiled file, relative to the package. */
  file: string;
  args: string[];
}

/**
 * Parses lines such as `web: node --max-semi-space-size=32 dist/src/web.js`, in their order.
 * @throws {Error} naming a line with any other form, because `npm start` does not use a shell
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

/** Milliseconds for all pages to become ready: far more than a start takes, even on a busy machine. */
const DEADLINE_MS = 120_000;
const POLL_MS = 50;
const PAGE_TIMEOUT_MS = 2000;

/**
 * Resolves when each of the pages has answered with 2xx once.
 * @param signal ends the wait
 * @throws {Error} with the last response of the page that did not become ready in time
 */
export async function waitUntilReady(pages: string[], signal: AbortSignal): Promise<void> {
  const deadline = Date.now() + DEADLINE_MS;
  for (const page of pages) {
    if (signal.aborted) return;
    let missing = `no answer of ${page}`;
    async function isReady(): Promise<boolean> {
      try {
        return await withTimeLimit({ milliseconds: PAGE_TIMEOUT_MS }, async (limit) => {
          const response = await fetch(page, { signal: limit });
          missing = await response.text();
          return response.ok;
        });
      } catch {
        // The page does not listen yet.
        return false;
      }
    }
    const isUp = await until(isReady, { every: POLL_MS, deadline, leaving: signal });
    if (!isUp && !signal.aborted) throw new Error(`not ready after ${DEADLINE_MS / 1000} s: ${missing}`);
  }
}

/** Milliseconds between two checks whether npm is still running. */
const PARENT_POLL_MS = 250;
/**
 * Milliseconds in which a second signal counts as the same one. A Ctrl-C arrives twice: from the terminal,
 * and from npm, which forwards the signal.
 */
const SAME_SIGNAL_MS = 1000;

export interface EndOfStart {
  /** Aborted when `npm start` must end. */
  signal: AbortSignal;
  /** Resolves with the exit status. */
  requested: Promise<number>;
  /** Ends `npm start` because of an error that an operator must fix. Only the first reason is logged. */
  because(reason: string, exitCode: number): void;
  /** Ignores all later reasons. */
  over(): void;
}

/**
 * Decides when `npm start` ends: on Ctrl-C, SIGTERM, the end of npm, or a failure. A second signal ends it
 * immediately; the processes and the embedded Postgres then stop by themselves, as they do when the terminal
 * is closed. SIGHUP has no handler, so that nohup works.
 */
export function endOfStart(log: Log): EndOfStart {
  const controller = new AbortController();
  let resolve: (exitCode: number) => void;
  const requested = new Promise<number>((settle) => {
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
    requested,
    because(reason, exitCode) {
      if (controller.signal.aborted) return;
      log.error(reason);
      end(exitCode);
    },
    over: () => controller.abort(),
  };
}

/**
 * Watches for the end of npm. A killed npm does not forward a signal, but the programs that it runs should
 * end as well.
 */
function watchNpm(onGone: () => void): void {
  if (!startedByNpm().script) return;
  const npm = process.ppid;
  const parentPoller = poll(PARENT_POLL_MS, () => {
    if (process.ppid === npm) return;
    void parentPoller.stop();
    onGone();
  });
}
