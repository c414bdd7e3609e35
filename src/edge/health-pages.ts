import type { Express } from 'express';
import type { Registry } from 'prom-client';
import type { QueueConnection } from '../queue/connection.ts';
import { checkReadiness } from '../readiness.ts';
import type { Pool } from '../store/database.ts';

export interface HealthSources {
  pool: Pool;
  connection: QueueConnection;
  registry: Registry;
  /** Brings the numbers of the whole fleet up to date. */
  refresh(): Promise<void>;
  /** Why nothing more is accepted now, if so. */
  overload(): string | undefined;
}

/** /healthz: the process is alive. /readyz: it can take requests, or what is missing. /metrics: Prometheus. */
export function addHealthPages(app: Express, sources: HealthSources): void {
  app.get('/healthz', (_request, response) => {
    response.json({ message: 'alive' });
  });

  app.get('/readyz', async (_request, response) => {
    const missing = await checkReadiness(sources.pool, sources.connection);
    const overload = sources.overload();
    const ready = missing.length === 0 && overload === undefined;
    response.status(ready ? 200 : 503).json({
      message: ready ? 'ready' : 'not ready',
      missing,
      ...(overload && { overload }),
    });
  });

  app.get('/metrics', async (_request, response) => {
    // What cannot be read now keeps its last figure; the process's own numbers are there in any case.
    await sources.refresh().catch(() => {});
    response.type(sources.registry.contentType).send(await sources.registry.metrics());
  });
}
