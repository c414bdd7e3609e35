import type { Server } from 'node:http';
import { Server as NetServer } from 'node:net';
import type { Service } from '../lifecycle.ts';

/** Milliseconds. A client that sends slower than this is cut off, so that it cannot hold a connection for ever. */
const HEADERS_TIMEOUT = 10_000;
/** With the time between two looks it stays below 15 s. */
const REQUEST_TIMEOUT = 13_000;
/** Longer than the idle time of the usual load balancers (60 s), so that they close first. */
const KEEP_ALIVE_TIMEOUT = 65_000;

const MAX_CONNECTIONS = 10_000;

/** For `createServer`. */
export const serverOptions = {
  /** How often the first two are looked at, in milliseconds; Node's own 30 s would stretch them. */
  connectionsCheckingInterval: 1000,
  /** A request without Host is refused by the app, since Node would answer with a bare status line. */
  requireHostHeader: false,
};

/** Bounds how long and how many connections may be open. */
export function limitConnections(server: Server): void {
  server.headersTimeout = HEADERS_TIMEOUT;
  server.requestTimeout = REQUEST_TIMEOUT;
  server.keepAliveTimeout = KEEP_ALIVE_TIMEOUT;
  server.maxConnections = MAX_CONNECTIONS;
}

/** Milliseconds in which a client may still send on a connection that it holds; the answer then closes it. */
const FAREWELL = 1000;

/**
 * Listens; rejects when the port cannot be had. Stopping: no new connections; what arrives on the open ones
 * is answered with `Connection: close`, and those that stay idle are closed after a second, so that a
 * keep-alive client loses no request.
 */
export async function listen(server: Server, port: number, host: string): Promise<Service> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(error.code === 'EADDRINUSE' ? new Error(`PORT ${port} is in use on ${host}`) : error);
    });
    server.listen(port, host, () => {
      server.removeAllListeners('error');
      resolve();
    });
  });
  return {
    name: 'http server',
    stop: () =>
      new Promise((resolve) => {
        server.prependListener('request', (_request, response) => response.setHeader('Connection', 'close'));
        const sweep = setInterval(() => server.closeIdleConnections(), FAREWELL);
        // The close of http.Server would cut idle connections at once, under a request that is on its way.
        NetServer.prototype.close.call(server, () => {
          clearInterval(sweep);
          resolve();
        });
      }),
  };
}
