import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { isPortTaken } from '../../src/embedded/address.ts';

/**
 * Range of leased ports: below the ports that the product picks (20,000 to 32,000) and the system's ephemeral
 * ports, and
 * above 10,080, below which browsers and `fetch` block some ports.
 */
const PORTS = { from: 11_000, to: 20_000 };

/** Ports per block. The first port identifies the block. */
const BLOCK = 50;

interface Block {
  next: number;
  end: number;
}

let block: Promise<Block> | undefined;

/**
 * Returns a free port of 127.0.0.1 that no other test or tool picks before a process listens on it, in this
 * or another
 * process or run. A process receives each port once.
 * A lease is a block of TCP ports whose first number is bound as a UDP port; the system releases it with the
 * process.
 * @throws {Error} when all blocks are leased
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

/** Binds the UDP port until the process ends. @returns false if the port is in use */
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
