import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../../src/platform/files.ts';
import { temporaryFolder } from '../../../test/setup/left-behind.ts';

let library: string | undefined;

/** Returns the reason why the library cannot be used on this machine, or undefined. */
export function cannotCutPower(): string | undefined {
  if (process.platform !== 'linux') return 'power cuts need Linux: the library is preloaded by ld.so';
  const probe = spawnSync('cc', ['--version'], { stdio: 'ignore' });
  return probe.status === 0
    ? undefined
    : 'power cuts need a C compiler (cc), for example the Debian package gcc';
}

function compile(): string {
  if (library) return library;
  const folder = temporaryFolder('penstock-power-cut-');
  chmodSync(folder, 0o755);
  library = path.join(folder, 'durable.so');
  const source = path.join(packageRoot, 'tools/chaos/power-cut/durable.c');
  execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', library, source, '-ldl'], { stdio: 'pipe' });
  return library;
}

/** A server's folder with a copy that contains only synced bytes. */
export interface DurableFolder {
  /** A program that runs the server and updates the copy at each fsync. */
  program: string;
  /**
   * Replaces the folder with the copy. The server must have stopped. @returns number of files with bytes that
   * were not synced
   */
  cut(): number;
}

/**
 * Creates a copy of a folder that follows its synced bytes.
 * @param live absolute path of the folder
 * @param real the program of the server
 */
export function followDurable(live: string, real: string): DurableFolder {
  const folder = temporaryFolder('penstock-durable-');
  chmodSync(folder, 0o777);
  const durable = path.join(folder, 'copy');
  if (existsSync(live)) execFileSync('cp', ['-a', live, durable]);
  else mkdirSync(durable);
  const program = path.join(folder, 'server');
  const variables = { LD_PRELOAD: compile(), POWER_CUT_LIVE: live, POWER_CUT_DURABLE: durable };
  const lines = Object.entries(variables).map(([name, value]) => `export ${name}='${value}'`);
  writeFileSync(program, `#!/bin/sh\n${lines.join('\n')}\nexec ${real} "$@"\n`, { mode: 0o755 });
  return {
    program,
    cut() {
      const { stdout } = spawnSync('diff', ['-rq', live, durable], { encoding: 'utf8' });
      rmSync(live, { recursive: true, force: true });
      execFileSync('cp', ['-a', durable, live]);
      return stdout.split('\n').filter((line) => / differ$|: /.test(line)).length;
    },
  };
}
