import { createServer, connect as dial, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { leaveBehind } from '../../test/setup/left-behind.ts';

/** What a bad network does; each can change while connections are open. */
export interface Trouble {
  /** Milliseconds that each chunk is late, in each direction. */
  delay: number;
  /** Share of chunks at which the connection is reset instead. */
  resets: number;
  /** Of each connection in each direction. */
  bytesPerSecond: number;
}

export const noTrouble: Trouble = { delay: 0, resets: 0, bytesPerSecond: Number.POSITIVE_INFINITY };

/** A TCP proxy in front of a store that behaves as a bad network does. Closed at the end. */
export async function startTroubleProxy(url: string, random: () => number) {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  const trouble = { ...noTrouble };
  let resets = 0;

  const server = createServer((client) => {
    const store = dial({ host: target.hostname, port: Number(target.port) });
    for (const [from, to] of [
      [client, store],
      [store, client],
    ] as const) {
      sockets.add(from);
      from.setNoDelay(true);
      from.on('error', () => {});
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
      /** Chunks keep their order, however late they are. */
      let before: Promise<void> = Promise.resolve();
      from.on('data', (chunk) => {
        const late = sleep(trouble.delay);
        from.pause();
        before = before.then(async () => {
          await late;
          if (random() < trouble.resets) {
            resets++;
            client.resetAndDestroy();
            store.resetAndDestroy();
            return;
          }
          if (Number.isFinite(trouble.bytesPerSecond))
            await sleep((chunk.length / trouble.bytesPerSecond) * 1000);
          if (!to.destroyed) to.write(chunk);
        });
        // What is only late must not hold up what follows; what is slow must.
        if (!Number.isFinite(trouble.bytesPerSecond)) from.resume();
        else void before.then(() => from.resume());
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  leaveBehind(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const proxied = new URL(url);
  proxied.port = String((server.address() as { port: number }).port);
  return {
    /** The store behind the proxy. */
    url: proxied.href,
    set: (next: Partial<Trouble>) => void Object.assign(trouble, noTrouble, next),
    resets: () => resets,
  };
}
