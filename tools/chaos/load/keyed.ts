import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fleet } from '../../../test/setup/fleet.ts';
import type { Wire } from './people.ts';

export interface KeyedAnswer {
  /** HTTP status; 0 if the connection broke. */
  status: number;
  requestId: string;
  text: string;
}

/** A request that is sent repeatedly with one key, and its responses. */
export interface Keyed {
  user: string;
  /** User of a different body with the same key. */
  other: string;
  key: string;
  /** Responses to the original body. */
  answers: KeyedAnswer[];
  /** Responses to the different body. */
  refusals: KeyedAnswer[];
}

const TIME = '2026-01-02T03:04:05.000Z';
const PAUSE = 50;
const DEADLINE = 30_000;

/** Returns a body with one object of each kind, which can be counted afterwards. */
function bodyOf(user: string): Wire {
  return {
    attributes: [{ external_id: user, points: { inc: 1 } }],
    events: [{ external_id: user, name: 'seen', time: TIME }],
    purchases: [{ external_id: user, product_id: 'tea', currency: 'EUR', price: 1.5, time: TIME }],
  };
}

/**
 * Creates clients that send requests with idempotency keys and repeat them.
 *
 * @param header header with the key; the service ignores keys in other headers
 */
export function createKeyedLoad({ edges }: Fleet, apiKey: string, header = 'Idempotency-Key') {
  const all: Keyed[] = [];
  let turn = 0;

  async function sendOnce(key: string, body: Wire): Promise<KeyedAnswer> {
    // The list changes when a web process is replaced.
    const { port } = edges[turn++ % edges.length]!;
    try {
      const response = await fetch(`http://127.0.0.1:${port}/users/track`, {
        method: 'POST',
        headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json', [header]: key },
        body: JSON.stringify(body),
      });
      const requestId = response.headers.get('x-request-id') ?? '';
      return { status: response.status, requestId, text: await response.text() };
    } catch {
      return { status: 0, requestId: '', text: '' };
    }
  }

  async function sendUntilAnswered(key: string, body: Wire): Promise<KeyedAnswer> {
    const end = Date.now() + DEADLINE;
    for (;;) {
      const answer = await sendOnce(key, body);
      if ((answer.status !== 0 && answer.status !== 503) || Date.now() > end) return answer;
      await sleep(PAUSE);
    }
  }

  return {
    all,
    /** Creates a new key without sending a request. */
    make(): Keyed {
      const number = all.length;
      const one = { user: `keyed-${number}`, other: `other-${number}`, key: randomUUID() };
      return all[all.push({ ...one, answers: [], refusals: [] }) - 1]!;
    },
    /** Sends the same body several times concurrently, to the web processes in turn. */
    async repeat({ key, user, answers }: Keyed, times: number): Promise<void> {
      const sent = Array.from({ length: times }, () => sendUntilAnswered(key, bodyOf(user)));
      answers.push(...(await Promise.all(sent)));
    },
    /** Sends a different body with the key. */
    async misuse({ key, other, refusals }: Keyed): Promise<void> {
      refusals.push(await sendUntilAnswered(key, bodyOf(other)));
    },
  };
}
