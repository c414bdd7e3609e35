import path from 'node:path';
import { Worker } from 'node:worker_threads';
import { packageRoot } from '../package-root.ts';
import { HEAP, MAX_WAITING, RENDER_DEADLINE, THREADS } from './limits.ts';
import type { Rendered, Rendering } from './render-thread.ts';
import { TemplateError, TemplateTooCostly } from './template-error.ts';

/** A thread is a file of its own, and Node runs only the compiled one. */
const FILE = path.join(packageRoot, 'dist/src/preferences/render-thread.js');

/** Milliseconds that a new thread has until it is ready, on a machine that is busy with other things. */
const START_DEADLINE = 10_000;

/** More pages are asked for than can be rendered now. */
export class RendererBusy extends Error {
  override name = 'RendererBusy';
}

export type Page = Exclude<Rendered, { problem: string }>;

interface Job {
  rendering: Rendering;
  resolve(page: Page): void;
  reject(error: Error): void;
}

/**
 * Renders templates in a few threads. One that takes longer than `RENDER_DEADLINE`, or more memory than it has,
 * is ended and replaced; what waits for it goes on.
 */
export function createRenderer(threads = THREADS) {
  const waiting: Job[] = [];
  const idle: Worker[] = [];
  const living = new Set<Worker>();
  let stopped = false;

  /**
   * @throws {TemplateError} when the template is at fault, in words for whoever wrote it
   * @throws {RendererBusy} at once, when too many wait
   */
  function render(rendering: Rendering): Promise<Page> {
    if (stopped || waiting.length >= MAX_WAITING) {
      return Promise.reject(new RendererBusy('too many pages wait to be rendered'));
    }
    return new Promise((resolve, reject) => {
      waiting.push({ rendering, resolve, reject });
      next();
    });
  }

  function next(): void {
    if (waiting.length === 0) return;
    const worker = idle.pop();
    if (worker) run(worker, waiting.shift()!);
    else if (living.size < threads) start();
  }

  /** Joins the idle ones when it is ready. */
  function start(): void {
    const worker = new Worker(FILE, {
      env: {},
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: HEAP, maxYoungGenerationSizeMb: HEAP / 4 },
    });
    living.add(worker);
    worker.unref();
    expect(worker, START_DEADLINE, (outcome) => {
      if (outcome !== 'ready') waiting.shift()?.reject(new RendererBusy('no thread to render with'));
      else idle.push(worker);
      next();
    });
  }

  function run(worker: Worker, { rendering, resolve, reject }: Job): void {
    expect(worker, RENDER_DEADLINE, (outcome) => {
      if (outcome === undefined) {
        reject(new TemplateTooCostly('it takes more time or memory than a page may'));
      } else {
        idle.push(worker);
        const rendered = outcome as Rendered;
        if ('html' in rendered) resolve(rendered);
        else reject(new (rendered.costly ? TemplateTooCostly : TemplateError)(rendered.problem));
      }
      next();
    });
    worker.postMessage(rendering);
  }

  /** Calls back with the next message, or without one when the thread has ended or was ended for its silence. */
  function expect(worker: Worker, deadline: number, settle: (outcome?: unknown) => void): void {
    const timer = setTimeout(() => end(), deadline);
    const end = (outcome?: unknown) => {
      clearTimeout(timer);
      for (const event of ['message', 'error', 'exit']) worker.removeAllListeners(event);
      if (outcome === undefined) {
        living.delete(worker);
        // Out of memory is an error of the thread, which ends by itself and must not end the process.
        worker.on('error', () => {});
        void worker.terminate();
      }
      settle(outcome);
    };
    worker.once('message', end);
    worker.once('error', () => end());
    worker.once('exit', () => end());
  }

  return {
    render,
    async stop(): Promise<void> {
      stopped = true;
      for (const { reject } of waiting.splice(0)) reject(new RendererBusy('the process stops'));
      await Promise.all([...living].map((worker) => worker.terminate()));
    },
  };
}

export type Renderer = ReturnType<typeof createRenderer>;
