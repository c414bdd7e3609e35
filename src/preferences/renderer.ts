import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import { createSemaphore } from '../platform/concurrency.ts';
import { packageRoot } from '../platform/files.ts';
import {
  HEAP,
  MAX_WAITING,
  MAX_WAITING_PER_WORKSPACE,
  RENDER_DEADLINE,
  RENDERERS,
  SLOW,
  SLOW_FOR,
  TURN_PATIENCE,
} from './page.ts';
import type { Answer, Rendered, Rendering } from './render-process.ts';
import { TemplateError, TemplateTooCostly } from './template.ts';

/** Path of the compiled file. Supported versions of Node cannot all run the TypeScript source. */
const FILE = path.join(packageRoot, 'dist/src/preferences/render-process.js');

/** Maximum milliseconds until a new process is ready. The value allows for a busy machine. */
const START_DEADLINE = 10_000;

/** Too many pages are waiting to be rendered. */
export class RendererBusy extends Error {
  override name = 'RendererBusy';
}

type Page = Exclude<Rendered, { problem: string }>;

/** Settings of the renderer of a web process. */
interface RendererSettings {
  /** Maximum number of render processes. */
  maxProcesses?: number;
  /** Maximum duration of one rendering in milliseconds. */
  deadline?: number;
  /** Maximum time in milliseconds that a rendering waits for a process. */
  patience?: number;
  /** Milliseconds after a slow rendering for which the workspace counts as slow. */
  slowFor?: number;
}

/**
 * Creates a renderer with a few processes, which start at the first rendering. A process that exceeds the deadline or
 * its memory is killed and replaced, and the waiting renderings continue. Workspaces take turns, and slow workspaces
 * never occupy all processes.
 */
export function createRenderer({
  maxProcesses = RENDERERS,
  deadline = RENDER_DEADLINE,
  patience = TURN_PATIENCE,
  slowFor = SLOW_FOR,
}: RendererSettings = {}) {
  /** Times until which workspaces count as slow, in milliseconds of `performance.now()`, in ascending order. */
  const slowUntil = new Map<string, number>();
  const idle: ChildProcess[] = [];
  const children = new Set<ChildProcess>();
  let starting = 0;
  let stopped = false;

  const semaphore = createSemaphore({
    maxRunning: maxProcesses,
    maxRunningPerOwner: maxProcesses,
    maxWaiting: MAX_WAITING,
    maxWaitingPerOwner: MAX_WAITING_PER_WORKSPACE,
    patience,
    isHeavy: isSlow,
    // The wait does not time out while a process starts, because START_DEADLINE limits the start.
    isExcused: () => starting > 0,
    refusal: (reason) => new RendererBusy(`no process to render the page with: ${reason}`),
  });

  /**
   * Renders a template.
   *
   * @param workspaceId workspace of the template
   * @throws {TemplateError} if the template is not valid, with a message for its author
   * @throws {RendererBusy} immediately if too many renderings wait, or after the patience has passed
   */
  function render(workspaceId: string, rendering: Rendering): Promise<Page> {
    return semaphore.use(workspaceId, async () => {
      if (stopped) throw new RendererBusy('the process stops');
      // A slow template may end its process, so it gets a new process and leaves the idle one to others.
      const ready = isSlow(workspaceId) && children.size < maxProcesses ? undefined : idle.pop();
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
    children.add(child);
    starting++;
    return new Promise((resolve, reject) => {
      awaitMessage(child, START_DEADLINE, (message) => {
        starting--;
        if (message === 'ready') resolve(child);
        else reject(new RendererBusy('no process to render with'));
      });
    });
  }

  /** Runs a rendering. If the process does not answer, it is killed and the processor time counts as infinite. */
  function run(child: ChildProcess, rendering: Rendering): Promise<Partial<Answer> & { cpu: number }> {
    return new Promise((resolve) => {
      awaitMessage(child, deadline, (message) => {
        if (message !== undefined) idle.push(child);
        resolve((message as Answer | undefined) ?? { cpu: Number.POSITIVE_INFINITY });
      });
      child.send(rendering, () => {});
    });
  }

  /**
   * Calls back with the next message, or without one if the process has exited or was killed after `patience`
   * milliseconds.
   */
  function awaitMessage(child: ChildProcess, patience: number, callback: (message?: unknown) => void): void {
    const end = (message?: unknown) => {
      clearTimeout(timer);
      for (const event of ['message', 'error', 'exit']) child.removeAllListeners(event);
      if (message === undefined) forget(child);
      // If an idle process exits, it is only removed from the lists.
      else for (const event of ['error', 'exit']) child.once(event, () => forget(child));
      callback(message);
    };
    const timer = setTimeout(() => end(), patience);
    for (const event of ['message', 'error', 'exit']) child.removeAllListeners(event);
    child.once('message', end);
    child.once('error', () => end());
    child.once('exit', () => end());
  }

  function forget(child: ChildProcess): void {
    children.delete(child);
    if (idle.includes(child)) idle.splice(idle.indexOf(child), 1);
    child.on('error', () => {});
    child.kill('SIGKILL');
  }

  return {
    render,
    /** Kills the processes, and with them their current renderings. */
    async stop(): Promise<void> {
      stopped = true;
      const ended = [...children].map((child) => new Promise((resolve) => child.once('exit', resolve)));
      for (const child of children) child.kill('SIGKILL');
      await Promise.all(ended);
    },
  };
}

export type Renderer = ReturnType<typeof createRenderer>;
