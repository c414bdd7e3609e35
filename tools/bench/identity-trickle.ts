import { setTimeout as sleep } from 'node:timers/promises';
import { HttpConnection } from '../load/http-connection.ts';
import type { Contender } from './contender.ts';
import { post } from './post.ts';

/** Requests per second. */
const RATE = 100;

/**
 * Sends identity requests at a steady rate until it is stopped: in turn a new alias-only user, the
 * identification of one, and a merge of two identified users.
 *
 * @returns a function that stops it and returns the number of accepted requests
 */
export function trickleIdentity(ours: Contender, run: string): { stop(): Promise<number> } {
  let running = true;
  let sent = 0;
  const connection = new HttpConnection(ours.target);
  const sending = (async () => {
    const started = performance.now();
    while (running) {
      const [path, body] = requestOf(run, sent++);
      await post(connection, ours, path, body);
      const due = started + (sent * 1000) / RATE;
      await sleep(Math.max(0, due - performance.now()));
    }
    connection.close();
    return sent;
  })();
  return {
    stop() {
      running = false;
      return sending;
    },
  };
}

function requestOf(run: string, number: number): [path: string, body: object] {
  const user = Math.floor(number / 3);
  const user_alias = { alias_label: run, alias_name: String(user) };
  switch (number % 3) {
    case 0:
      return ['/users/alias/new', { user_aliases: [user_alias] }];
    case 1:
      return ['/users/identify', { aliases_to_identify: [{ external_id: `${run}-${user}`, user_alias }] }];
    default:
      return [
        '/users/merge',
        {
          merge_updates: [
            {
              identifier_to_merge: { external_id: `${run}-${user - 1}` },
              identifier_to_keep: { external_id: `${run}-${user}` },
            },
          ],
        },
      ];
  }
}
