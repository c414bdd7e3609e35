import { request } from 'node:http';
import { createServer, connect as dial, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { poll } from '../src/platform/poll.ts';
import { type Member, startFleet, statusOf } from './guarantees/fleet.ts';
import { leaveBehind } from './setup/left-behind.ts';
import { waitUntil } from './setup/wait-until.ts';

/** Milliseconds between two checks of /readyz by the balancer; two failures remove a process, as is usual. */
const LOOK_MS = 100;
const FAILED_LOOKS = 2;

/** Several times the delay that the balancer needs, so that a busy machine does not fail the test. */
const SHUTDOWN_DELAY_MS = 1500;

/**
 * Starts a TCP balancer like the ones of orchestrators. Each new connection goes to the next process whose
 * recent checks of
 * /readyz succeeded. The balancer retries nothing. It is closed at the end.
 */
async function startBalancer(ports: number[]) {
  const failed = new Map(ports.map((port) => [port, FAILED_LOOKS]));
  const open = new Set<Socket>();
  let turn = 0;
  const isIn = (port: number) => failed.get(port)! < FAILED_LOOKS;
  const pollers = ports.map((port) =>
    poll(LOOK_MS, async () => {
      const status = await statusOf(port, '/readyz').catch(() => undefined);
      failed.set(port, status === 200 ? 0 : failed.get(port)! + 1);
    }),
  );
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const those = ports.filter(isIn);
    const port = those[turn++ % those.length];
    if (port === undefined) return void client.resetAndDestroy();
    const process = dial({ port, host: '127.0.0.1', allowHalfOpen: true });
    for (const socket of [client, process]) {
      open.add(socket);
      socket.on('close', () => open.delete(socket));
    }
    process.on('error', () => client.resetAndDestroy());
    client.on('error', () => process.destroy());
    client.pipe(process).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  leaveBehind(async () => {
    for (const socket of open) socket.destroy();
    server.close();
    await Promise.all(pollers.map((poller) => poller.stop()));
  });
  return { port: (server.address() as { port: number }).port, isIn };
}

/** Sends one request on a separate connection. @returns its status, or its error */
function sendAlone(port: number, key: string): Promise<number | string> {
  const body = JSON.stringify({ attributes: [{ external_id: 'ada', seen: true }] });
  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' };
  return new Promise((resolve) => {
    const sent = request(
      { port, path: '/users/track', method: 'POST', agent: false, headers },
      (response) => {
        response.resume();
        response.on('end', () => resolve(response.statusCode!));
        response.on('error', (error) => resolve(error.message));
      },
    );
    sent.on('error', (error) => resolve(error.message));
    sent.end(body);
  });
}

test('a rolling restart fails no new connection of a balancer that checks /readyz', async () => {
  const fleet = await startFleet('redis', {
    edges: 2,
    workers: 0,
    env: { SHUTDOWN_DELAY_MS: String(SHUTDOWN_DELAY_MS) },
  });
  const first = [...fleet.edges];
  const balancer = await startBalancer(first.map(({ port }) => port));
  const allIn = () => Promise.resolve(first.every(({ port }) => balancer.isIn(port)));
  await waitUntil(allIn, { what: 'both to be in' });

  let stopped = false;
  const answers = new Map<number | string, number>();
  const client = async () => {
    while (!stopped) {
      const answer = await sendAlone(balancer.port, fleet.workspace.key);
      answers.set(answer, (answers.get(answer) ?? 0) + 1);
    }
  };
  const clients = [client(), client(), client()];

  const restart = async (member: Member) => {
    const ending = fleet.end(member, 'SIGTERM');
    // /readyz fails at once, while the process still serves requests.
    await expect.poll(() => statusOf(member.port, '/readyz')).toBe(503);
    expect(await sendAlone(member.port, fleet.workspace.key)).toBe(201);
    const { code, milliseconds } = await ending;
    expect(code).toBe(0);
    expect(milliseconds).toBeGreaterThanOrEqual(SHUTDOWN_DELAY_MS);
    await fleet.startEdge(member.port);
    await waitUntil(() => Promise.resolve(balancer.isIn(member.port)), { what: 'the new one to be in' });
  };
  for (const member of first) await restart(member);

  stopped = true;
  await Promise.all(clients);
  expect([...answers.keys()]).toEqual([201]);
  expect(answers.get(201)).toBeGreaterThan(100);

  // SIGINT from a terminal ends the process without the delay for balancers.
  const [last] = fleet.edges;
  expect((await fleet.end(last!, 'SIGINT')).milliseconds).toBeLessThan(SHUTDOWN_DELAY_MS);
  await fleet.stop();
});
