import { createServer, connect as dial, type Socket } from 'node:net';
import { leaveBehind } from './left-behind.ts';

/**
 * A TCP proxy in front of a store, which can stand still, as a host that hangs does, or be away. Closed at
 * the end.
 */
export async function startProxy(url: string) {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  /** What arrived while it stands still; absent while it does not. */
  let held: (() => void)[] | undefined;

  const server = createServer((client) => {
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
        const pass = () => void (to.destroyed || to.write(chunk));
        if (held) held.push(pass);
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
    /** Whether something was sent since. */
    isWaitedFor: () => held !== undefined && held.length > 0,
    /** Connections end and are refused. */
    leave,
    /** From either. */
    async comeBack() {
      for (const pass of held ?? []) pass();
      held = undefined;
      if (!server.listening) await listen(port);
    },
  };
}

export type StoreProxy = Awaited<ReturnType<typeof startProxy>>;
