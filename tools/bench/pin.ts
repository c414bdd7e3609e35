import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';

/**
 * Lets a process, those that it has started and those that it will start run on these cores only; with util-linux's
 * `taskset`, which Linux systems have.
 *
 * @param cores as taskset writes them: `0`, `0-1`
 */
export function pin(pid: number, cores: string): void {
  for (const each of family(pid)) {
    try {
      execFileSync('taskset', ['--all-tasks', '--pid', '--cpu-list', cores, String(each)], { stdio: 'pipe' });
    } catch (error) {
      // A backend may have ended since; taskset itself has to be there.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw error;
    }
  }
}

/** Lets them run on every core again. */
export function unpin(pid: number): void {
  pin(pid, `0-${cpus().length - 1}`);
}

function family(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  return [pid, ...children.flatMap((child) => family(Number(child)))];
}
