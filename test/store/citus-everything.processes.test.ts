import { spawn } from 'node:child_process';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { citusUrl } from '../setup/citus.ts';

/**
 * Folders whose tests hold for any Postgres. docs/evidence/scale.md records which of them passed on a Citus,
 * and when.
 */
const FOLDERS = [
  ...['contract', 'model', 'identity-model', 'guarantees', 'workers', 'identity', 'subscription'],
  ...['sync', 'import', 'export', 'retention', 'preferences', 'streams'],
  ...['operations', 'edge', 'scim', 'board', 'admin'],
  ...['store/horizon', 'store/idempotency-keys', 'store/start-run', 'store/forget', 'store/migrate'],
].map((folder) => `test/${folder}`);

const TWO_HOURS = 7_200_000;

/** The run that this test starts must not start itself again. */
const isWithin = process.env.TEST_STORE === 'citus';

describe.skipIf(!citusUrl || isWithin)('on the Citus of CITUS_URL', () => {
  test('the tests of these folders pass', { timeout: TWO_HOURS }, async () => {
    const { code, output } = await runTests(FOLDERS);
    expect({ code, output: code === 0 ? '' : output }).toEqual({ code: 0, output: '' });
  });
});

test.skipIf(citusUrl)('LEFT OUT: no Citus is tested, because CITUS_URL is not set', () => {});

/**
 * Runs the folders in a Vitest process whose databases are on the Citus. @returns the exit code and the end
 * of the output
 */
async function runTests(folders: string[]): Promise<{ code: number | null; output: string }> {
  const vitest = path.join(packageRoot, 'node_modules/vitest/vitest.mjs');
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST')));
  // The project "rules" is omitted: its tests start no store.
  const projects = ['servers', 'measured', 'alone'].flatMap((name) => ['--project', name]);
  const child = spawn(process.execPath, [vitest, 'run', ...folders, ...projects, '--maxWorkers', '2'], {
    cwd: packageRoot,
    env: { ...env, TEST_STORE: 'citus' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      // Print the output as it comes: the run takes long.
      process.stdout.write(chunk);
      output = (output + chunk).slice(-20_000);
    });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, output };
}
