import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

/** Debian's name first, then those of other systems. */
const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/**
 * The browser on the PATH. Where there is none it is installed, if that is allowed: as root, with Debian's
 * package manager.
 * @throws {Error} one line that says what to install.
 */
export async function findChromium(): Promise<string> {
  const found = onPath(NAMES);
  if (found) return found;
  if (process.getuid?.() === 0 && onPath(['apt-get'])) await install();
  const installed = onPath(NAMES);
  if (installed) return installed;
  throw new Error('no browser to test with: install chromium (on Debian: apt-get install chromium)');
}

async function install(): Promise<void> {
  const aptGet = (...args: string[]) =>
    promisify(execFile)('apt-get', ['-q', ...args], {
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
      maxBuffer: 64 * 1024 * 1024,
    });
  try {
    await aptGet('update');
    await aptGet('install', '-y', '--no-install-recommends', 'chromium');
  } catch {
    // Whoever called is told what to install.
  }
}

function onPath(names: string[]): string | undefined {
  const folders = (process.env.PATH ?? '').split(path.delimiter).filter(Boolean);
  return names.flatMap((name) => folders.map((folder) => path.join(folder, name))).find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
