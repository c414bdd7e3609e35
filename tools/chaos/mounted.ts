import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import path from 'node:path';
import { leaveBehind, temporaryFolder } from '../../test/setup/left-behind.ts';

/** Returns why no small file system can be mounted here; undefined if it can. */
export function cannotMount(): string | undefined {
  try {
    mountSmallDisk(1).unmount();
    return undefined;
  } catch (error) {
    const { stderr, message } = error as { stderr?: Buffer; message: string };
    return `a small file system cannot be mounted here (root can): ${stderr?.toString().trim() || message}`;
  }
}

/** Mounts a separate in-memory file system that is quickly full. It is unmounted at the end. */
export function mountSmallDisk(megabytes: number) {
  const folder = path.join(temporaryFolder('penstock-disk-'), 'disk');
  mkdirSync(folder);
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=755`, 'tmpfs', folder], {
    stdio: 'pipe',
  });
  let mounted = true;
  const unmount = () => {
    if (mounted) execFileSync('umount', ['-l', folder]);
    mounted = false;
  };
  leaveBehind(unmount);
  const ballast = path.join(folder, 'ballast');
  const free = () => {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  };
  return {
    folder,
    unmount,
    /** Fills the disk until the given number of bytes is free. */
    fill(rest: number): void {
      rmSync(ballast, { force: true });
      const file = openSync(ballast, 'w');
      try {
        while (free() > rest) writeSync(file, Buffer.alloc(Math.min(free() - rest, 1_048_576)));
      } catch {
        // Another process has written the last free bytes meanwhile.
      } finally {
        closeSync(file);
      }
    },
    clear: (): void => rmSync(ballast, { force: true }),
  };
}
