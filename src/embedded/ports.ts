import { createServer } from 'node:net';

/** A port of `host` that nobody listens on at this moment. */
export function freePort(host = '127.0.0.1'): Promise<number> {
  return tryListen(0, host);
}

/** Whether somebody else listens on the port, or it is not ours to use. */
export async function isPortTaken(port: number, host = '127.0.0.1'): Promise<boolean> {
  return tryListen(port, host).then(
    () => false,
    () => true,
  );
}

/** Listens for an instant. @throws what `listen` reports, for instance `EADDRINUSE` or `EACCES`. */
export function tryListen(port: number, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ port, host, exclusive: true }, () => {
      const address = server.address() as { port: number };
      server.close(() => resolve(address.port));
    });
  });
}
