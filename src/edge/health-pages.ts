import type { IncomingMessage } from 'node:http';
import type { Express } from 'express';
import type { Registry } from 'prom-client';
import { isLeaving, withTimeout } from '../platform/lifecycle.ts';
import type { Dependencies } from '../processes/dependencies.ts';
import { type ProcessHealth, readyzProblems } from '../processes/readyz.ts';
import { printedLoss } from '../queue/loss.ts';
import type { Oldest } from '../queue/oldest.ts';
import type { Pool } from '../store/database.ts';
import { listProcesses, SILENT_SECONDS } from '../store/processes.ts';
import { addPage, refuse } from './app.ts';
import type { LoadShedding } from './load-shedding.ts';
import type { Responses } from './responses.ts';

/** Milliseconds to list the processes of the fleet. */
const PATIENCE_MS = 1000;

interface Readiness {
  health: ProcessHealth;
  /** Returns the missing dependencies. Any makes the process unready. */
  check: Dependencies['check'];
  /** Overload of the queue makes the process unready. */
  loadShedding: LoadShedding;
  /** Envelopes that wait too long are listed, but do not make the process unready. */
  oldest: Pick<Oldest, 'tooOld' | 'standstill'>;
  /** Whether the process stays ready during a standstill. A standstill is reported in any case. */
  readyAtStandstill: boolean;
  /** Requests per second that this process refused between its last two heartbeats. */
  refusedPerSecond(): number;
}

/**
 * Adds /healthz: the process is alive; and /readyz: whether it can take requests, missing dependencies by name, and its
 * high-water marks. /readyz answers within about a second, even if a dependency is unavailable. These pages are not logged.
 */
export function addHealthPages(
  app: Express,
  { health, check, loadShedding, oldest, readyAtStandstill, refusedPerSecond }: Readiness,
): void {
  addPage(app, '/healthz', (_request, response) => {
    response.json({ message: 'alive' });
  });

  addPage(app, '/readyz', async (_request, response) => {
    const missing = await check();
    const overload = loadShedding.overload('queue')?.reason;
    const stuck = oldest.tooOld();
    const standstill = Math.round(oldest.standstill());
    const moves = standstill === 0 || readyAtStandstill;
    const leaving = isLeaving();
    const ready = missing.length === 0 && overload === undefined && moves && !leaving;
    const loss = health.loss();
    const marks = loadShedding.levels();
    response.status(ready ? 200 : 503).json({
      message: ready ? 'ready' : 'not ready',
      missing,
      ...(leaving && { leaving }),
      ...(overload && { overload }),
      ...(loss && { loss: printedLoss(loss) }),
      ...(stuck.length > 0 && { stuck }),
      ...(standstill > 0 && { standstill_seconds: standstill }),
      high_water: marks,
      ...readyzProblems(health, missing, {
        ...{ stuck, standstill, marks, refusedPerSecond: refusedPerSecond() },
      }),
    });
  });
}

interface MetricsSources {
  registry: Registry;
  /** Updates the metrics of the whole fleet, as far as they can be read in time; never rejects. */
  refresh(): Promise<void>;
  responses: Pick<Responses, 'sendPage'>;
  /** Whether an Authorization header grants access. */
  mayRead(header: string | undefined): boolean;
}

/**
 * Adds /metrics for Prometheus. It answers within about a second, even if a dependency is unavailable, and is not logged.
 */
export function addMetricsPage(
  app: Express,
  { registry, refresh, responses, mayRead }: MetricsSources,
): void {
  addPage(app, '/metrics', async (request, response) => {
    if (!mayRead(request.headers.authorization)) {
      return refuse(response, 'metricsToken', { 'WWW-Authenticate': 'Bearer' });
    }
    await refresh();
    response.type(registry.contentType);
    responses.sendPage(response, await registry.metrics());
  });
}

/** Adds /metrics/targets, from which Prometheus finds the processes of the fleet. */
export function addTargetsPage(
  app: Express,
  pool: Pool,
  mayRead: (request: IncomingMessage) => boolean,
): void {
  addPage(app, '/metrics/targets', async (request, response) => {
    if (!mayRead(request)) {
      return refuse(response, 'metricsToken', { 'WWW-Authenticate': 'Bearer' });
    }
    response.json(await listTargets(pool));
  });
}

/**
 * Lists the processes of the fleet in the format of Prometheus's `http_sd_configs`: those with a recent heartbeat and
 * their own pages.
 * @throws if Postgres does not answer; Prometheus then keeps its last list
 */
async function listTargets(pool: Pool) {
  const all = await withTimeout(PATIENCE_MS, listProcesses(pool));
  return all
    .filter(({ address, silentSeconds }) => address !== null && silentSeconds < SILENT_SECONDS)
    .map(({ address, name, host }) => ({ targets: [address], labels: { process: name, host } }));
}
