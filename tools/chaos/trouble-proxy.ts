import { createServer, connect as dial, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { leaveBehind } from '../../test/setup/left-behind.ts';

/** Properties of a bad network. They may change while connections are open. */
export interface Trouble {
  /** Delay of each chunk in each direction, in milliseconds. */
  delay: number;
  /** Share of chunks at which the connection is reset instead. */
  resets: number;
  /** Bytes per second of each connection in each direction. */
  bytesPerSecond: number;
}

export const noTrouble: Trouble = { delay: 0, resets: 0, bytesPerSecond: Number.POSITIVE_INFINITY };

/** Starts a TCP proxy before a store that simulates a bad network. It is closed at the end. */
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
      /** Chunks keep their order, whatever their delay. */
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
        // A delayed chunk must not hold up the following ones; a limited rate must.
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
    /** Address of the store through the proxy. */
    url: proxied.href,
    set: (next: Partial<Trouble>) => void Object.assign(trouble, noTrouble, next),
    resets: () => resets,
  };
}
