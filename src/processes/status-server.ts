import { createServer, STATUS_CODES } from 'node:http';
import type { Registry } from 'prom-client';
import type { Service } from '../platform/lifecycle.ts';
import { limitConnections, namesOneHost, serverOptions } from '../platform/listen.ts';
import type { Log } from '../platform/log.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { Oldest } from '../queue/depth.ts';
import type { Pool } from '../store/database.ts';
import type { QueueLoss } from '../store/installation.ts';
import { checkReadiness } from './dependencies.ts';
import { createMetricsGuard } from './secrets.ts';

const JSON_TYPE = 'application/json; charset=utf-8';

/** What a process that does its work has to say. */
export interface Standing {
  /** What the queue has lost and nobody has confirmed. */
  loss: QueueLoss | undefined;
  /** Of a process that works lanes: it is not ready while an envelope waits too long. */
  stuck: ReturnType<Oldest['tooOld']>;
}

export interface StatusServerOptions {
  host: string;
  port: number;
  metricsToken: string;
  registry: Registry;
  pool: Pool;
  connection: QueueConnection;
  log: Log;
  /** Undefined before the process does its work: it is not ready then, whatever is there. */
  standing(): Standing | undefined;
}

/**
 * A process's own /healthz, /readyz and /metrics. Where another of the same machine has the port, this one does
 * without: the web process shows the counters of the whole fleet.
 */
export async function startStatusServer(options: StatusServerOptions): Promise<Service> {
  const { host, port, metricsToken, registry, pool, connection, log, standing } = options;
  const pages: Record<string, () => Promise<[status: number, type: string, body: string]>> = {
    '/healthz': async () => [200, JSON_TYPE, '{"message":"alive"}'],
    '/metrics': async () => [200, registry.contentType, await registry.metrics()],
    '/readyz': async () => {
      const missing = await checkReadiness(pool, connection);
      const { loss, stuck } = standing() ?? { stuck: undefined };
      const ready = missing.length === 0 && stuck?.length === 0;
      const body = JSON.stringify({
        message: ready ? 'ready' : 'not ready',
        missing,
        // One that is undefined is left out.
        loss,
        ...(stuck?.length && { stuck }),
      });
      return [ready ? 200 : 503, JSON_TYPE, body];
    },
  };
  const mayReadMetrics = createMetricsGuard(metricsToken);
  const server = createServer(serverOptions, async (request, response) => {
    const { url = '', method = '', headers } = request;
    // To the letter: a rule of a proxy about a page cannot be met by another spelling.
    const page = Object.hasOwn(pages, url) ? pages[url]! : undefined;
    const isClosed = url === '/metrics' && !mayReadMetrics(headers.authorization);
    const isRead = ['GET', 'HEAD'].includes(method);
    const refused = !namesOneHost(request) ? 400 : !page ? 404 : !isRead ? 405 : isClosed ? 401 : undefined;
    if (refused === 405) response.setHeader('Allow', 'GET, HEAD');
    if (refused === 401) response.setHeader('WWW-Authenticate', 'Bearer');
    const [status, type, body] = refused
      ? [refused, JSON_TYPE, JSON.stringify({ message: STATUS_CODES[refused] })]
      : await page!();
    response.writeHead(status, { 'Content-Type': type }).end(body);
  });
  limitConnections(server);
  const listening = await new Promise<boolean>((resolve) => {
    server.once('error', (error) => {
      log.warn({ err: error, port }, 'no health and metrics of this process');
      resolve(false);
    });
    server.listen(port, host, () => resolve(true));
  });
  return {
    name: 'status server',
    stop: () => new Promise((resolve) => (listening ? server.close(() => resolve()) : resolve())),
  };
}
