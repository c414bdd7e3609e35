import type { AcceptedObject, AcceptedRequest } from '../../src/jobs/envelope.ts';
import type { Log } from '../../src/platform/log.ts';
import type { LaneEntry } from '../../src/queue/lanes.ts';
import type { Pool } from '../../src/store/database.ts';
import { Database } from './database.ts';
import { check, History, type SentObject, type SentRequest, type Violation } from './history.ts';
import { LaneServer } from './lanes/server.ts';
import { MemoryLaneStore } from './lanes/store.ts';
import { CALM, Link, type Weather } from './link.ts';
import { acceptedOf, elementOf, namesOf } from './objects.ts';
import type { Fault, Plan, PlannedObject, PlannedRequest, Role } from './plan.ts';
import { type DatabasePace, SimulatedPool } from './pool.ts';
import type { Cluster } from './postgres/cluster.ts';
import { Gate } from './postgres/gate.ts';
import { GatedPool } from './postgres/pool.ts';
import { Receivers } from './postgres/receiver.ts';
import { checkState, prepare, readWork, type SimulatedWorkspace, type Work } from './postgres/state.ts';
import type { PostgresExports, ProgramExports, SimulatedProgram } from './program.ts';
import { Trace, type TraceLine } from './trace.ts';
import { Host, World } from './world.ts';

/** Timeout of an add in milliseconds. */
const ADD_TIMEOUT = 700;

/**
 * Milliseconds after the last fault in which the lanes must drain. While envelopes leave the lanes, at most STALL_MS
 * apart, they have MAX_DRAIN_MS: a simulated lane finds out by polling that a fence was passed, four times a second, and a
 * seed can leave hundreds of fences.
 */
const DRAIN_MS = 180_000;
const STALL_MS = 60_000;
const MAX_DRAIN_MS = 900_000;

/** Milliseconds between two checks for work that is left in Postgres. */
const WORK_POLL_MS = 1000;

/** Maximum number of connections of a process to Postgres. */
const POOL_SIZE = 6;

/** Milliseconds of silence after which another worker takes the lanes of a worker. */
const TAKE_OVER_MS = 2000;

/** The result of a simulation. */
export interface Outcome {
  seed: number;
  violations: Violation[];
  /** Simulated milliseconds. */
  simulated: number;
  events: number;
  objects: number;
  /** Lines of the trace; empty unless `keepsTrace` is set. */
  trace: TraceLine[];
  digest: string | undefined;
  /** Hash of the final tables and deliveries; absent without Postgres. */
  state?: string | undefined;
}

export interface SimulationOptions {
  keepsTrace?: boolean;
  /** The server of a simulation with Postgres. */
  cluster?: Cluster | undefined;
  /** Called with each line of the trace. */
  listen?(line: TraceLine): void;
}

/** Runs a plan. */
export async function simulate(
  program: SimulatedProgram,
  plan: Plan,
  { keepsTrace = false, listen, cluster }: SimulationOptions = {},
): Promise<Outcome> {
  if ((program.store === 'postgres') !== (cluster !== undefined))
    throw new Error('a program with Postgres needs a server, and a program in memory has none');
  const simulation = new Simulation(program, plan, { keepsTrace, cluster });
  if (listen) simulation.trace.listen(listen);
  return simulation.run();
}

/** A simulated process with its connections. */
interface Process<Running> {
  role: Role;
  number: number;
  host: Host;
  /** Connections by server. */
  links: { queue: Link[]; database: Link[]; receiver: Link[] };
  running: Running;
}

type Web = Process<{ exports: ProgramExports; queue: ReturnType<ProgramExports['startWeb']> }>;
type Worker = Process<ReturnType<ProgramExports['startWorker'] | PostgresExports['startWholeWorker']>>;
type Sync = Process<undefined>;

const silent = Object.fromEntries(
  ['trace', 'debug', 'info', 'warn', 'error', 'fatal'].map((level) => [level, () => {}]),
) as unknown as Log;

