import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { leaveBehind, temporaryFolder } from '../setup/servers.ts';

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
      writeFileSync(ballast, Buffer.alloc(Math.max(0, free() - rest)));
    },
    clear: (): void => rmSync(ballast, { force: true }),
  };
}
