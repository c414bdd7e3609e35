import { readConfig } from './config.ts';

/**
 * `node dist/src/health.js web`, for container engines: exits 0 when that process of the same container
 * answers, 1 otherwise. The image has no curl.
 */
const config = readConfig();
const ports: Record<string, number> = {
  web: config.PORT,
  worker: config.WORKER_PORT,
  board: config.BOARD_PORT,
};
const name = process.argv[2] ?? 'web';
try {
  const response = await fetch(`http://127.0.0.1:${ports[name]}/healthz`, {
    signal: AbortSignal.timeout(3000),
  });
  process.exitCode = response.ok ? 0 : 1;
} catch {
  process.exitCode = 1;
}
