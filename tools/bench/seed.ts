import { setTimeout as sleep } from 'node:timers/promises';
import { assignUsersFrom, postHead, toMessage } from '../load/bodies.ts';
import { HttpConnection } from '../load/http-connection.ts';
import { USER_MARK } from '../load/traffic.ts';
import type { Contender } from './contender.ts';

/** Maximum attribute objects of one request in the specification. */
const PER_REQUEST = 75;

/** Creates the users of the traffic through the API; resolves when they are applied. */
export async function seedUsers({ target, key, observer }: Contender, users: number): Promise<void> {
  const connection = new HttpConnection(target);
  const head = postHead(`${target.host}:${target.port}`, '/users/track', key);
  const attributes = Array.from({ length: PER_REQUEST }, () => ({ external_id: USER_MARK, seeded: true }));
  const message = toMessage(head, JSON.stringify({ attributes }));
  for (let first = 0; first < users; first += PER_REQUEST) {
    assignUsersFrom(message, first);
    const { status, body } = await connection.send(message.bytes);
    if (status !== 201) throw new Error(`users could not be made: ${status} ${body}`);
  }
  connection.close();
  // The last request has a few more users than requested.
  const sent = Math.ceil(users / PER_REQUEST) * PER_REQUEST;
  while ((await observer.applied()) < sent) await sleep(observer.readEvery);
}
