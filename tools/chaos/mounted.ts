import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import path from 'node:path';
import { leaveBehind, temporaryFolder } from '../../test/setup/left-behind.ts';

/** Why no small file system can be made here; undefined: it can. */
export function cannotMount(): string | undefined {
  try {
    mountSmallDisk(1).unmount();
    return undefined;
  } catch (error) {
    const { stderr, message } = error as { stderr?: Buffer; message: string };
    return `a small file system cannot be mounted here (root can): ${stderr?.toString().trim() || message}`;
  }
}

/** A file system of its own, in memory, that is soon full. Unmounted at the end. */
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
    /** Leaves so many bytes free. */
    fill(rest: number): void {
      rmSync(ballast, { force: true });
      const file = openSync(ballast, 'w');
      try {
        while (free() > rest) writeSync(file, Buffer.alloc(Math.min(free() - rest, 1_048_576)));
      } catch {
        // Somebody else has taken the last of it meanwhile.
      } finally {
        closeSync(file);
      }
    },
    clear: (): void => rmSync(ballast, { force: true }),
  };
}
