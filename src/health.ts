import { readConfig } from './platform/config.ts';
import { reachable } from './platform/lifecycle.ts';
import { withTimeLimit } from './platform/time-limit.ts';

const TIMEOUT_MS = 3000;

/**
 * Health check for container engines, because the image has no curl. For example, `node dist/src/health.js web`
 * requests `/healthz` of the process `web` in the same container. Exits with 0 if the response is 2xx. Otherwise,
 * for example after 3 s without a response, it prints one line with the reason and exits with 1.
 */
const config = readConfig();
const processes: Record<string, { host: string; port: number; setting: string }> = {
  web: { host: config.HOST, port: config.PORT, setting: 'PORT' },
  worker: { host: config.WORKER_HOST, port: config.WORKER_PORT, setting: 'WORKER_PORT' },
  sync: { host: config.SYNC_HOST, port: config.SYNC_PORT, setting: 'SYNC_PORT' },
  board: { host: config.BOARD_HOST, port: config.BOARD_PORT, setting: 'BOARD_PORT' },
};

async function check(name: string): Promise<void> {
  const process = Object.hasOwn(processes, name) ? processes[name]! : undefined;
  if (!process) throw new Error(`no such process; there are ${Object.keys(processes).join(', ')}`);
  const { host, port, setting } = process;
  if (port === 0) throw new Error(`${setting} is 0: there is no port to ask`);
  const url = `http://${reachable(host)}:${port}/healthz`;
  const request = (signal: AbortSignal) => fetch(url, { signal });
  const response = await withTimeLimit({ milliseconds: TIMEOUT_MS }, request).catch((error: Error) => {
    throw new Error(
      `${url} does not answer: ${(error.cause as Error | undefined)?.message ?? error.message}`,
    );
  });
  if (!response.ok) throw new Error(`${url} answers ${response.status}`);
}

const name = process.argv[2] ?? 'web';
try {
  await check(name);
} catch (error) {
  process.stderr.write(`health of ${name}: ${(error as Error).message}\n`);
  process.exitCode = 1;
}
