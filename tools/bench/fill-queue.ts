import { assignUsers, makeMessages, postHead, userPicker } from '../load/bodies.ts';
import { HttpConnection } from '../load/http-connection.ts';
import { createRandom } from '../load/random.ts';
import type { Contender } from './contender.ts';

/** Number of different messages, which are sent in turn. */
const POOL = 50;

/** Requests that were sent so far. */
export interface Sent {
  requests: number;
  /** Bytes of the bodies. */
  bytes: number;
}

/** Runs a function while the workers are stopped, so that requests stay in the queue. */
export async function whileWorkersStand<Value>(
  { pids }: Contender,
  run: () => Promise<Value>,
): Promise<Value> {
  const workers = workersOf(pids);
  try {
    for (const pid of workers) process.kill(pid, 'SIGSTOP');
    return await run();
  } finally {
    for (const pid of workers) process.kill(pid, 'SIGCONT');
  }
}

export function workersOf(pids: Contender['pids']): number[] {
  return Object.entries(pids).flatMap(([name, pid]) => (name.startsWith('worker') ? [pid] : []));
}

/**
 * Sends one request after the other, each after the response to the previous one, so that each has its own
 * envelope.
 * @throws {Error} if a request is rejected
 */
export async function fillQueue(
  { target, key }: Contender,
  { objects, users, isEnough }: { objects: number; users: number; isEnough(sent: Sent): boolean },
): Promise<Sent> {
  const random = createRandom(1);
  const head = postHead(`${target.host}:${target.port}`, '/users/track', key);
  const messages = makeMessages(POOL, head, { objects, badShare: 0 }, random, Date.now());
  const pickUser = userPicker({ users }, random);
  const connection = new HttpConnection(target);
  const sent: Sent = { requests: 0, bytes: 0 };
  try {
    while (!isEnough(sent)) {
      const message = messages[sent.requests % POOL]!;
      assignUsers(message, pickUser);
      const { status, body } = await connection.send(message.bytes);
      if (status !== 201) throw new Error(`refused: ${status} ${body}`);
      sent.requests += 1;
      sent.bytes += message.bytes.length - message.bytes.indexOf('\r\n\r\n') - 4;
    }
    return sent;
  } finally {
    connection.close();
  }
}
