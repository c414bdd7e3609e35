import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import { packageRoot } from '../package-root.ts';
import { HEAP, MAX_WAITING, RENDER_DEADLINE, RENDERERS, TURN_PATIENCE } from './limits.ts';
import type { Rendered, Rendering } from './render-process.ts';
import { TemplateError, TemplateTooCostly } from './template-error.ts';

/** Node runs only the compiled one. */
const FILE = path.join(packageRoot, 'dist/src/preferences/render-process.js');

/** Milliseconds that a new process has until it is ready, on a machine that is busy with other things. */
const START_DEADLINE = 10_000;

/** More pages are asked for than can be rendered now. */
export class RendererBusy extends Error {
  override name = 'RendererBusy';
}

export type Page = Exclude<Rendered, { problem: string }>;

interface Job {
  rendering: Rendering;
  /** Ends its waiting. */
  timer: NodeJS.Timeout;
  resolve(page: Page): void;
  reject(error: Error): void;
}

/**
 * Renders templates in a few processes, started when the first page is asked for. One that takes longer than the
 * deadline, or more memory than it has, is ended and replaced; what waits for it goes on.
 *
 * @param deadline milliseconds that one rendering may take
 * @param patience milliseconds that it may wait for a process
 */
export function createRenderer(most = RENDERERS, deadline = RENDER_DEADLINE, patience = TURN_PATIENCE) {
  const waiting: Job[] = [];
  const idle: ChildProcess[] = [];
  const living = new Set<ChildProcess>();
  let starting = 0;
  let stopped = false;

  /**
   * @throws {TemplateError} when the template is at fault, in words for whoever wrote it
   * @throws {RendererBusy} at once when too many wait, and when its turn has not come in time
   */
  function render(rendering: Rendering): Promise<Page> {
    if (stopped || waiting.length >= MAX_WAITING) {
      return Promise.reject(new RendererBusy('too many pages wait to be rendered'));
    }
    return new Promise((resolve, reject) => {
      const job: Job = { rendering, timer: setTimeout(giveUp, patience), resolve, reject };
      waiting.push(job);
      next();

      function giveUp(): void {
        // That a process takes its time to start is bounded by itself.
        if (starting > 0) {
          job.timer = setTimeout(giveUp, patience);
          return;
        }
        waiting.splice(waiting.indexOf(job), 1);
        reject(new RendererBusy('no process was free to render the page'));
      }
    });
  }

  function next(): void {
    if (waiting.length === 0 || stopped) return;
    const child = idle.pop();
    if (child) run(child, taken()!);
    else if (living.size < most) start();
  }

  /** The one that has waited longest. */
  function taken(): Job | undefined {
    const job = waiting.shift();
    clearTimeout(job?.timer);
    return job;
  }

  /** Joins the idle ones when it is ready. */
  function start(): void {
    const child = fork(FILE, {
      env: {},
      execArgv: [`--max-old-space-size=${HEAP}`],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    living.add(child);
    starting++;
    awaitWord(child, START_DEADLINE, (word) => {
      starting--;
      if (word === 'ready') idle.push(child);
      else taken()?.reject(new RendererBusy('no process to render with'));
      next();
    });
  }

  function run(child: ChildProcess, { rendering, resolve, reject }: Job): void {
    awaitWord(child, deadline, (word) => {
      if (word === undefined) reject(new TemplateTooCostly('it takes more time or memory than a page may'));
      else {
        idle.push(child);
        const rendered = word as Rendered;
        if ('html' in rendered) resolve(rendered);
        else reject(new (rendered.costly ? TemplateTooCostly : TemplateError)(rendered.problem));
      }
      next();
    });
    child.send(rendering, () => {});
  }

  /** Calls back with its next word, or with none when it has ended, or was ended for its silence. */
  function awaitWord(child: ChildProcess, patience: number, settle: (word?: unknown) => void): void {
    const end = (word?: unknown) => {
      clearTimeout(timer);
      for (const event of ['message', 'error', 'exit']) child.removeAllListeners(event);
      if (word === undefined) forget(child);
      // One that ends while it has nothing to do is missed by nobody.
      else for (const event of ['error', 'exit']) child.once(event, () => forget(child));
      settle(word);
    };
    const timer = setTimeout(() => end(), patience);
    for (const event of ['message', 'error', 'exit']) child.removeAllListeners(event);
    child.once('message', end);
    child.once('error', () => end());
    child.once('exit', () => end());
  }

  function forget(child: ChildProcess): void {
    living.delete(child);
    if (idle.includes(child)) idle.splice(idle.indexOf(child), 1);
    child.on('error', () => {});
    child.kill('SIGKILL');
  }

  return {
    render,
    /** Ends the processes; what waits is refused. */
    async stop(): Promise<void> {
      stopped = true;
      for (let job = taken(); job; job = taken()) job.reject(new RendererBusy('the process stops'));
      const ended = [...living].map((child) => new Promise((resolve) => child.once('exit', resolve)));
      for (const child of living) child.kill('SIGKILL');
      await Promise.all(ended);
    },
  };
}

export type Renderer = ReturnType<typeof createRenderer>;
