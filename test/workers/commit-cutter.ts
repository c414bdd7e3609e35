import { createServer, connect as dial, type Socket } from 'node:net';
import { leaveBehind } from '../setup/left-behind.ts';

/** When the connection is cut: before Postgres receives COMMIT, or after it has replied. */
export type Cut = 'before' | 'after';

/** COMMIT in the simple query protocol, and the reply of Postgres. */
const COMMIT = Buffer.from('commit\0');
const COMMITTED = Buffer.from('COMMIT\0');

/**
 * Starts a TCP proxy for Postgres that can cut the connection on which the next COMMIT is sent, so that the client does
 * not learn its result.
 */
export async function startCommitCutter(databaseUrl: string) {
  const target = new URL(databaseUrl);
  let armed: Cut | undefined;
  let cuts = 0;
  const sockets = new Set<Socket>();

  const server = createServer((client) => {
    const postgres = dial({ host: target.hostname, port: Number(target.port) });
    let cutOnAnswer = false;
    for (const socket of [client, postgres]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => cut(client, postgres));
    }
    client.on('data', (chunk) => {
      if (armed && chunk.includes(COMMIT)) {
        if (armed === 'before') cut(client, postgres);
        else cutOnAnswer = true;
        armed = undefined;
        cuts++;
      }
      if (!postgres.destroyed) postgres.write(chunk);
    });
    postgres.on('data', (chunk) => {
      // Replies to the statements before COMMIT can come first.
      if (cutOnAnswer && chunk.includes(COMMITTED)) cut(client, postgres);
      else client.write(chunk);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  leaveBehind(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });

  const proxied = new URL(databaseUrl);
  proxied.port = String((server.address() as { port: number }).port);
  return {
    /** URL of the database through the proxy. */
    url: proxied.href,
    arm(when: Cut) {
      armed = when;
    },
    cuts: () => cuts,
  };

  function cut(...both: Socket[]): void {
    for (const socket of both) {
      sockets.delete(socket);
      socket.destroy();
    }
  }
}
