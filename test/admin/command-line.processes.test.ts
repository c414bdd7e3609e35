import { spawn, spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { createBareDatabase, startRedis, waitUntil } from '../setup/fixtures.ts';
import { findShell } from '../setup/installed.ts';
import { fromFolder } from './integrations-scene.ts';
import { expectRefusal, makeWorkspaces, penstock, penstockOn } from './penstock.ts';
import { spawnPenstock } from './spawn-penstock.ts';

/** Names of all migrations, sorted. */
const migrations = readdirSync(path.join(packageRoot, 'prisma/migrations'), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name)
  .sort();

// Other tests run commands inside the test process. These tests start the compiled program, as a script does: it must
// print its result, exit although connections were open, and report failure by its exit code.

test('the command as a process prints its result, exits, and reports failure by its exit code', async () => {
  const { url } = await createBareDatabase();
  const { url: REDIS_URL } = await startRedis();
  const { run, json } = penstockOn(url, { REDIS_URL }, spawnPenstock);
  expect(await json('migrate')).toEqual({ applied: migrations });
  await makeWorkspaces(url, 'shop');
  // These commands load Prisma, DuckDB and the queue client.
  expect(await json('keys create --workspace shop --permissions all')).toMatchObject({ workspace: 'shop' });
  expect(await json(fromFolder('users'))).toMatchObject({ status: 'active' });
  expect(await json('dead-letters replay --all')).toMatchObject({ enqueued: 0 });
  expect(await run('keys list')).toMatchObject({ code: 0, stderr: '' });
  expectRefusal(await run('keys list --workspace moon'), "'moon'");
  expectRefusal(await run('keyz'), "unknown command 'keyz'", 'keys');
});

test('--help and --version exit with 0 without a database; a noun without a verb exits with 1', async () => {
  expect(await spawnPenstock(['--help'])).toMatchObject({ code: 0, stderr: '' });
  expect(await spawnPenstock(['--version'])).toMatchObject({ code: 0, stderr: '' });
  expect(await spawnPenstock(['keys'])).toMatchObject({ code: 1, stdout: '' });
});

/** Builds shell code that runs the completion script and prints the completions after `words`. */
const shells: Record<'bash' | 'zsh' | 'fish', (script: string, words: string[]) => string> = {
  bash: (script, words) =>
    `${script}\nCOMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _penstock; echo "\${COMPREPLY[@]}"`,
  zsh: (script, words) =>
    `compdef() { :; }; compadd() { shift; echo $@; }\n${script}\nwords=(${words.map((word) => `'${word}'`).join(' ')}); CURRENT=${words.length}; _penstock`,
  fish: (script, words) => `${script}\ncomplete -C '${words.join(' ')}'`,
};

test.each(['bash', 'zsh', 'fish'] as const)(
  '%s completes commands and options with the script',
  async (shell) => {
    const file = await findShell(shell);
    const { stdout: script } = await penstock(['completion', shell]);
    const offered = (...words: string[]) => {
      const run = spawnSync(file, ['-c', shells[shell](script, words)], { encoding: 'utf8' });
      expect([run.error, run.stderr]).toEqual([undefined, '']);
      return run.stdout;
    };
    expect(offered('penstock', '')).toMatch(/\bdead-letters\b/);
    const verbs = offered('penstock', 'dead-letters', '');
    for (const verb of ['list', 'show', 'replay', 'mend', 'discard'])
      expect(verbs).toMatch(RegExp(`\\b${verb}\\b`));
    expect(verbs).not.toMatch(/\bset-lanes\b/);
    expect(offered('penstock', 'queue', '')).toMatch(/\bset-lanes\b/);
    expect(offered('penstock', 'queue', 'set-lanes', '--')).toMatch(/--wait\b/);
    expect(offered('penstock', 'completion', '')).toMatch(/\bfish\b/);
  },
);

test('status --watch refreshes the screen and exits with 0 on Ctrl-C', async () => {
  const { url } = await createBareDatabase();
  await penstockOn(url, {}, spawnPenstock).json('migrate');
  const child = spawn(process.execPath, ['dist/src/cli.js', 'status', '--watch', '1'], {
    ...{ cwd: packageRoot, env: { PATH: process.env.PATH, DATABASE_URL: url } },
  });
  let shown = '';
  child.stdout.on('data', (chunk) => {
    shown += chunk;
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  await waitUntil(() => shown.split('! No web is running').length > 2, { what: 'two screens' });
  child.kill('SIGINT');
  expect(await ended).toBe(0);
});
