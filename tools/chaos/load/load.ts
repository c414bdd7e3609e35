import { setTimeout as sleep } from 'node:timers/promises';
import { countProcessed, type Fleet, type Member } from '../../../test/setup/fleet.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import { postHead, toMessage } from '../../load/bodies.ts';
import { HttpConnection } from '../../load/http-connection.ts';
import { Journal } from './journal.ts';
import { kindsOf, makeRound, ROUNDS, type Wire } from './people.ts';

export interface LoadOptions {
  clients?: number;
  /** About three objects each. */
  peoplePerRequest?: number;
  /** Objects that may wait to be applied; with more, the clients hold their next requests back. Infinity: nobody looks. */
  mostUnapplied?: number;
  /** What requests pass on their way, to be few at once over several loads; absent: nothing. */
  pass?<Answer>(send: () => Promise<Answer>): Promise<Answer>;
  /** Milliseconds that a client waits after a request that failed. */
  pause?: number;
  /** Objects a second; absent: as fast as they are answered. */
  rate?: number | undefined;
}

export interface Load {
  journal: Journal;
  /** Requests on their way to this edge or back. */
  inFlight(edge: string): number;
  /** Resolves when so many more objects have been acknowledged. */
  more(objects: number, deadline?: number): Promise<void>;
  /** Objects a second from now on; until then, and with Infinity, as fast as they are answered. */
  setRate(rate: number): void;
  /** Replies that were not what the request deserved, worded. */
  surprises: string[];
  /** Lets every client finish its request. */
  stop(): Promise<Journal>;
}

/** Objects in the average round. */
const OF_A_ROUND = 3.03;
/** People that a client has in turn, for each that is in one request. */
const POOL = 4;
/** Milliseconds between two looks at what is applied. */
const LOOK_MS = 50;
const MOST_SURPRISES = 20;

/**
 * Clients that send rounds of people as fast as they are answered, each about people of its own and one request
 * after the other, to all edges in turn. What failed is not repeated: its people go on with their next round.
 */
