import type { Express } from 'express';
import type { Registry } from 'prom-client';
import type { QueueConnection } from '../queue/connection.ts';
import { checkReadiness } from '../readiness.ts';
import type { Pool } from '../store/database.ts';
import type { Marks } from './marks.ts';
import { addPage, refuse } from './other-requests.ts';

export interface HealthSources {
  pool: Pool;
  connection: QueueConnection;
  /** Of the rate limits, where they live in a server that is not the queue's. */
  pingLimits?: (() => Promise<void>) | undefined;
  registry: Registry;
  /** Brings the numbers of the whole fleet up to date, as far as they can be read in time; never rejects. */
  refresh(): Promise<void>;
  /** Whether an Authorization header opens /metrics. */
  mayReadMetrics(header: string | undefined): boolean;
  /** What is refused past them makes the process not ready. */
  marks: Marks;
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
    const missing = await checkReadiness(sources.pool, sources.connection, sources.pingLimits);
    const overload = sources.marks.overload('queue');
    const ready = missing.length === 0 && overload === undefined;
    response.status(ready ? 200 : 503).json({
      message: ready ? 'ready' : 'not ready',
      missing,
      ...(overload && { overload }),
      high_water: sources.marks.levels(),
    });
  });

  addPage(app, '/metrics', async (request, response) => {
    if (!sources.mayReadMetrics(request.headers.authorization)) {
      return refuse(response, 'metricsToken', { 'WWW-Authenticate': 'Bearer' });
    }
    await sources.refresh();
    response.type(sources.registry.contentType).send(await sources.registry.metrics());
  });
}
