import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import { createSemaphore } from '../platform/concurrency.ts';
import { packageRoot } from '../platform/files.ts';
import {
  HEAP,
  MAX_WAITING,
  MAX_WAITING_OF_ONE,
  RENDER_DEADLINE,
  RENDERERS,
  SLOW,
  SLOW_FOR,
  TURN_PATIENCE,
} from './page.ts';
import type { Answer, Rendered, Rendering } from './render-process.ts';
import { TemplateError, TemplateTooCostly } from './template.ts';

/** Node runs only the compiled one. */
const FILE = path.join(packageRoot, 'dist/src/preferences/render-process.js');

/** Milliseconds that a new process has until it is ready, on a machine that is busy with other things. */
const START_DEADLINE = 10_000;

/** More pages are asked for than can be rendered now. */
export class RendererBusy extends Error {
  override name = 'RendererBusy';
}

export type Page = Exclude<Rendered, { problem: string }>;

/** What a web process renders with. */
export interface RendererSettings {
  /** Processes. */
  most?: number;
  /** Milliseconds that one rendering may take. */
  deadline?: number;
  /** Milliseconds that it may wait for a process. */
  patience?: number;
  /** Milliseconds for which a workspace with a slow template shares all processes but one with its like. */
  slowFor?: number;
}

/**
 * Renders templates in a few processes, started when the first page is asked for. One that takes longer than the
 * deadline, or more memory than it has, is ended and replaced; what waits for it goes on. Workspaces take turns, and
 * those whose templates are slow never have all processes.
 */
export function createRenderer({
  most = RENDERERS,
  deadline = RENDER_DEADLINE,
  patience = TURN_PATIENCE,
  slowFor = SLOW_FOR,
}: RendererSettings = {}) {
  /** Until when, by workspace, in ms of `performance.now()`; the latest last. */
  const slowUntil = new Map<string, number>();
  const idle: ChildProcess[] = [];
  const living = new Set<ChildProcess>();
  let starting = 0;
  let stopped = false;

  const semaphore = createSemaphore({
    atOnce: most,
    atOnceOfOne: most,
    mostWaiting: MAX_WAITING,
    mostWaitingOfOne: MAX_WAITING_OF_ONE,
    patience,
    isHeavy: isSlow,
    // That a process takes its time to start is bounded by itself.
    isExcused: () => starting > 0,
    refusal: (reason) => new RendererBusy(`no process to render the page with: ${reason}`),
  });

  /**
   * @param workspaceId whose template it is
   * @throws {TemplateError} when the template is at fault, in words for whoever wrote it
   * @throws {RendererBusy} at once when too many wait, and when its turn has not come in time
   */
  function render(workspaceId: string, rendering: Rendering): Promise<Page> {
    return semaphore.use(workspaceId, async () => {
      if (stopped) throw new RendererBusy('the process stops');
      // A slow one may cost its process, so it leaves the others one that is ready.
      const ready = isSlow(workspaceId) && living.size < most ? undefined : idle.pop();
      const { rendered, cpu } = await run(ready ?? (await start()), rendering);
      if (cpu > SLOW) noteSlow(workspaceId);
      if (rendered && 'html' in rendered) return rendered;
      throw rendered === undefined
        ? new TemplateTooCostly('it takes more time or memory than a page may')
        : new (rendered.costly ? TemplateTooCostly : TemplateError)(rendered.problem);
    });
  }

  function isSlow(workspaceId: string): boolean {
    return (slowUntil.get(workspaceId) ?? 0) > performance.now();
  }

  function noteSlow(workspaceId: string): void {
    const now = performance.now();
    slowUntil.delete(workspaceId);
    slowUntil.set(workspaceId, now + slowFor);
    for (const [one, until] of slowUntil) {
      if (until > now) return;
      slowUntil.delete(one);
    }
  }

  function start(): Promise<ChildProcess> {
    const child = fork(FILE, {
      env: {},
      execArgv: [`--max-old-space-size=${HEAP}`],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    living.add(child);
    starting++;
    return new Promise((resolve, reject) => {
      awaitWord(child, START_DEADLINE, (word) => {
        starting--;
        if (word === 'ready') resolve(child);
        else reject(new RendererBusy('no process to render with'));
      });
    });
  }

  /** Without an answer it was ended, and took as long as one may. */
  function run(child: ChildProcess, rendering: Rendering): Promise<Partial<Answer> & { cpu: number }> {
    return new Promise((resolve) => {
      awaitWord(child, deadline, (word) => {
        if (word !== undefined) idle.push(child);
        resolve((word as Answer | undefined) ?? { cpu: Number.POSITIVE_INFINITY });
      });
      child.send(rendering, () => {});
    });
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
    /** Ends the processes, and with them what is in hand. */
    async stop(): Promise<void> {
      stopped = true;
      const ended = [...living].map((child) => new Promise((resolve) => child.once('exit', resolve)));
      for (const child of living) child.kill('SIGKILL');
      await Promise.all(ended);
    },
  };
}

export type Renderer = ReturnType<typeof createRenderer>;
