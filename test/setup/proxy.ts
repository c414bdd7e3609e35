import { createServer, connect as dial, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Certificate } from './certificate.ts';
import { leaveBehind } from './left-behind.ts';

/**
 * A TCP proxy in front of a store, which can stand still, as a host that hangs does, or be away. Closed at
 * the end.
 *
 * @param certificate whoever asks the Postgres behind it for TLS has it with the proxy, which so sees what is said
 */
export async function startProxy(url: string, { certificate }: { certificate?: Certificate } = {}) {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  /** What arrived while it stands still; absent while it does not. */
  let held: (() => void)[] | undefined;
  /** What stops a client's connection once it says it; absent: nothing does. */
  let fatal: string | undefined;
  const stopped = new Set<Socket>();
  /** Ends the connection of the client that says `text`, once; absent: none. */
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
        if (held && (!fatal || stopped.has(from))) held.push(pass);
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
    /** The store behind the proxy. */
    url: proxied.href,
    /** Connections stay and are still accepted, but nothing passes. */
    standStill() {
      held ??= [];
    },
    /** A client that says this is heard no more, from then on, and everybody else is. */
    holdBack(text: string) {
      held ??= [];
      fatal = text;
    },
    /** Ends the connection of the next client that says `text`, once, before the store receives it; undefined: none. */
    cutOnce(text: string | undefined) {
      cut = text;
    },
    /** Whether a client has said the text that `cutOnce` waits for. */
    hasCut: () => cut === undefined,
    /** Whether something was sent since. */
    isWaitedFor: () => held !== undefined && held.length > 0,
    /** Connections end and are refused. */
    leave,
    /** From either. */
    async comeBack() {
      for (const pass of held ?? []) pass();
      [held, fatal] = [undefined, undefined];
      stopped.clear();
      if (!server.listening) await listen(port);
    },
  };
}

export type StoreProxy = Awaited<ReturnType<typeof startProxy>>;

/** What a client of Postgres asks in the beginning: its length, and a number that stands for TLS. */
const ASKS_FOR_TLS = '0000000804d2162f';

async function withTls(client: Socket, certificate: Certificate): Promise<Socket> {
  client.on('error', () => {});
  const asked = await new Promise<Buffer>((resolve) => client.once('data', resolve));
  client.pause();
  if (asked.toString('hex') !== ASKS_FOR_TLS) {
    client.unshift(asked);
    return client;
  }
  client.write('S');
  return new TLSSocket(client, { isServer: true, ...certificate });
}
