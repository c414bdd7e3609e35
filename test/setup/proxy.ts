import { createServer, connect as dial, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Certificate } from './certificate.ts';
import { leaveBehind } from './left-behind.ts';

/** An end of a connection. */
export type Sender = 'client' | 'store';

/**
 * Starts a TCP proxy to a store that can be frozen, like a host that hangs, or taken away. Closed at the end.
 * @param certificate terminates TLS of Postgres clients at the proxy, so that the proxy can read statements
 */
export async function startProxy(url: string, { certificate }: { certificate?: Certificate } = {}) {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  /** Data that arrived while the proxy is frozen; absent while it is not. */
  let held: (() => void)[] | undefined;
  /** The only sender whose data is held; absent: both. */
  let silent: Sender | undefined;
  /** Text that freezes the connection of a client that sends it; absent: no text. */
  let fatal: string | undefined;
  const stopped = new Set<Socket>();
  /** Ends the connection of the next client that sends this text, once; absent: no text. */
  let cut: string | undefined;

  const server = createServer(async (from) => {
    const client = certificate ? await withTls(from, certificate) : from;
    const store = dial({ host: target.hostname, port: Number(target.port) });
    for (const [from, to] of [
      [client, store],
      [store, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => {});
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
      from.on('data', (chunk) => {
        if (cut && from === client && chunk.includes(cut)) {
          cut = undefined;
          client.destroy();
          return;
        }
        const pass = () => void (to.destroyed || to.write(chunk));
        if (fatal && from === client && chunk.includes(fatal)) stopped.add(client);
        const isSilent = silent === undefined || (silent === 'client') === (from === client);
        if (held && isSilent && (!fatal || stopped.has(from))) held.push(pass);
        else pass();
      });
    }
  });
  const listen = (port: number) =>
    new Promise<void>((resolve) => server.listen(port, '127.0.0.1', () => resolve()));
  const leave = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  await listen(0);
  const { port } = server.address() as { port: number };
  leaveBehind(leave);

  const proxied = new URL(url);
  proxied.port = String(port);
  return {
    /** Address of the store through the proxy. */
    url: proxied.href,
    /**
     * Freezes all connections: they stay open and new ones are accepted, but no data passes.
     * @param sender holds only its data; the other direction passes
     */
    standStill(sender?: Sender) {
      held ??= [];
      silent = sender;
    },
    /**
     * Freezes the connection of each client that sends this text, from then on; other clients are unaffected.
     */
    holdBack(text: string) {
      held ??= [];
      fatal = text;
    },
    /**
     * Ends the connection of the next client that sends `text`, once, before the store receives it;
     * undefined: no text.
     */
    cutOnce(text: string | undefined) {
      cut = text;
    },
    /** Checks whether a client has sent the text that `cutOnce` waits for. */
    hasCut: () => cut === undefined,
    /** Checks whether data arrived since the freeze. */
    isWaitedFor: () => held !== undefined && held.length > 0,
    /** Ends all connections and refuses new ones. */
    leave,
    /** Ends both kinds of freeze. */
    async comeBack() {
      for (const pass of held ?? []) pass();
      [held, fatal, silent] = [undefined, undefined, undefined];
      stopped.clear();
      if (!server.listening) await listen(port);
    },
  };
}

export type StoreProxy = Awaited<ReturnType<typeof startProxy>>;

/** First bytes of a Postgres client's request for TLS: the length, and the code of the request. */
const ASKS_FOR_TLS = '0000000804d2162f';

async function withTls(client: Socket, certificate: Certificate): Promise<Socket> {
  client.on('error', () => {});
  const reply = await new Promise<Buffer>((resolve) => client.once('data', resolve));
  client.pause();
  if (reply.toString('hex') !== ASKS_FOR_TLS) {
    client.unshift(reply);
    return client;
  }
  client.write('S');
  return new TLSSocket(client, { isServer: true, ...certificate });
}
