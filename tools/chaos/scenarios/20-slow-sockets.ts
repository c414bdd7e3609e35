import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic, throttle } from '../traffic.ts';

/** Milliseconds between two bytes of a slow sender. */
const BYTE_MS = 1000;

const HEAD = 'POST /users/track HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';

export const slowSockets: Scenario = {
  number: 20,
  fault: '1,000 slow sockets during normal load',
  backends: ['redis'],
  async run(scene) {
    const traffic = await beginTraffic(scene, { edges: 1, workers: 1 });
    const { fleet, load, circles } = traffic;
    if (!scene.short) await throttle(scene, traffic, 0.3);
    const { port } = fleet.edges[0]!;
    const seconds = scene.choose(20, 3);

    scene.say('good clients alone');
    const alone = await latencies(seconds);
    scene.say('good clients alongside slow ones');
    const slow = Array.from({ length: scene.choose(1000, 200) }, (_, index) =>
      startSlowSocket(port, fleet.workspace.key, index % 2 === 0 ? 'head' : 'body'),
    );
    const besideSlow = await latencies(seconds);
    scene.say('waiting for the slow ones to be cut');
    // The good clients have been measured. With fewer requests the slow sockets live as long.
    if (scene.short) load.change({ rate: 30 });
    const lives = await Promise.all(
      slow.map(({ ended }) => Promise.race([ended, sleep(40_000, Number.POSITIVE_INFINITY)])),
    );
    for (const { socket } of slow) socket.destroy();

    scene.figure('slow sockets', slow.length, '', {});
    scene.figure('p99 of good clients alone', alone, 'ms');
    scene.figure('p99 alongside slow ones', besideSlow, 'ms', {
      atMost: Math.max(2 * alone, scene.choose(0, alone + 250)),
    });
    scene.figure('longest life of a slow socket', Math.max(...lives) / 1000, 's', { atMost: 15 });
    await scene.waitUntilApplied(fleet, { load, circles });

    /** @returns the p99 of the requests that are sent from now on */
    async function latencies(of: number): Promise<number> {
      const from = Date.now();
      await sleep(of * 1000);
      return quantile(
        [...load.journal.sentBetween(from, Date.now())]
          .filter(({ status }) => status === 201)
          .map(({ milliseconds }) => milliseconds),
        0.99,
      );
    }
  },
};

/**
 * Sends its header or its body at one byte per second. `ended` resolves to the milliseconds until the server
 * has closed the connection.
 */
function startSlowSocket(
  port: number,
  key: string,
  slow: 'head' | 'body',
): { socket: Socket; ended: Promise<number> } {
  const from = Date.now();
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  const body = JSON.stringify({ attributes: [{ external_id: 'slow' }] });
  const head = `${HEAD}Authorization: Bearer ${key}\r\nContent-Length: ${body.length}\r\n\r\n`;
  let rest = slow === 'head' ? head + body : body;
  if (slow === 'body') socket.write(head);
  const timer = setInterval(() => {
    if (rest) socket.write(rest[0]!);
    rest = rest.slice(1);
  }, BYTE_MS);
  // Discard the response that arrives before the connection is closed.
  socket.resume();
  const ended = new Promise<number>((resolve) => {
    socket.once('close', () => {
      clearInterval(timer);
      resolve(Date.now() - from);
    });
  });
  return { socket, ended };
}
