import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../../../src/platform/files.ts';
import { spawnOnLeash } from '../../../test/setup/leash.ts';
import { leasePort } from '../../../test/setup/ports.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';

const KEY = 'bench-starts-0123456789';
const body = JSON.stringify({ attributes: [{ external_id: 'ada', first_name: 'Ada' }] });

/** Milliseconds between two attempts. */
const RETRY_MS = 20;
const TIMEOUT_MS = 60_000;

/** Measures the time from a start until the first request is accepted. */
export function startRows(fleets: Fleets): { rows: BenchRow[]; stop(): void } {
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-starts-'));
  let data = '';
  let turn = 0;

  async function npmStart(): Promise<Figure> {
    const [port, board, worker] = [await leasePort(), await leasePort(), await leasePort()];
    const { PATH, HOME } = process.env;
    const started = performance.now();
    const { child, exit } = spawnOnLeash(['npm', 'start', '--silent'], {
      cwd: packageRoot,
      env: {
        ...{ PATH, HOME, DATA_DIR: data, BOOTSTRAP_API_KEY: KEY, LOG_LEVEL: 'error' },
        ...{ PORT: String(port), BOARD_PORT: String(board), WORKER_PORT: String(worker) },
      },
      stdout: 'ignore',
    });
    try {
      return await untilAccepted(`http://127.0.0.1:${port}`, KEY, started);
    } finally {
      child.kill('SIGTERM');
      await exit;
    }
  }

  async function restartEdge(): Promise<Figure> {
    const ours = await fleets.ours();
    const started = performance.now();
    await ours.restartWeb!();
    return untilAccepted(`http://${ours.target.host}:${ours.target.port}`, ours.key, started);
  }

  return {
    rows: [
      {
        name: 'start-first',
        what: 'npm start, nothing there yet, until the first 201',
        measure: () => {
          data = path.join(folder, String(++turn));
          return npmStart();
        },
      },
      { name: 'start-again', what: 'npm start on the same data, until the first 201', measure: npmStart },
      {
        name: 'edge-restart',
        what: 'kill -9 of web and a new one, until the first 201',
        measure: restartEdge,
      },
    ],
    stop: () => rmSync(folder, { recursive: true, force: true }),
  };
}

async function untilAccepted(url: string, key: string, started: number): Promise<Figure> {
  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' };
  for (;;) {
    const status = await fetch(`${url}/users/track`, { method: 'POST', headers, body }).then(
      (response) => response.status,
      () => 0,
    );
    const milliseconds = performance.now() - started;
    if (status === 201) return { value: milliseconds, unit: 'ms', detail: { rows: 1 } };
    if (milliseconds > TIMEOUT_MS) throw new Error(`${url}: not ready in time`);
    await sleep(RETRY_MS);
  }
}
