import { connect, createServer, type Socket } from 'node:net';
import { leaveBehind } from './left-behind.ts';

/**
 * Connections between nodes of a cluster, each of which has an address of its own and can be cut off from the
 * others.
 */
export interface Partition {
  /** Returns the address from which node `index` must connect to others. */
  sourceOf(index: number): string;
  /** Returns a port on loopback that forwards to a port of node `index`. */
  portOf(index: number, port: number): Promise<number>;
  /** Cuts the connections between this node and the others; clients still reach all nodes. */
  cutOff(index: number): void;
  heal(): void;
}

/** First host number. All of 127.0.0.0/8 is loopback on Linux, so the source address identifies the node. */
const FIRST = 11;

export function createPartition(): Partition {
  let alone: number | undefined;
  const open = new Set<{ from: number | undefined; to: number; sockets: Socket[] }>();

  const isCut = (from: number | undefined, to: number) =>
    alone !== undefined && from !== undefined && (from === alone) !== (to === alone);

  return {
    sourceOf: (index) => `127.0.0.${FIRST + index}`,
    async portOf(index, port) {
      const server = createServer((client) => {
        const last = Number(client.remoteAddress?.split('.').at(-1));
        const from = last >= FIRST ? last - FIRST : undefined;
        if (isCut(from, index)) return void client.destroy();
        const node = connect(port, '127.0.0.1');
        const pair = { from, to: index, sockets: [client, node] };
        open.add(pair);
        for (const [one, other] of [
          [client, node],
          [node, client],
        ] as const) {
          one.setNoDelay(true);
          one.on('error', () => {});
          one.on('close', () => {
            other.destroy();
            open.delete(pair);
          });
          one.pipe(other);
        }
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      leaveBehind(async () => {
        server.close();
        for (const { sockets } of open) for (const socket of sockets) socket.destroy();
      });
      return (server.address() as { port: number }).port;
    },
    cutOff(index) {
      alone = index;
      for (const { from, to, sockets } of open)
        if (isCut(from, to)) for (const socket of sockets) socket.destroy();
    },
    heal() {
      alone = undefined;
    },
  };
}
