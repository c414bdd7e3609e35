import { setTimeout as sleep } from 'node:timers/promises';
import { waitUntil } from '../setup/fixtures.ts';
import { type Fleet, watchWorkers } from './fleet.ts';
import { type Answer, type Client, createClient } from './keep-alive-client.ts';
import { countGood, createPerson, type Person, type Round, type Sent } from './person.ts';

/** Users that a client has in turn at any time, and users in one request. */
const USERS = 6;
const USERS_PER_REQUEST = 3;

/** Objects that may wait to be applied; with more, the clients hold their next requests back. */
const MOST_UNAPPLIED = 600;

/** Milliseconds. */
const PAUSE_AFTER_FAILURE = 50;

/** A request with its answer, in the order in which its client sent it. */
export interface Logged extends Answer {
  client: number;
  edge: string;
  sent: Sent[];
}

export interface Traffic {
  log: Logged[];
  acknowledged(): number;
  /** Requests on their way to this edge or back. */
  inFlight(edge: string): number;
  /** Resolves when so many more requests have been acknowledged. */
  more(requests: number): Promise<void>;
  /** Lets every client finish its request. */
  stop(): Promise<Logged[]>;
}

/**
 * Clients that send mixed objects as fast as they are answered, each about users of its own and one request
 * after the other, to all edges in turn. A request that failed is not repeated: its users go on. The clients
 * never get far ahead of the workers, so that a test ends soon after they do.
 */
export function startTraffic(fleet: Fleet, { clients = 8 } = {}): Traffic {
  const log: Logged[] = [];
  const flights = new Map<string, number>();
  let acknowledged = 0;
  let accepted = 0;
  let stopping = false;
  const workers = watchWorkers(fleet);

  async function run(number: number): Promise<void> {
    const client = createClient(fleet.workspace.key);
    /** Edges that have asked this client to close its connection. */
    const leaving = new Set<string>();
    const users = Array.from({ length: USERS }, (_, index) => createPerson(index, number));
    let born = USERS;
    for (let turn = number; !stopping; turn++) {
      while (accepted - workers.processed() > MOST_UNAPPLIED && !stopping) await sleep(50);
      const round: Round = { attributes: [], events: [], purchases: [], sent: [] };
      for (let index = 0; index < USERS_PER_REQUEST; index++) {
        const place = (turn + index) % USERS;
        if (users[place]!.done()) users[place] = createPerson(born++, number);
        (users[place] as Person).play(round);
      }
      const { sent, ...body } = round;
      const { answer, edge } = await deliver(client, turn, body, leaving);
      log.push({ ...answer, client: number, edge, sent });
      if (answer.status === 201) {
        acknowledged++;
        accepted += countGood(sent);
      } else await sleep(PAUSE_AFTER_FAILURE);
    }
    client.close();
  }

  /** To the edge whose turn it is; to the next when it takes no connection, as a load balancer would do. */
  async function deliver(client: Client, turn: number, body: object, leaving: Set<string>) {
    for (let attempt = turn; ; attempt++) {
      const staying = await waitUntil(() => notEmpty(fleet.edges.filter(({ name }) => !leaving.has(name))), {
        what: 'an edge',
      });
      const { name, port } = staying[attempt % staying.length]!;
      flights.set(name, (flights.get(name) ?? 0) + 1);
      const answer = await client.post(port, '/users/track', body);
      flights.set(name, flights.get(name)! - 1);
      if (answer.closing) leaving.add(name);
      if (!answer.neverSent || stopping) return { answer, edge: name };
    }
  }

  const running = Promise.all([
    workers.watching,
    ...Array.from({ length: clients }, (_, number) => run(number)),
  ]);
  return {
    log,
    acknowledged: () => acknowledged,
    inFlight: (edge) => flights.get(edge) ?? 0,
    async more(requests) {
      const goal = acknowledged + requests;
      await waitUntil(() => acknowledged >= goal, { what: `${requests} more acknowledged requests` });
    },
    async stop() {
      stopping = true;
      workers.leave();
      await running;
      return log;
    },
  };
}

function notEmpty<T>(list: T[]): T[] | undefined {
  return list.length > 0 ? list : undefined;
}
