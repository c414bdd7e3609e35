import type { IncomingMessage } from 'node:http';
import type { Express } from 'express';
import type { Registry } from 'prom-client';
import type { Problem } from '../checks/check.ts';
import { isLeaving, withTimeout } from '../platform/lifecycle.ts';
import { checkReadiness, type Dependencies, type Pings } from '../processes/dependencies.ts';
import type { Heartbeat } from '../processes/heartbeat.ts';
import { readyzProblems } from '../processes/process.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { printedLoss } from '../queue/loss.ts';
import type { Oldest } from '../queue/oldest.ts';
import type { Pool } from '../store/database.ts';
import type { QueueLoss } from '../store/installation.ts';
import { listProcesses, SILENT_SECONDS } from '../store/processes.ts';
import { addPage, refuse } from './app.ts';
import type { LoadShedding } from './load-shedding.ts';
import type { Responses } from './responses.ts';

/** Milliseconds to list the processes of the fleet. */
const PATIENCE_MS = 1000;

interface HealthSources {
  pool: Pool;
  connection: QueueConnection;
  pings: Pings;
  dependencies: Pick<Dependencies, 'lacking' | 'isReadOnly'>;
  rejectsWrites: Heartbeat['rejectsWrites'];
  /** Requests per second that this process refused between its last two heartbeats. */
  refusedPerSecond(): number;
  /** Problems of the installation. They are listed, but do not make the process unready. */
  problems(): readonly Problem[];
  registry: Registry;
  responses: Responses;
  /** Updates the metrics of the whole fleet, as far as they can be read in time; never rejects. */
  refresh(): Promise<void>;
  /** Whether an Authorization header grants access to /metrics. */
  mayReadMetrics(header: string | undefined): boolean;
  mayReadTargets(request: IncomingMessage): boolean;
  /** Envelopes that wait too long are listed, but do not make the process unready. */
  oldest: Pick<Oldest, 'tooOld' | 'standstill'>;
  /** Whether the process stays ready during a standstill. A standstill is reported in any case. */
  readyAtStandstill: boolean;
  /** Overload of the queue makes the process unready. */
  loadShedding: LoadShedding;
  /** The unconfirmed losses of the queue. They do not make the process unready, because later objects are safe. */
  loss(): QueueLoss | undefined;
}

/**
 * Adds the health pages. /healthz: the process is alive. /readyz: whether it can take requests, missing dependencies
 * by name, and its high-water marks. /metrics: Prometheus. /readyz and /metrics answer within about a second,
 * whatever is unavailable. These pages are not logged.
 */
export function addHealthPages(app: Express, sources: HealthSources): void {
  addPage(app, '/healthz', (_request, response) => {
    response.json({ message: 'alive' });
  });

  addPage(app, '/readyz', async (_request, response) => {
    const missing = await checkReadiness(sources.pool, sources.connection, sources.pings);
    const overload = sources.loadShedding.overload('queue')?.reason;
    const stuck = sources.oldest.tooOld();
    const standstill = Math.round(sources.oldest.standstill());
    const moves = standstill === 0 || sources.readyAtStandstill;
    const leaving = isLeaving();
    const ready = missing.length === 0 && overload === undefined && moves && !leaving;
    const loss = sources.loss();
    const marks = sources.loadShedding.levels();
    response.status(ready ? 200 : 503).json({
      message: ready ? 'ready' : 'not ready',
      missing,
      ...(leaving && { leaving }),
      ...(overload && { overload }),
      ...(loss && { loss: printedLoss(loss) }),
      ...(stuck.length > 0 && { stuck }),
      ...(standstill > 0 && { standstill_seconds: standstill }),
      high_water: marks,
      ...readyzProblems(sources, {
        missing,
        loss,
        rejectsWrites: sources.rejectsWrites(),
        own: { stuck, standstill, marks, refusedPerSecond: sources.refusedPerSecond() },
        installation: sources.problems(),
      }),
    });
  });

  addPage(app, '/metrics/targets', async (request, response) => {
    if (!sources.mayReadTargets(request)) {
      return refuse(response, 'metricsToken', { 'WWW-Authenticate': 'Bearer' });
    }
    response.json(await listTargets(sources.pool));
  });

  addPage(app, '/metrics', async (request, response) => {
    if (!sources.mayReadMetrics(request.headers.authorization)) {
      return refuse(response, 'metricsToken', { 'WWW-Authenticate': 'Bearer' });
    }
    await sources.refresh();
    response.type(sources.registry.contentType);
    sources.responses.sendPage(response, await sources.registry.metrics());
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
