import { readdirSync, readFileSync } from 'node:fs';
import { temporaryFolder, useMadeCluster, waitUntil } from './fixtures.ts';
import { leasePort } from './ports.ts';
import { startProcess, type TestProcess } from './processes.ts';

/** Pattern of the API key that a first start prints. */
export const KEY = /pk_[\w-]{43}/;

const started: { start: TestProcess; folder: string }[] = [];

/**
 * Ends the starts of a test with all processes on their folders, except for the first `kept` ones, which all
 * tests share.
 */
export async function endStarted(kept = 0): Promise<void> {
  const ended = started.splice(kept);
  for (const { start } of ended) start.kill('SIGKILL');
  await Promise.all(ended.map(({ start }) => start.exit));
  // Postgres and Redis notice the end of their parent a moment later, and write to the folder until then.
  for (const { folder } of ended)
    await waitUntil(() => runningOn(folder).length === 0, {
      what: `the end of what ran on ${folder}`,
      explain: async () => JSON.stringify(runningOn(folder)),
    });
}

/** Returns settings with a new data folder and leased ports. */
export async function settings() {
  const [port, board, worker, sync] = await Promise.all([leasePort(), leasePort(), leasePort(), leasePort()]);
  return {
    DATA_DIR: temporaryFolder('penstock-start-'),
    PORT: String(port),
    BOARD_PORT: String(board),
    WORKER_PORT: String(worker),
    SYNC_PORT: String(sync),
  };
}

/** Returns `settings` with a finished cluster, for tests of later steps. */
export async function settingsWithCluster() {
  const env = await settings();
  useMadeCluster(env.DATA_DIR);
  return env;
}

type StartSettings = Record<string, string> & { DATA_DIR: string };

export function begin(
  env: StartSettings,
  run: (env: StartSettings) => TestProcess = (all) => startProcess('dist/src/start.js', all),
): TestProcess {
  const start = run(env);
  started.push({ start, folder: env.DATA_DIR });
  return start;
}

export async function startAndWait(
  env: StartSettings,
  run?: (env: StartSettings) => TestProcess,
): Promise<TestProcess> {
  const start = begin(env, run);
  await waitUntil(() => output(start).includes('Penstock is ready'), {
    what: 'the greeting',
    deadline: 60_000,
  }).catch((error: Error) => {
    const lines = start.log.map((line) => line.text ?? JSON.stringify(line));
    throw new Error(`${error.message}; it said:\n${lines.slice(-30).join('\n')}`);
  });
  return start;
}

/** Returns the lines that are not log lines. */
export function output({ log }: TestProcess): string {
  return log.map(({ text }) => text ?? '').join('\n');
}

async function post(port: string, path: string, key: string, body: object): Promise<Response> {
  return fetch(`http://127.0.0.1:${port}${path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
}

export async function track(
  port: string,
  key: string,
  attributes = [{ external_id: 'ada', first_name: 'Ada' }],
): Promise<number> {
  return (await post(port, '/users/track', key, { attributes })).status;
}

export async function readBack(port: string, key: string, externalId = 'ada') {
  const response = await post(port, '/users/export/ids', key, { external_ids: [externalId] });
  return (await response.json()) as { users: { external_id: string }[] };
}

/** Returns the processes whose command line or environment contains the folder. */
export function runningOn(folder: string): { pid: number; command: string }[] {
  const read = (file: string) => {
    try {
      return readFileSync(file, 'utf8').replaceAll('\0', ' ').trim();
    } catch {
      return '';
    }
  };
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map((pid) => ({
      pid: Number(pid),
      command: read(`/proc/${pid}/cmdline`),
      env: read(`/proc/${pid}/environ`),
    }))
    .filter(({ command, env }) => `${command} ${env}`.includes(folder))
    .map(({ pid, command }) => ({ pid, command }));
}
