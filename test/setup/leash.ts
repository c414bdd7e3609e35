import { type ChildProcess, spawn } from 'node:child_process';
import type { Writable } from 'node:stream';

/**
 * Becomes the program, and starts a process that kills it when the pipe on descriptor 3 ends without a line.
 */
const script = `
( { read -r _ <&3 || kill -9 $$; } >/dev/null 2>&1 & )
exec "$@" 3<&-`;

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** Starts a program that ends with this process, however this process ends. */
export function spawnOnLeash(
  command: string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv; stdout: 'pipe' | 'ignore' | 'inherit' },
): { child: ChildProcess; exit: Promise<Exit> } {
  const { cwd, env, stdout } = options;
  const child = spawn('/bin/sh', ['-c', script, 'sh', ...command], {
    ...(cwd && { cwd }),
    ...(env && { env }),
    stdio: ['ignore', stdout, stdout, 'pipe'],
  });
  const leash = child.stdio[3] as Writable;
  leash.on('error', () => {});
  const exit = new Promise<Exit>((resolve) => {
    child.once('exit', (code, signal) => {
      leash.end('ended\n');
      resolve({ code, signal });
    });
  });
  return { child, exit };
}
