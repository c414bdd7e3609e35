import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../../src/platform/files.ts';
import { temporaryFolder } from '../../../test/setup/left-behind.ts';

let library: string | undefined;

/** Why the library that follows fsync cannot be used here; undefined: it can. */
export function cannotCutPower(): string | undefined {
  if (process.platform !== 'linux') return 'power cuts need Linux: the library is preloaded by ld.so';
  const found = spawnSync('cc', ['--version'], { stdio: 'ignore' });
  return found.status === 0
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

/** A folder of a server, and beside it what a power cut would leave of the folder. */
export interface DurableFolder {
  /** A program that runs the given one, and keeps the copy up to date at each fsync. */
  program: string;
  /** Puts the copy in place of the folder. Only while no server runs. @returns files that were not whole on disk */
  cut(): number;
}

/**
 * @param live the folder, absolute
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
