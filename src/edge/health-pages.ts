import type { IncomingMessage } from 'node:http';
import type { Express } from 'express';
import type { Registry } from 'prom-client';
import { isLeaving, within } from '../platform/lifecycle.ts';
import { checkReadiness, type Dependencies, type Pings } from '../processes/dependencies.ts';
import { ownProblems } from '../processes/process.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { printedLoss } from '../queue/loss.ts';
import type { Oldest } from '../queue/oldest.ts';
import type { Pool } from '../store/database.ts';
import type { QueueLoss } from '../store/installation.ts';
import { listProcesses, SILENT_SECONDS } from '../store/processes.ts';
import { addPage, refuse } from './app.ts';
import type { LoadShedding } from './load-shedding.ts';
import type { Responses } from './responses.ts';

/** Milliseconds for the list of the fleet's processes. */
const PATIENCE_MS = 1000;

interface HealthSources {
  pool: Pool;
  connection: QueueConnection;
  pings: Pings;
  dependencies: Pick<Dependencies, 'lacking'>;
  registry: Registry;
  responses: Responses;
  /** Brings the numbers of the whole fleet up to date, as far as they can be read in time; never rejects. */
  refresh(): Promise<void>;
  /** Whether an Authorization header opens /metrics. */
  mayReadMetrics(header: string | undefined): boolean;
  mayReadTargets(request: IncomingMessage): boolean;
  /** Envelopes that wait too long are named: to take more requests is right all the same. */
  oldest: Pick<Oldest, 'tooOld' | 'standstill'>;
  /** Whether jobs that nobody takes leave the process ready. They are named in any case. */
  readyAtStandstill: boolean;
  /** What is refused past them makes the process not ready. */
  loadShedding: LoadShedding;
  /** What the queue has lost and nobody has confirmed. It makes nothing unready: what comes next is safe. */
  loss(): QueueLoss | undefined;
}

/**
 * /healthz: the process is alive. /readyz: it can take requests, or what is missing, by name, and its
 * high-water marks. /metrics:
 * Prometheus. The two last answer within about a second whatever is away. None of them leaves a log line.
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
      ...ownProblems(sources, { missing, loss, own: { stuck, standstill, marks } }),
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
 * The processes of the fleet in the form of Prometheus's `http_sd_configs`: those that have said a moment ago that they
 * are there, and have pages of their own.
 * @throws when Postgres does not answer: Prometheus keeps the list that it had
 */
async function listTargets(pool: Pool) {
  const all = await within(PATIENCE_MS, listProcesses(pool));
  return all
    .filter(({ address, silentSeconds }) => address !== null && silentSeconds < SILENT_SECONDS)
    .map(({ address, name, host }) => ({ targets: [address], labels: { process: name, host } }));
}
