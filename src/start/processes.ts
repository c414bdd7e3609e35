import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import type { Log } from '../log.ts';
import { packageRoot } from '../package-root.ts';
import type { ProcfileLine } from './procfile.ts';

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
 * Runs the processes, and starts one again that ends by itself. Each is in a process group of its own, so
 * that a Ctrl-C reaches only this process, which then stops them in their order; and each holds a channel to
 * this process, whose end stops them too, however this process ends.
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
      ends = Date.now() - started < HEALTHY_MS ? ends + 1 : 1;
      const wait = Math.min(FIRST_WAIT_MS * 2 ** (ends - 1), LONGEST_WAIT_MS);
      log.warn({ name: line.name, code, signal, wait }, 'a process ended by itself and is started again');
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
      log.warn({ name: line.name }, 'a process did not stop in time and is killed');
      running.kill('SIGKILL');
    }, deadline + KILL_AFTER_MS);
    await ended;
    clearTimeout(timer);
  };
}
