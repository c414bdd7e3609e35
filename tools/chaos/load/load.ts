import { setTimeout as sleep } from 'node:timers/promises';
import { countProcessed, type Fleet, type Member } from '../../../test/setup/fleet.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import type { TestWorkspace } from '../../../test/setup/workspace.ts';
import { postHead, toMessage } from '../../load/bodies.ts';
import { HttpConnection } from '../../load/http-connection.ts';
import { Journal } from './journal.ts';
import { kindsOf, makeRound, ROUNDS, type Wire } from './people.ts';

export interface LoadOptions {
  /** By default the workspace of the fleet. */
  workspace?: TestWorkspace;
  clients?: number;
  /** Number of clients that send, by default all. The others pause. */
  active?: number;
  /** Each has about three objects. */
  peoplePerRequest?: number;
  /**
   * Maximum objects that wait to be applied. Above it, the clients delay their next requests. Infinity turns
   * the check off.
   */
  maxUnapplied?: number;
  /** Wraps each request, to limit concurrency over several loads; by default requests are sent directly. */
  pass?<Answer>(send: () => Promise<Answer>): Promise<Answer>;
  /** Milliseconds that a client waits after a failed request. */
  pause?: number;
  /** Objects per second; by default as fast as they are answered. */
  rate?: number | undefined;
}

/** Behavior of the clients that may change while they run. */
export interface Manner extends Pick<LoadOptions, 'active' | 'maxUnapplied' | 'rate'> {
  /** After a refusal, clients send their next request immediately and in addition to the rate. */
  isImpatient?: boolean;
}

export interface Load {
  workspace: TestWorkspace;
  journal: Journal;
  /** Returns the number of requests in flight to a web process. */
  inFlight(edge: string): number;
  /**
   * Resolves when the given number of further objects has been acknowledged.
   * @param deadline milliseconds without another one after which it fails
   */
  more(objects: number, deadline?: number): Promise<void>;
  /** Changes the behavior of the clients. What is not given remains. */
  change(manner: Manner): void;
  /** Descriptions of responses that do not match their request. */
  surprises: string[];
  /** Stops after every client has finished its request. */
  stop(): Promise<Journal>;
}

/** Average number of objects in a round. */
const OBJECTS_PER_ROUND = 3.03;
/** Number of people of a client for each person in a request. */
const POOL = 4;
/** Milliseconds between two checks of the applied objects. */
const CHECK_MS = 50;
const MAX_SURPRISES = 20;

/**
 * Starts clients that send rounds of people as fast as they are answered. Each client has its own people and
 * sends one request at a time, to the web processes in turn. Failed requests are not repeated; their people
 * continue with their next round.
 */
export function startLoad(fleet: Fleet, options: LoadOptions = {}): Load {
  const { workspace = fleet.workspace, clients = 8, peoplePerRequest = 3, pause = 50, rate } = options;
  const pass = options.pass ?? ((send) => send());
  const journal = new Journal();
  const surprises: string[] = [];
  const flights = new Map<string, number>();
  let { maxUnapplied = 2000 } = options;
  let { active = clients } = options;
  let isImpatient = false;
  /** Milliseconds from one request to the next, and the due time of the next one. */
  let interval = intervalAt(rate ?? Number.POSITIVE_INFINITY);
  let due = 0;
  let born = 0;
  let processed = 0;
  let stopping = false;
  const processedBefore = countProcessed(fleet).catch(() => 0);

  function intervalAt(objectsPerSecond: number): number {
    return (1000 * peoplePerRequest * OBJECTS_PER_ROUND) / objectsPerSecond;
  }

  async function watchWorkers(): Promise<void> {
    const before = await processedBefore;
    while (!stopping && maxUnapplied < Number.POSITIVE_INFINITY) {
      processed = await countProcessed(fleet).then(
        (count) => count - before,
        () => processed,
      );
      await sleep(CHECK_MS);
    }
  }

  async function run(number: number): Promise<void> {
    const connections = new Map<number, HttpConnection>();
    /** Web processes that have asked this client to close its connection. */
    const leaving = new Set<string>();
    const head = postHead('127.0.0.1', '/users/track', workspace.key);
    const people = Array.from({ length: peoplePerRequest * POOL }, () => ({ person: born++, round: 0 }));
    let isRefused = false;
    for (let turn = number; !stopping; turn++) {
      if (!isRefused || !isImpatient) await permission(number);
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
        const position = (turn * peoplePerRequest + index) % people.length;
        if (people[position]!.round === ROUNDS) people[position] = { person: born++, round: 0 };
        const { person } = people[position]!;
        const round = ++people[position]!.round;
        const first = kindsOf(round).map((kind) => journal.add(request, person, round, kind))[0]!;
        for (const { kind, object } of makeRound(person, round, first)) {
          body[kind === 'bad' ? 'events' : kind].push(object);
          if (kind === 'bad') bad++;
          else good++;
        }
      }
      const bytes = toMessage(head, JSON.stringify(body)).bytes;
      isRefused = await pass(() => exchange({ request, bytes, good, bad, turn, edge, connections, leaving }));
      if (isRefused && !stopping && !isImpatient) await sleep(pause);
    }
    for (const connection of connections.values()) connection.close();
  }

  /** Resolves when a client may send its next request. */
  async function permission(number: number): Promise<void> {
    const mustWait = () => number >= active || journal.acknowledged - processed > maxUnapplied;
    while (mustWait() && !stopping) await sleep(CHECK_MS);
    due = Math.max(due + interval, performance.now());
    if (interval > 0) await sleep(due - performance.now());
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

  /**
   * Sends a request to the next web process in turn. If that one refuses the connection, the following one is
   * used, as a load balancer would do.
   */
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
        if (!fits(status, body, good, bad) && surprises.length < MAX_SURPRISES) {
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
    workspace,
    journal,
    surprises,
    change(manner) {
      if (manner.rate !== undefined) {
        interval = intervalAt(manner.rate);
        due = performance.now();
      }
      const wasUnwatched = maxUnapplied === Number.POSITIVE_INFINITY;
      maxUnapplied = manner.maxUnapplied ?? maxUnapplied;
      if (wasUnwatched) void watchWorkers();
      active = manner.active ?? active;
      isImpatient = manner.isImpatient ?? isImpatient;
    },
    inFlight: (edge) => flights.get(edge) ?? 0,
    async more(objects, deadline = 60_000) {
      const goal = journal.acknowledged + objects;
      while (journal.acknowledged < goal) {
        const seen = journal.acknowledged;
        await waitUntil(() => journal.acknowledged > seen, {
          what: `the next of ${objects} more acknowledged objects`,
          deadline,
        });
      }
    },
    async stop() {
      stopping = true;
      await running;
      return journal;
    },
  };
}

/**
 * Checks that a response has status 201 with the counts of the valid objects and an error for each invalid
 * one, or is a refusal with a message.
 */
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