class Simulation {
  readonly #plan: Plan;
  readonly #program: SimulatedProgram;
  readonly #world: World;
  readonly trace: Trace;
  readonly #lanes: LaneServer;
  /** The tables in memory. */
  readonly #database: Database | undefined;
  /** The tables in Postgres. */
  readonly #postgres: { cluster: Cluster; gate: Gate; receivers: Receivers } | undefined;
  readonly #workspaces: SimulatedWorkspace[];
  readonly #history = new History();
  readonly #webs: Web[] = [];
  readonly #workers: Worker[] = [];
  readonly #syncs: Sync[] = [];
  readonly #poison = new Map<string, NonNullable<PlannedObject['poison']>>();
  readonly #clients = new Map<number, PlannedRequest[]>();
  readonly #keepsTrace: boolean;
  #weather: Weather;
  #databaseFactor = 1;
  #started = 0;
  #unanswered = 0;
  #objects = 0;
  #isOver = false;
  /** Work that was left in Postgres at the last check. Undefined while requests, lanes or transactions are in progress. */
  #work: Work | undefined;

  constructor(
    program: SimulatedProgram,
    plan: Plan,
    { keepsTrace, cluster }: { keepsTrace: boolean; cluster: Cluster | undefined },
  ) {
    this.#plan = plan;
    this.#program = program;
    this.#keepsTrace = keepsTrace;
    this.#weather = plan.settings.weather;
    this.#world = new World(plan.seed);
    this.trace = new Trace(this.#world, { keepsLines: keepsTrace });
    this.#world.note = (what, details) => this.trace.note(what, details);
    const { lanes, kind, lockDuration } = plan.settings;
    this.#lanes = new LaneServer(this.#world, { lanes, kind, trace: this.trace });
    const options = { idleTimeout: lockDuration, trace: this.trace };
    this.#workspaces = plan.settings.perObject.map((_, number) => ({
      id: workspaceId(number),
      destination: plan.settings.postgres?.streamed.includes(number) ? destinationId(number) : undefined,
    }));
    if (!cluster) this.#database = new Database(this.#world, options);
    else {
      const random = this.#world.random.fork('postgres');
      const gate = new Gate({ ...options, cluster, world: this.#world, random });
      const receivers = new Receivers({ trace: this.trace, random: random.fork('receivers') });
      this.#postgres = { cluster, gate, receivers };
      this.trace.listen(({ what, details }) => {
        if (what === 'committed') this.#noteDeletes(details.objects as string[]);
      });
    }
  }

  get #processes(): Process<unknown>[] {
    return [...this.#webs, ...this.#workers, ...this.#syncs];
  }

  async run(): Promise<Outcome> {
    const { settings, requests, faults } = this.#plan;
    if (this.#postgres) {
      const { cluster } = this.#postgres;
      await cluster.reset();
      await cluster.setTime(this.#world.wallClock());
      await prepare(cluster, this.#workspaces);
    }
    for (let number = 0; number < settings.webs; number++) this.#startWeb(number);
    for (let number = 0; number < settings.workers; number++) this.#startWorker(number);
    for (let number = 0; number < (settings.postgres?.syncs ?? 0); number++) this.#startSync(number);
    this.#world.schedule(TAKE_OVER_MS, () => this.#shareLanes());
    for (const request of requests) {
      const earlier = this.#clients.get(request.client) ?? [];
      this.#clients.set(request.client, [...earlier, request]);
    }
    for (const client of this.#clients.keys()) this.#scheduleNext(client);
    for (const fault of faults) this.#world.schedule(fault.at, () => this.#inject(fault));
    const isOver = () => this.#world.crashes.length > 0 || (this.#isSent() && this.#isDrained());
    const stopListening = onUnhandledRejections((error) => {
      this.#world.crashes.push({ host: 'unknown', error });
    });
    let left = 0;
    this.trace.listen(({ at, what }) => {
      if (what === 'finished') left = at;
    });
    let deadline = settings.length + DRAIN_MS;
    let isDrained = false;
    try {
      await this.#world.run(() => this.#world.now >= settings.length, deadline);
      this.#weather = CALM;
      this.#databaseFactor = 1;
      if (this.#postgres) {
        this.#postgres.receivers.failing = 0;
        this.#pollWork();
      }
      isDrained = await this.#world.run(isOver, deadline);
      while (!isDrained && left + STALL_MS > deadline && deadline < settings.length + MAX_DRAIN_MS) {
        deadline = Math.min(left + STALL_MS, settings.length + MAX_DRAIN_MS);
        isDrained = await this.#world.run(isOver, deadline);
      }
    } finally {
      stopListening();
      this.#isOver = true;
      for (const { host } of this.#processes) host.kill();
      await this.#postgres?.gate.close();
    }
    return this.#outcome(isDrained);
  }

  /** Checks once per WORK_POLL_MS whether work is left in Postgres. */
  #pollWork(): void {
    const { cluster, gate } = this.#postgres!;
    const countWork = async () => {
      this.#work = undefined;
      if (this.#isSent() && this.#lanes.isEmpty() && gate.isIdle) this.#work = await readWork(cluster);
    };
    this.#world.schedule(WORK_POLL_MS, () => {
      this.#world.hold(countWork());
      this.#pollWork();
    });
  }

  async #outcome(isDrained: boolean): Promise<Outcome> {
    const { effects } = this.#database ?? this.#postgres!.gate;
    const violations: Violation[] = this.#world.crashes.map(({ host, error }) => ({
      guarantee: 'no error ends a process' as const,
      text: `${host}: ${(error as Error)?.stack ?? error}`,
    }));
    if (violations.length === 0 && isDrained) violations.push(...check(this.#history, effects));
    let state: string | undefined;
    if (this.#postgres && violations.length === 0 && isDrained) {
      const { cluster, receivers } = this.#postgres;
      const workspaces = this.#workspaces;
      const done = { history: this.#history, effects, workspaces, received: receivers.received };
      await cluster.setTime(this.#world.wallClock());
      const checked = await checkState(cluster, done);
      state = checked.state;
      violations.push(...checked.violations);
    }
    if (!isDrained && violations.length === 0)
      violations.push({
        guarantee: 'I6 the queue drains',
        text:
          `something still waits ${Math.round(this.#world.now - this.#plan.settings.length)} ms after the last request and the last fault: ` +
          `lanes ${this.#lanes.isEmpty() ? 'are empty' : 'hold envelopes'}, work in Postgres ${JSON.stringify(this.#work)}`,
      });
    return {
      seed: this.#plan.seed,
      violations,
      simulated: this.#world.now,
      events: this.#world.happened,
      objects: effects.length,
      trace: this.trace.lines,
      digest: this.#keepsTrace ? this.trace.digest() : undefined,
      state,
    };
  }

  #isSent(): boolean {
    const { length } = this.#plan.settings;
    return this.#world.now >= length && this.#clients.size === 0 && this.#unanswered === 0;
  }

  #isDrained(): boolean {
    const work = this.#work;
    if (!this.#postgres) return this.#lanes.isEmpty();
    return work !== undefined && Object.values(work).every((count) => count === 0);
  }

  #link(host: Host, name: string, { resends }: { resends: boolean }): Link {
    return new Link(name, { host, resends, weather: () => this.#weather });
  }

  #openLanes(host: Host, exports: ProgramExports) {
    const { kind, lanes, hasReplica } = this.#plan.settings;
    const link = this.#link(host, 'queue', { resends: kind === 'redis' });
    const producerLink = this.#link(host, 'producer', { resends: false });
    const laneStore = new MemoryLaneStore({
      ...{ host, server: this.#lanes, link, producerLink, lanes, hasReplica },
      unavailable: exports.unavailable,
    });
    return { laneStore, links: [link, producerLink] };
  }

  #startWeb(number: number): void {
    const host = new Host(this.#world, `web ${number}.${this.#started++}`);
    const exports = this.#program.load(host);
    const { laneStore, links } = this.#openLanes(host, exports);
    const { lanes } = this.#plan.settings;
    const queue = exports.startWeb({ laneStore, lanes, timeout: ADD_TIMEOUT, log: silent });
    this.#webs[number] = {
      ...{ role: 'web', number, host, links: { queue: links, database: [], receiver: [] } },
      running: { exports, queue },
    };
  }

  #startWorker(number: number): void {
    const host = new Host(this.#world, `worker ${number}.${this.#started++}`);
    const exports = this.#program.load(host);
    const { laneStore, links } = this.#openLanes(host, exports);
    const { lanes, lockDuration, stalledInterval, workers, worksEverything, sizes } = this.#plan.settings;
    const databaseLink = this.#link(host, 'database', { resends: false });
    const pool = this.#openPool(host, databaseLink);
    const options = {
      ...{ laneStore, pool, lanes, lockDuration, stalledInterval, log: silent },
      processId: this.#processId(),
      ...(sizes && { sizes }),
    };
    const running = this.#postgres
      ? (exports as PostgresExports).startWholeWorker(options)
      : exports.startWorker(options);
    this.#workers[number] = {
      ...{ role: 'worker', number, host, running },
      links: { queue: links, database: [databaseLink], receiver: [] },
    };
    host.onEnd(() => {
      this.trace.note('worker ended', { worker: host.name });
      // Start another worker, as a supervisor does.
      const restart = () => this.#workers[number]?.host === host && this.#startWorker(number);
      if (!this.#isOver) this.#world.schedule(this.#world.random.between(50, 2000), restart);
      this.#takeOver(number);
    });
    for (let lane = 0; lane < lanes; lane++)
      if (worksEverything || lane % workers === number) host.schedule(0, () => running.open(lane));
  }

  #processId(): string {
    return `00000000-0000-4000-8000-${String(this.#started).padStart(12, '0')}`;
  }

  #openPool(host: Host, link: Link): Pool {
    const pace = this.#pace(host);
    const pool = this.#postgres
      ? new GatedPool({ gate: this.#postgres.gate, link, pace, host, max: POOL_SIZE })
      : new SimulatedPool({ host, database: this.#database!, link, pace });
    return pool as unknown as Pool;
  }

  #startSync(number: number): void {
    const { receivers } = this.#postgres!;
    const host = new Host(this.#world, `sync ${number}.${this.#started++}`);
    const exports = this.#program.load(host) as PostgresExports;
    const databaseLink = this.#link(host, 'database', { resends: false });
    const link = this.#link(host, 'receiver', { resends: false });
    exports.startSync({
      ...{ pool: this.#openPool(host, databaseLink), processId: this.#processId(), log: silent },
      open: (id) => receivers.open(id, { host, link, fail: exports.deliveryError }),
    });
    this.#syncs[number] = {
      ...{ role: 'sync', number, host, running: undefined },
      links: { queue: [], database: [databaseLink], receiver: [link] },
    };
    host.onEnd(() => {
      this.trace.note('sync ended', { sync: host.name });
      const restart = () => this.#syncs[number]?.host === host && this.#startSync(number);
      if (!this.#isOver) this.#world.schedule(this.#world.random.between(50, 2000), restart);
    });
  }

  #pace(host: Host): DatabasePace {
    const { perObject } = this.#plan.settings;
    const workspaces = new Map(perObject.map((cost, number) => [workspaceId(number), cost]));
    return {
      perObject: (id) => (workspaces.get(id) ?? 0) * this.#databaseFactor * host.random.between(0.5, 1.5),
      refuses: (id) => {
        const poison = this.#poison.get(id);
        if (poison === undefined || poison === 'ends the process') return poison;
        return poison === 'refused'
          ? { code: '22P05', message: 'unsupported Unicode escape sequence' }
          : { code: '57014', message: 'canceling statement due to statement timeout' };
      },
    };
  }

  /** Schedules the next request of a client. Called when the previous request is answered. */
  #scheduleNext(client: number): void {
    const remaining = this.#clients.get(client) ?? [];
    const next = remaining.shift();
    if (!next) {
      this.#clients.delete(client);
      return;
    }
    this.#world.schedule(next.at - this.#world.now, () => this.#send(client, next));
  }

  #send(client: number, planned: PlannedRequest): void {
    const web = this.#webs[client % this.#webs.length];
    if (!web?.host.isAlive) {
      this.#world.schedule(100, () => this.#send(client, planned));
      return;
    }
    const { exports, queue } = web.running;
    const number = this.#history.requests.length;
    const request: AcceptedRequest = {
      request_id: `request-${number}`,
      workspace_id: workspaceId(planned.workspace),
      accepted_at: new Date(0).toISOString(),
    };
    const sent: SentRequest = { number, sentAt: this.#world.now, acknowledgedAt: undefined, objects: [] };
    const objects = planned.objects.map((object, index) =>
      this.#accept(exports, { object, index, planned, sent }),
    );
    this.#history.add(sent);
    const bytes = planned.objects.reduce((sum, { size = 100 }) => sum + size, 0);
    this.#unanswered++;
    let isAnswered = false;
    const answer = (isAcknowledged: boolean) => {
      if (isAnswered) return;
      isAnswered = true;
      this.#unanswered--;
      if (isAcknowledged) sent.acknowledgedAt = this.#world.now;
      this.#scheduleNext(client);
    };
    web.host.onEnd(() => this.#world.schedule(1, () => answer(false)));
    web.host.schedule(0, () => {
      const entries = planned.isRepeated ? queue.pack(request, objects, bytes) : undefined;
      const add = (tries: number): void => {
        const added: Promise<LaneEntry[]> = entries
          ? queue.add(entries, bytes)
          : queue.enqueue(request, objects, { bytes });
        added.then(
          () => answer(true),
          () => {
            if (entries && tries > 0)
              web.host.schedule(web.host.random.between(10, 500), () => add(tries - 1));
            else answer(false);
          },
        );
      };
      add(50);
    });
  }

  #accept(
    exports: ProgramExports,
    given: { object: PlannedObject; index: number; planned: PlannedRequest; sent: SentRequest },
  ): AcceptedObject {
    const { object, index, planned, sent } = given;
    const note = (id: string): SentObject => {
      const noted: SentObject = {
        ...{ id, index, request: sent, workspaceId: workspaceId(planned.workspace) },
        names: namesOf(object).map((name) => `${planned.workspace} ${name}`),
      };
      sent.objects.push(noted);
      if (object.poison) this.#poison.set(id, object.poison);
      return noted;
    };
    if (this.#postgres) {
      const element = elementOf(object, this.#objects++);
      const accepted = acceptedOf(element, index, exports as PostgresExports);
      note(accepted.id).element = element;
      return accepted;
    }
    const id = exports.newId();
    note(id);
    const identifiers = object.users.map((user) => ({ external_id: user }));
    const [first, second = first] = identifiers as [{ external_id: string }, { external_id: string }?];
    if (object.kind === 'delete') return { kind: 'delete', id, index, user: { identifier: first } };
    if (object.kind === 'merge')
      return { kind: 'merge', id, index, merge: { identifier: first }, keep: { identifier: second } };
    return {
      ...{
        kind: 'events',
        id,
        index,
        identifier: first,
        name: 'simulated',
        time: '2030-01-01T00:00:00.000Z',
      },
      ...(object.size !== undefined && { properties: { text: 'x'.repeat(object.size) } }),
    };
  }

  #processOf({ role, process }: { role: Role; process: number }): Process<unknown> | undefined {
    return { web: this.#webs, worker: this.#workers, sync: this.#syncs }[role][process];
  }

  #inject(fault: Fault): void {
    this.trace.note('fault', { ...fault });
    switch (fault.kind) {
      case 'kill': {
        const target = this.#processOf(fault);
        if (!target?.host.isAlive) return;
        target.host.kill();
        if (fault.role === 'web') this.#world.schedule(fault.for, () => this.#startWeb(fault.process));
        return;
      }
      case 'freeze': {
        this.#processOf(fault)?.host.freeze(fault.for);
        if (fault.role === 'worker' && fault.for > TAKE_OVER_MS) this.#takeOver(fault.process);
        return;
      }
      case 'cut': {
        for (const link of this.#processOf(fault)?.links[fault.server] ?? []) link.cut(fault.for);
        return;
      }
      case 'storm': {
        const { slow, slowest, cut } = fault;
        const storm = { slow, slowest, cut };
        this.#weather = storm;
        this.#world.schedule(fault.for, () => {
          if (this.#weather === storm) this.#weather = this.#plan.settings.weather;
        });
        return;
      }
      case 'slow database': {
        this.#databaseFactor = fault.factor;
        this.#world.schedule(fault.for, () => {
          this.#databaseFactor = 1;
        });
        return;
      }
      case 'move lane':
        this.#moveLane(fault);
        return;
      case 'clock': {
        const target = this.#processOf(fault);
        if (target) target.host.clockOffset += fault.by;
        return;
      }
      case 'fail over':
        this.#failOver();
        return;
      case 'end sessions': {
        const target = this.#processOf(fault);
        if (target) this.#postgres?.gate.endSessionsOf(target.host.name);
        return;
      }
      case 'destination fails': {
        if (!this.#postgres) return;
        const { receivers } = this.#postgres;
        receivers.failing = fault.chance;
        this.#world.schedule(fault.for, () => {
          receivers.failing = 0;
        });
        return;
      }
      case 'replay dead letters':
        this.#replay(fault.process);
        return;
    }
  }

  #noteDeletes(objects: readonly string[]): void {
    const isDelete = (id: string) => this.#history.objects.get(id)?.element?.kind === 'delete';
    const deletes = objects.filter(isDelete);
    if (deletes.length > 0) this.trace.note('deleted', { ids: deletes });
  }

  /** Replays all waiting dead letters, as an operator does with the command line. */
  #replay(process: number): void {
    const worker = this.#workers[process];
    if (!this.#postgres || !worker?.host.isAlive || !('replay' in worker.running)) return;
    const waiting = new Set<string>();
    for (const { objectId, kind } of this.#postgres.gate.effects) {
      if (kind === 'dead letter') waiting.add(objectId);
      else waiting.delete(objectId);
    }
    const { replay } = worker.running;
    if (waiting.size === 0) return;
    this.trace.note('replay', { ids: [...waiting], by: worker.host.name });
    worker.host.schedule(0, () => void replay([...waiting]).catch(() => {}));
  }

  /** Opens each lane that no running worker has open, as the sharing of lanes between real workers does. */
  #shareLanes(): void {
    const { lanes } = this.#plan.settings;
    const alive = this.#workers.filter(({ host }) => host.isAlive && host.frozenUntil <= this.#world.now);
    for (let lane = 0; lane < lanes; lane++) {
      const taker = alive[lane % Math.max(1, alive.length)];
      if (!taker || alive.some(({ running }) => running.isOpen(lane))) continue;
      taker.host.schedule(0, () => taker.running.open(lane));
      this.#lanes.endLease(lane);
    }
    this.#world.schedule(TAKE_OVER_MS, () => this.#shareLanes());
  }

  /** Moves the lanes of a silent worker to the next worker after TAKE_OVER_MS. */
  #takeOver(silentWorker: number): void {
    const { lanes, workers } = this.#plan.settings;
    this.#world.schedule(TAKE_OVER_MS, () => {
      for (let lane = 0; lane < lanes; lane++) {
        if (lane % workers !== silentWorker) continue;
        const other = this.#workers[(silentWorker + 1) % workers];
        if (!other?.host.isAlive || other.number === silentWorker) continue;
        other.host.schedule(0, () => other.running.open(lane));
        this.#lanes.endLease(lane);
      }
    });
  }

  #moveLane({ lane, to, endsLease }: { lane: number; to: number; endsLease: boolean }): void {
    for (const worker of this.#workers) {
      if (!worker.host.isAlive || worker.number === to || !worker.running.isOpen(lane)) continue;
      worker.host.schedule(0, () => void worker.running.close(lane));
    }
    const taker = this.#workers[to];
    if (!taker?.host.isAlive) return;
    taker.host.schedule(this.#world.random.between(0, 50), () => taker.running.open(lane));
    if (endsLease) this.#lanes.endLease(lane);
  }

  #failOver(): void {
    if (!this.#plan.settings.hasReplica) return;
    this.#lanes.failOver();
    for (const { links } of this.#processes)
      for (const link of links.queue) link.cut(this.#world.random.between(100, 1500));
  }
}

function destinationId(number: number): string {
  return `00000000-0000-4000-9000-00000000000${number + 1}`;
}

function workspaceId(number: number): string {
  return `00000000-0000-4000-8000-00000000000${number + 1}`;
}

/** Listens to promises of simulated processes that are rejected without a handler. @returns a function that stops it */
function onUnhandledRejections(listener: (error: unknown) => void): () => void {
  process.on('unhandledRejection', listener);
  return () => process.off('unhandledRejection', listener);
}
