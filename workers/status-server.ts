import { createServer } from 'node:http';
import type { Registry } from 'prom-client';
import type { Config } from '../src/config.ts';
import type { Service } from '../src/lifecycle.ts';
import type { Log } from '../src/log.ts';
import type { QueueConnection } from '../src/queue/connection.ts';
import { checkReadiness } from '../src/readiness.ts';
import type { Pool } from '../src/store/database.ts';

/**
 * A worker's own /healthz, /readyz and /metrics. Where another worker of the same machine has the port, this
 * one does without: the web process shows the counters of the whole fleet.
 */
export async function startStatusServer(
  config: Config,
  registry: Registry,
  pool: Pool,
  connection: QueueConnection,
  log: Log,
): Promise<Service> {
  const server = createServer(async (request, response) => {
    const send = (status: number, type: string, body: string) =>
      response.writeHead(status, { 'Content-Type': type }).end(body);
    if (request.url === '/healthz') return send(200, 'application/json', '{"message":"alive"}');
    if (request.url === '/metrics') return send(200, registry.contentType, await registry.metrics());
    if (request.url === '/readyz') {
      const missing = await checkReadiness(pool, connection);
      return send(
        missing.length > 0 ? 503 : 200,
        'application/json',
        JSON.stringify({ message: missing.length > 0 ? 'not ready' : 'ready', missing }),
      );
    }
    return send(404, 'application/json', '{"message":"Not Found"}');
  });
  const listening = await new Promise<boolean>((resolve) => {
    server.once('error', (error) => {
      log.warn({ err: error, port: config.WORKER_PORT }, 'no health and metrics of this worker');
      resolve(false);
    });
    server.listen(config.WORKER_PORT, config.WORKER_HOST, () => resolve(true));
  });
  return {
    name: 'status server',
    stop: () => new Promise((resolve) => (listening ? server.close(() => resolve()) : resolve())),
  };
}
