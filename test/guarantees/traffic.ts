import { waitUntil } from '../setup/fixtures.ts';
import type { Fleet } from './fleet.ts';
import { type Answer, type Client, createClient } from './keep-alive-client.ts';
import { createPerson, type Person, type Round, type Sent } from './person.ts';

/** Users that a client has in turn at any time, and users in one request. */
const USERS = 8;
const USERS_PER_REQUEST = 3;

/** A request with its answer, in the order in which its client sent it. */
export interface Logged extends Answer {
  client: number;
  edge: string;
  sent: Sent[];
}

export interface Traffic {
  log: Logged[];
  acknowledged(): number;
  /** Resolves when so many more requests have been acknowledged. */
  more(requests: number): Promise<void>;
  /** Lets every client finish its request. */
  stop(): Promise<Logged[]>;
}

/**
 * Clients that send mixed objects as fast as they are answered, each about users of its own and one request
 * after the other, to all edges in turn. A request that failed is not repeated: its users go on.
 */
export function startTraffic(fleet: Fleet, { clients = 12 } = {}): Traffic {
  const log: Logged[] = [];
  let acknowledged = 0;
  let stopping = false;

  async function run(number: number): Promise<void> {
    const client = createClient(fleet.workspace.key);
    const users = Array.from({ length: USERS }, (_, index) => createPerson(index, number));
    let born = USERS;
    for (let turn = number; !stopping; turn++) {
      const round: Round = { attributes: [], events: [], purchases: [], sent: [] };
      for (let index = 0; index < USERS_PER_REQUEST; index++) {
        const place = (turn + index) % USERS;
        if (users[place]!.done()) users[place] = createPerson(born++, number);
        (users[place] as Person).play(round);
      }
      const { sent, ...body } = round;
      const { answer, edge } = await deliver(client, turn, body);
      log.push({ ...answer, client: number, edge, sent });
      if (answer.status === 201) acknowledged++;
    }
    client.close();
  }

  /** To the edge whose turn it is; to another one when it takes no connection, as a load balancer would do. */
  async function deliver(
    client: Client,
    turn: number,
    body: object,
  ): Promise<{ answer: Answer; edge: string }> {
    for (let attempt = 0; ; attempt++) {
      const edge = await waitUntil(() => fleet.edges[(turn + attempt) % fleet.edges.length], {
        what: 'an edge',
      });
      const answer = await client.post(edge.port, '/users/track', body);
      if (!answer.neverSent) return { answer, edge: edge.name };
      if (stopping) return { answer, edge: edge.name };
    }
  }

  const running = Promise.all(Array.from({ length: clients }, (_, number) => run(number)));
  return {
    log,
    acknowledged: () => acknowledged,
    async more(requests) {
      const goal = acknowledged + requests;
      await waitUntil(() => acknowledged >= goal, { what: `${requests} more acknowledged requests` });
    },
    async stop() {
      stopping = true;
      await running;
      return log;
    },
  };
}