export function startLoad(fleet: Fleet, options: LoadOptions = {}): Load {
  const { clients = 8, peoplePerRequest = 3, mostUnapplied = 2000, pause = 50, rate } = options;
  const pass = options.pass ?? ((send) => send());
  const journal = new Journal();
  const surprises: string[] = [];
  const flights = new Map<string, number>();
  /** Milliseconds from one request to the next, and when the next one is due. */
  let interval = intervalAt(rate ?? Number.POSITIVE_INFINITY);
  let due = 0;
  let born = 0;
  let processed = 0;
  let stopping = false;
  const processedBefore = countProcessed(fleet).catch(() => 0);

  function intervalAt(objectsPerSecond: number): number {
    return (1000 * peoplePerRequest * OF_A_ROUND) / objectsPerSecond;
  }

  async function watchWorkers(): Promise<void> {
    const before = await processedBefore;
    while (!stopping && mostUnapplied < Number.POSITIVE_INFINITY) {
      processed = await countProcessed(fleet).then(
        (count) => count - before,
        () => processed,
      );
      await sleep(LOOK_MS);
    }
  }

  async function run(number: number): Promise<void> {
    const connections = new Map<number, HttpConnection>();
    /** Edges that have asked this client to close its connection. */
    const leaving = new Set<string>();
    const head = postHead('127.0.0.1', '/users/track', fleet.workspace.key);
    const people = Array.from({ length: peoplePerRequest * POOL }, () => ({ person: born++, round: 0 }));
    for (let turn = number; !stopping; turn++) {
      while (journal.acknowledged - processed > mostUnapplied && !stopping) await sleep(LOOK_MS);
      due = Math.max(due + interval, performance.now());
      if (interval > 0) await sleep(due - performance.now());
      if (stopping) break;
      const edge = await nextEdge(turn, leaving);
      if (!edge) break;
      const request = journal.open();
      const body: Record<'attributes' | 'events' | 'purchases', Wire[]> = {
        attributes: [],
        events: [],
        purchases: [],
      };
      let [good, bad] = [0, 0];
      for (let index = 0; index < peoplePerRequest; index++) {
        const place = (turn * peoplePerRequest + index) % people.length;
        if (people[place]!.round === ROUNDS) people[place] = { person: born++, round: 0 };
        const { person } = people[place]!;
        const round = ++people[place]!.round;
        const first = kindsOf(round).map((kind) => journal.add(request, person, round, kind))[0]!;
        for (const { kind, object } of makeRound(person, round, first)) {
          body[kind === 'bad' ? 'events' : kind].push(object);
          if (kind === 'bad') bad++;
          else good++;
        }
      }
      const bytes = toMessage(head, JSON.stringify(body)).bytes;
      const failed = await pass(() =>
        exchange({ request, bytes, good, bad, turn, edge, connections, leaving }),
      );
      if (failed && !stopping) await sleep(pause);
    }
    for (const connection of connections.values()) connection.close();
  }

  interface Exchange {
    request: number;
    bytes: Buffer;
    good: number;
    bad: number;
    turn: number;
    edge: Member;
    connections: Map<number, HttpConnection>;
    leaving: Set<string>;
  }

  /** To the edge whose turn it is; to the next when it takes no connection, as a load balancer would do. */
  async function exchange(sent: Exchange): Promise<boolean> {
    const { request, bytes, good, bad, connections, leaving } = sent;
    let { edge, turn } = sent;
    const started = performance.now();
    for (;;) {
      const connection =
        connections.get(edge.port) ?? new HttpConnection({ host: '127.0.0.1', port: edge.port });
      connections.set(edge.port, connection);
      flights.set(edge.name, (flights.get(edge.name) ?? 0) + 1);
      try {
        const { status, head, body } = await connection.send(bytes);
        if (/\r\nconnection: *close/i.test(head)) leaving.add(edge.name);
        const retryAfter = Number(/\r\nretry-after: *(\d+)/i.exec(head)?.[1] ?? 0);
        journal.close(request, { status, milliseconds: performance.now() - started, retryAfter }, good);
        if (!fits(status, body, good, bad) && surprises.length < MOST_SURPRISES) {
          surprises.push(`request ${request}: ${status} ${body.slice(0, 300)}`);
        }
        return status !== 201;
      } catch (error) {
        const neverSent = (error as NodeJS.ErrnoException).code === 'ECONNREFUSED';
        if (!neverSent || stopping) {
          journal.close(
            request,
            { status: 0, milliseconds: performance.now() - started, retryAfter: 0 },
            good,
          );
          return true;
        }
      } finally {
        flights.set(edge.name, flights.get(edge.name)! - 1);
      }
      await sleep(5);
      edge = (await nextEdge(++turn, leaving)) ?? edge;
    }
  }

  async function nextEdge(turn: number, leaving: Set<string>): Promise<Member | undefined> {
    while (!stopping) {
      const staying = fleet.edges.filter(({ name }) => !leaving.has(name));
      if (staying.length > 0) return staying[turn % staying.length];
      await sleep(10);
    }
    return undefined;
  }

  const running = Promise.all([
    watchWorkers(),
    ...Array.from({ length: clients }, (_, number) => run(number)),
  ]);
  return {
    journal,
    surprises,
    setRate(next) {
      interval = intervalAt(next);
    },
    inFlight: (edge) => flights.get(edge) ?? 0,
    async more(objects, deadline = 60_000) {
      const goal = journal.acknowledged + objects;
      await waitUntil(() => journal.acknowledged >= goal, {
        what: `${objects} more acknowledged objects`,
        deadline,
      });
    },
    async stop() {
      stopping = true;
      await running;
      return journal;
    },
  };
}

/** 201 with the counts of the good objects and an error for each bad one; a refusal says why. */
function fits(status: number, body: string, good: number, bad: number): boolean {
  let reply: Record<string, unknown>;
  try {
    reply = JSON.parse(body);
  } catch {
    return false;
  }
  if (status !== 201) return typeof reply.message === 'string' && [429, 503].includes(status);
  const { attributes_processed = 0, events_processed = 0, purchases_processed = 0, errors = [] } = reply;
  const counted = Number(attributes_processed) + Number(events_processed) + Number(purchases_processed);
  return counted === good && (errors as unknown[]).length === bad;
}
