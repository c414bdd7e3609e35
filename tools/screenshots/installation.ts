import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { readEmbeddedUrl } from '../../src/embedded/address.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { spawnOnLeash } from '../../test/setup/leash.ts';
import { leasePort } from '../../test/setup/ports.ts';
import { waitUntil } from '../../test/setup/wait-until.ts';

const PASSWORD = randomBytes(12).toString('hex');

/** Runs the program of `npm start` with a temporary DATA_DIR. `stop` ends it and removes the folder. */
export async function startInstallation() {
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-screenshots-'));
  const key = randomBytes(24).toString('hex');
  const [web, board] = await Promise.all([leasePort(), leasePort()]);
  const env = {
    ...{ DATA_DIR: folder, PORT: String(web), BOARD_PORT: String(board), WORKER_PORT: '0', SYNC_PORT: '0' },
    ...{ BOARD_PASSWORD: PASSWORD, BOOTSTRAP_API_KEY: key, LOG_LEVEL: 'warn', LANES: '4' },
  };
  const node = (file: string, args: string[] = []) => [
    process.execPath,
    path.join(packageRoot, file),
    ...args,
  ];
  const process_ = spawnOnLeash(node('dist/src/start.js'), { cwd: packageRoot, env, stdout: 'ignore' });
  let pool: pg.Pool | undefined;

  const call = async (method: string, target: string, body?: object): Promise<Record<string, string>> => {
    const response = await fetch(`http://127.0.0.1:${web}${target}`, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${target}: ${response.status} ${text}`);
    return JSON.parse(text);
  };

  const stop = async () => {
    await pool?.end();
    process_.child.kill('SIGTERM');
    await process_.exit;
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    for (const port of [web, board])
      await waitUntil(async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).ok, {
        what: `port ${port} of the installation`,
      });
  } catch (error) {
    await stop();
    throw error;
  }
  const opened = new pg.Pool({ connectionString: readEmbeddedUrl(folder)!, max: 2 });
  pool = opened;
  return {
    ...{ call, stop, pool: opened },
    docs: `http://127.0.0.1:${web}/docs`,
    console: { url: `http://127.0.0.1:${board}`, user: 'admin', password: PASSWORD },
    /** Runs `penstock <words> --json` and returns its output. */
    async penstock(...words: string[]): Promise<Record<string, string>> {
      const [command, ...args] = node('dist/src/cli.js', [...words, '--json']) as [string, ...string[]];
      const { stdout } = await promisify(execFile)(command, args, { env: { DATA_DIR: folder } });
      return JSON.parse(stdout);
    },
  };
}

export type Installation = Awaited<ReturnType<typeof startInstallation>>;
