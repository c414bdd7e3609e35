import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

/** A program that tests need and npm does not bring. */
interface Program {
  /** What it may be called; Debian's name first, then those of other systems. */
  names: string[];
  /** Debian's package. */
  package: string;
  /** What is missing without it, for a sentence. */
  missing: string;
}

const CHROMIUM: Program = {
  names: ['chromium', 'chromium-browser', 'google-chrome'],
  package: 'chromium',
  missing: 'no browser to test with',
};
const PYTHON: Program = {
  names: ['python3'],
  package: 'python3',
  missing: 'no Python to run the examples with',
};
const PROMTOOL: Program = {
  names: ['promtool'],
  package: 'prometheus',
  missing: 'no promtool to try the alerts and the pages of metrics with',
};
const CURL: Program = { names: ['curl'], package: 'curl', missing: 'no curl to run the examples with' };

/**
 * The browser on the PATH. Where there is none it is installed, if that is allowed: as root, with Debian's
 * package manager.
 * @throws {Error} one line that says what to install.
 */
export const findChromium = () => find(CHROMIUM);

/** As `findChromium`. */
export const findPython = () => find(PYTHON);

/** As `findChromium`. */
export const findCurl = () => find(CURL);

/** As `findChromium`. */
export const findPromtool = () => find(PROMTOOL);

/** As `findChromium`; one for whose users there is a completion. */
export const findShell = (name: 'bash' | 'zsh' | 'fish') =>
  find({ names: [name], package: name, missing: `no ${name} to complete words in` });

/** As `findChromium`: makes a terminal for a program that runs in it. */
export const findScript = () =>
  find({ names: ['script'], package: 'bsdutils', missing: 'no script to make a terminal with' });

async function find(program: Program): Promise<string> {
  const found = onPath(program.names);
  if (found) return found;
  if (process.getuid?.() === 0 && onPath(['apt-get'])) await install(program.package);
  const installed = onPath(program.names);
  if (installed) return installed;
  const name = program.package;
  throw new Error(`${program.missing}: install ${name} (on Debian: apt-get install ${name})`);
}

async function install(name: string): Promise<void> {
  const aptGet = (...args: string[]) =>
    promisify(execFile)('apt-get', ['-q', ...args], {
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
      maxBuffer: 64 * 1024 * 1024,
    });
  try {
    await aptGet('update');
    await aptGet('install', '-y', '--no-install-recommends', name);
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
