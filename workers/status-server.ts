import { createServer, STATUS_CODES } from 'node:http';
import type { Registry } from 'prom-client';
import { limitConnections, serverOptions } from '../src/edge/listen.ts';
import type { Service } from '../src/lifecycle.ts';
import type { Log } from '../src/log.ts';
import { createMetricsGuard } from '../src/metrics-token.ts';
import type { QueueConnection } from '../src/queue/connection.ts';
import { checkReadiness } from '../src/readiness.ts';
import type { Pool } from '../src/store/database.ts';

const JSON_TYPE = 'application/json; charset=utf-8';

/**
 * A process's own /healthz, /readyz and /metrics. Where another of the same machine has the port, this one does
 * without: the web process shows the counters of the whole fleet.
 */
export async function startStatusServer(
  { metricsToken, ...address }: { host: string; port: number; metricsToken: string },
  registry: Registry,
  pool: Pool,
  connection: QueueConnection,
  log: Log,
): Promise<Service> {
  const pages: Record<string, () => Promise<[status: number, type: string, body: string]>> = {
    '/healthz': async () => [200, JSON_TYPE, '{"message":"alive"}'],
    '/metrics': async () => [200, registry.contentType, await registry.metrics()],
    '/readyz': async () => {
      const missing = await checkReadiness(pool, connection);
      const ready = missing.length === 0;
      const body = JSON.stringify({ message: ready ? 'ready' : 'not ready', missing });
      return [ready ? 200 : 503, JSON_TYPE, body];
    },
  };
  const mayReadMetrics = createMetricsGuard(metricsToken);
  const server = createServer(serverOptions, async ({ url = '', method = '', headers }, response) => {
    const page = Object.hasOwn(pages, url) ? pages[url]! : undefined;
    const isClosed = url === '/metrics' && !mayReadMetrics(headers.authorization);
    const refused = !page ? 404 : !['GET', 'HEAD'].includes(method) ? 405 : isClosed ? 401 : undefined;
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
      log.warn({ err: error, port: address.port }, 'no health and metrics of this process');
      resolve(false);
    });
    server.listen(address.port, address.host, () => resolve(true));
  });
  return {
    name: 'status server',
    stop: () => new Promise((resolve) => (listening ? server.close(() => resolve()) : resolve())),
  };
}
