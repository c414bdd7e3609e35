import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { isPortTaken } from '../../src/embedded/address.ts';

/**
 * What is leased: below those that the product itself picks from (20,000 to 32,000) and that systems give to connections
 * which go out, and above 10,080, which browsers and `fetch` refuse.
 */
const PORTS = { from: 11_000, to: 20_000 };

/** Ports of a block, whose first one stands for all of them. */
const BLOCK = 50;

interface Block {
  next: number;
  end: number;
}

let block: Promise<Block> | undefined;

/**
 * A port of 127.0.0.1 that nobody listens on, and that no other test or tool picks before a process listens there, be it
 * in another process or another run. No port is given twice by one process.
 *
 * Lease: a block of TCP ports is whose UDP port of the same number is bound; the system lets go of it with its process.
 * @throws {Error} when all are leased
 */
export async function leasePort(): Promise<number> {
  for (;;) {
    block ??= leaseBlock();
    const mine = block;
    const leased = await mine;
    while (leased.next < leased.end) {
      const port = leased.next++;
      if (!(await isPortTaken(port))) return port;
    }
    if (block === mine) block = undefined;
  }
}

async function leaseBlock(): Promise<Block> {
  const count = (PORTS.to - PORTS.from) / BLOCK;
  const start = randomInt(count);
  for (let step = 0; step < count; step++) {
    const from = PORTS.from + ((start + step) % count) * BLOCK;
    if (await holdUntilExit(from)) return { next: from, end: from + BLOCK };
  }
  throw new Error(`every port from ${PORTS.from} to ${PORTS.to} is leased`);
}

/** Whether this process has it now. */
function holdUntilExit(port: number): Promise<boolean> {
  const socket = createSocket('udp4');
  return new Promise((resolve) => {
    socket.once('error', () => {
      socket.close();
      resolve(false);
    });
    socket.bind({ port, address: '127.0.0.1', exclusive: true }, () => {
      socket.unref();
      resolve(true);
    });
  });
}
