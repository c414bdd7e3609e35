import { spawnSync } from 'node:child_process';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../src/platform/files.ts';
import { temporaryFolder } from './setup/fixtures.ts';

const { scripts, engines } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
const env = { PATH: process.env.PATH, HOME: process.env.HOME };

/** Runs a script of package.json on a Node that reports another version. */
const runOn = (version: string, script: string) => runLineOn(version, scripts[script]);

function runLineOn(version: string, line: string) {
  const pretend = path.join(temporaryFolder(), 'pretend.cjs');
  writeFileSync(
    pretend,
    `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } });`,
  );
  return spawnSync('/bin/sh', ['-c', line], {
    cwd: packageRoot,
    env: { ...env, NODE_OPTIONS: `--require ${pretend}`, DATA_DIR: '/nowhere', PORT: 'none' },
    encoding: 'utf8',
  });
}

/** Returns a folder whose manifest requires a newer Node than this one. */
function copyForAnother(): string {
  const folder = copyOfManifest();
  const manifest = path.join(folder, 'package.json');
  writeFileSync(manifest, readFileSync(manifest, 'utf8').replace(engines.node, '^99.0.0'));
  return folder;
}

describe('an unsupported Node', () => {
  test.each(['14.21.3', '16.20.2', '18.20.8', '20.18.3', '21.7.3', '22.12.0', '23.11.1', '25.0.0', '27.1.0'])(
    '%s is rejected by npm start in one sentence that names the supported versions',
    (version) => {
      const { status, stdout, stderr } = runOn(version, 'start');
      expect({ status, stdout, stderr }).toEqual({
        status: 1,
        stdout: '',
        stderr: `Penstock runs on Node 20 (20.19 or newer), 22 (22.13 or newer), 24 or 26; this is Node ${version}.\n`,
      });
    },
  );

  test('is rejected by the admin command as well', () => {
    expect(runOn('18.20.8', 'penstock').stderr).toMatch(
      /^Penstock runs on Node [^\n]+ this is Node 18.20.8.\n$/,
    );
  });

  test('can be forced: npm ci --engine-strict=false and the program itself accept it', () => {
    const { status, stderr } = npmCi(copyForAnother(), '--engine-strict=false');
    expect(status).toBe(0);
    expect(stderr).toContain("package: 'penstock@");
    expect(runLineOn('27.1.0', 'node dist/src/start.js').stderr).toContain(
      'wrong setting: PORT must be integer',
    );
  });

  test('is rejected by npm ci before any package is installed, with the name penstock', () => {
    const { status, stderr } = npmCi(copyForAnother());
    expect(status).toBe(1);
    expect(stderr).toContain('Not compatible with your version of node/npm: penstock@');
    expect(stderr).toContain('Required: {"node":"^99.0.0"}');
  });
});

describe('a supported Node', () => {
  test.each(['20.19.0', '20.20.2', '22.13.0', '22.23.4', '24.0.0', '24.22.1'])(
    '%s is accepted',
    (version) => {
      expect(runOn(version, 'start').stderr).toContain('wrong setting: PORT must be integer');
    },
  );

  test('npm ci reports no engine conflict, neither of this package nor of a dependency', () => {
    const { status, stderr } = npmCi(copyOfManifest());
    expect({ status, engines: stderr.match(/EBADENGINE.*/g) }).toEqual({ status: 0, engines: null });
  });
});

/** Copies the files that npm reads first to a new folder. */
function copyOfManifest(): string {
  const folder = temporaryFolder();
  for (const file of ['package.json', 'package-lock.json', '.npmrc'])
    cpSync(path.join(packageRoot, file), path.join(folder, file));
  return folder;
}

/** Runs npm ci without installing and without the network. */
function npmCi(folder: string, ...more: string[]) {
  return spawnSync('npm', ['ci', '--dry-run', '--ignore-scripts', '--offline', ...more], {
    cwd: folder,
    env,
    encoding: 'utf8',
  });
}
