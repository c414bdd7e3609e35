import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';

/**
 * Restricts a process, its children and their future children to some cores, with `taskset` of util-linux.
 *
 * @param cores cores in the syntax of taskset, for example `0` or `0-1`
 */
export function pin(pid: number, cores: string): void {
  for (const each of family(pid)) {
    try {
      execFileSync('taskset', ['--all-tasks', '--pid', '--cpu-list', cores, String(each)], { stdio: 'pipe' });
    } catch (error) {
      // A backend may have ended since. A missing taskset is an error.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw error;
    }
  }
}

/** Allows a process and its children to use every core again. */
export function unpin(pid: number): void {
  pin(pid, `0-${cpus().length - 1}`);
}

function family(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  return [pid, ...children.flatMap((child) => family(Number(child)))];
}
