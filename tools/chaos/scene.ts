import { setTimeout as sleep } from 'node:timers/promises';
import { type Backend, countProcessed, type Fleet, startFleetOn } from '../../test/setup/fleet.ts';
import { describeFleet } from '../../test/setup/fleet-state.ts';
import { startRedis, type TestRedis } from '../../test/setup/redis.ts';
import { createRandom } from '../load/random.ts';
import { residentMegabytes } from '../resident-megabytes.ts';
import { checkCircles } from './check/circles.ts';
import { type Finding, type Invariant, invariants } from './check/finding.ts';
import { checkPeople, type Sums } from './check/people.ts';
import { countQueue } from './check/queue.ts';
import { readPeople } from './check/stored-people.ts';
import { type Figure, figureOf, type Limit } from './figure.ts';
import type { Ground, Wanted } from './ground.ts';
import type { Circles } from './load/circles.ts';
import type { RequestEntry } from './load/journal.ts';
import { raiseLimitsOf } from './load/limits.ts';
import type { Load } from './load/load.ts';
import { type OwnPostgres, startOwnPostgres } from './own-postgres.ts';

export interface SceneOptions {
  backend: Backend;
  /** Creates a separate migrated, empty database. */
  createDatabase(): Promise<{ url: string }>;
  /** Whether to run the short form, which is part of the tests and takes seconds instead of minutes. */
  short: boolean;
  seed: number;
  /** Fleet and stores that are shared with other scenarios. */
  ground?: Ground;
  say(what: string): void;
}

export interface Settling {
  load?: Load;
  /** A further load, in another workspace. */
  flood?: Load;
  circles?: Circles;
  /** Milliseconds in which all accepted objects should be applied. */
  deadline?: number;
  /** Called when the queue is empty, before the comparison. */
  whenDrained?(): Promise<unknown>;
  /** Returns whether an acknowledged request may be lost. */
  mayLose?(request: RequestEntry): boolean;
  /** Megabytes by which a process may have grown during the scenario. */
  growth?: number;
  /** Returns findings of further comparisons after the queue is empty. */
  compare?(): Promise<Finding[]>;
}

/** Maximum findings that a report names. There may be as many findings as objects. */
const MAX_NAMED = 5;
const CHECK_MS = 100;

/**
 * Milliseconds without progress after which a queue counts as stuck, and milliseconds after which its jobs
 * count as lost in any case.
 */
const STUCK_MS = 60_000;
const MAX_DRAIN_MS = 900_000;

/** Milliseconds after which a failed job counts as permanently failed. */
const FINAL_FAILURE_MS = 20_000;

/** The context of a scenario and its results: figures, findings and sums. */
export class Scene {
  readonly backend: Backend;
  readonly short: boolean;
  readonly seed: number;
  readonly random: () => number;
  readonly say: (what: string) => void;
  readonly figures: Figure[] = [];
  readonly findings: Finding[] = [];
  readonly sums: Sums[] = [];
  /** Milliseconds of each recovery. */
  readonly recoveries: number[] = [];
  /** Further information for the report. */
  readonly notes: string[] = [];
  readonly #options: SceneOptions;
  readonly #memory = new Map<Fleet, Map<number, number>>();
  readonly #own: Fleet[] = [];

  constructor(options: SceneOptions) {
    this.#options = options;
    this.backend = options.backend;
    this.short = options.short;
    this.seed = options.seed;
    this.random = createRandom(options.seed);
    this.say = options.say;
  }

  /** Returns the value for the long or the short form. */
  choose<T>(long: T, short: T): T {
    return this.short ? short : long;
  }

  createDatabase(): Promise<{ url: string }> {
    return this.#options.createDatabase();
  }

  /** Starts a Redis with a proxy; undefined if the queue is in Postgres. */
  async startRedisBehind<T>(
    open: (url: string) => Promise<T>,
  ): Promise<{ server: TestRedis; proxy: T } | undefined> {
    if (this.backend === 'postgres') return undefined;
    const server = await startRedis();
    return { server, proxy: await open(server.url) };
  }

  async startFleet(options: Wanted = {}): Promise<Fleet> {
    this.say('starting a fleet');
    const wanted = { edges: this.choose(2, 1), workers: this.choose(3, 2), ...options };
    const fleet =
      (await this.#options.ground?.fleetFor(this.backend, wanted)) ?? (await this.#startOwn(wanted));
    await raiseLimitsOf(fleet.pool, fleet.workspace.id);
    return fleet;
  }

  async #startOwn(options: Wanted): Promise<Fleet> {
    const url = options.url ?? (await this.createDatabase()).url;
    const fleet = await startFleetOn(url, this.backend, options);
    this.#own.push(fleet);
    return fleet;
  }

  /** Returns a Postgres that may be stopped. */
  async startPostgres(): Promise<OwnPostgres> {
    return (await this.#options.ground?.postgres()) ?? startOwnPostgres();
  }

  /** Ends the fleets that are not shared. */
  async stop(): Promise<void> {
    for (const fleet of this.#own) await fleet.stop().catch(() => {});
  }

  /** Records the current memory of the processes, which `settle` compares. */
  noteMemory(fleet: Fleet): void {
    const members = [...fleet.edges, ...fleet.workers];
    this.#memory.set(fleet, new Map(members.map(({ pid }) => [pid, residentMegabytes(pid) ?? Number.NaN])));
  }

  figure(name: string, measured: number, unit: string, limit: Limit = {}): void {
    this.figures.push(figureOf(name, measured, unit, limit));
  }

  recovered(milliseconds: number): void {
    this.recoveries.push(milliseconds);
  }

  report(invariant: Invariant, what: string): void {
    this.findings.push({ invariant, what });
  }

  /**
   * Ends the load, waits until the queue is empty, and checks I1 to I6.
   * @returns the time at which the queue was empty, in epoch milliseconds
   */
  async waitUntilApplied(
    fleet: Fleet,
    { load, flood, circles, deadline, mayLose, whenDrained, compare, growth = 150 }: Settling,
  ): Promise<{ drained: number }> {
    const timeout = deadline ?? this.choose(180_000, 60_000);
    this.say('waiting for the last answers');
    await Promise.all([load?.stop(), flood?.stop(), circles?.stop()]);
    const took = await this.#drain(fleet, timeout);
    const drained = Date.now();
    this.figure('drained after the last answer', took / 1000, 's', { atMost: timeout / 1000 });
    await whenDrained?.();
    this.say('comparing');
    for (const one of [load, flood]) if (one) await this.#comparePeople(fleet, one, mayLose);
    if (circles) {
      this.findings.push(...(await checkCircles(fleet.pool, circles.workspace.id, circles.circles)));
      this.figure('replies about identities that do not fit', circles.surprises.length, '', { atMost: 0 });
      this.notes.push(...circles.surprises.slice(0, MAX_NAMED));
      this.notes.push(
        `${circles.acknowledged()} identity operations and mixed objects over ${circles.circles.length} circles`,
      );
    }
    this.findings.push(...((await compare?.()) ?? []));
    await this.#checkRest(fleet, growth);
    for (const invariant of Object.keys(invariants) as Invariant[]) {
      const of = this.findings.filter((finding) => finding.invariant === invariant);
      this.figure(`${invariant} ${invariants[invariant]}: violations`, of.length, '', { atMost: 0 });
    }
    return { drained };
  }

  async #comparePeople(fleet: Fleet, load: Load, mayLose: Settling['mayLose']): Promise<void> {
    const { journal, workspace, surprises } = load;
    const stored = await readPeople(fleet.pool, workspace.id, journal);
    const { findings, sums, lostAsAllowed } = checkPeople(journal, stored, mayLose);
    this.findings.push(...findings);
    this.sums.push(sums);
    if (mayLose) this.notes.push(`${lostAsAllowed} acknowledged objects were lost with the queue`);
    const statuses = [...journal.statuses()].map(([status, count]) => `${status || 'none'}: ${count}`);
    this.notes.push(`requests by answer: ${statuses.join(', ')}`);
    this.figure('replies that do not fit their request', surprises.length, '', { atMost: 0 });
    this.notes.push(...surprises.slice(0, MAX_NAMED));
  }

  /**
   * Waits until the queue is empty. While objects are applied, it also waits beyond the deadline: on a busy
   * machine, a late job is not lost. @returns the milliseconds until the queue was empty
   */
  async #drain(fleet: Fleet, timeout: number): Promise<number> {
    const from = Date.now();
    let [waiting, processed, advancedAt] = [Number.NaN, 0, from];
    const mayAdvance = () => Date.now() - advancedAt < STUCK_MS && Date.now() - from < MAX_DRAIN_MS;
    while (Date.now() - from < timeout || mayAdvance()) {
      const [queue, rest] = await Promise.all([
        countQueue(fleet).catch(() => undefined),
        fleet.pool.query('select count(*)::integer as left from removed_profiles').catch(() => undefined),
      ]);
      waiting = queue?.waiting ?? Number.NaN;
      const now = await countProcessed(fleet).catch(() => processed);
      if (!Object.is(now, processed)) advancedAt = Date.now();
      processed = now;
      this.say(`draining: ${waiting} jobs wait, ${processed} objects applied`);
      if (waiting === 0 && rest?.rows[0].left === 0) return Date.now() - from;
      await sleep(CHECK_MS);
    }
    const seconds = (since: number) => Math.round((Date.now() - since) / 1000);
    this.report(
      'I6',
      `${waiting} jobs still wait ${seconds(from)} s after the last answer; the last one was applied ${seconds(advancedAt)} s ago`,
    );
    this.notes.push(await describeFleet(fleet).catch(String));
    return Date.now() - from;
  }

  /**
   * Returns the final counts of the queue. Every few seconds, workers remove applied jobs that could not be
   * completed.
   */
  async #countAtRest(fleet: Fleet) {
    const deadline = Date.now() + FINAL_FAILURE_MS;
    for (;;) {
      const queue = await countQueue(fleet).catch(() => undefined);
      if (queue?.failed === 0 || Date.now() > deadline) return queue;
      await sleep(CHECK_MS);
    }
  }

  async #checkRest(fleet: Fleet, growth: number): Promise<void> {
    const queue = await this.#countAtRest(fleet);
    if (queue?.failed !== 0)
      this.report('I6', `${queue?.failed} jobs have failed for good: ${queue?.reasons.join('; ')}`);
    const fallen = await fleet.fallen();
    this.figure('processes of ours that ended by themselves', fallen.length, '', { atMost: 0 });
    if (fallen.length > 0) this.notes.push(`ended: ${fallen.join(', ')}`);
    const rejections = [...fleet.edges, ...fleet.workers].flatMap(({ name, log }) =>
      log
        .filter(({ text }) => /unhandled|UnhandledPromise/i.test(String(text ?? '')))
        .map(({ text }) => `${name}: ${text}`),
    );
    this.figure('unhandled rejections', rejections.length, '', { atMost: 0 });
    this.notes.push(...rejections.slice(0, MAX_NAMED));
    for (const { pid, name } of [...fleet.edges, ...fleet.workers]) {
      const before = this.#memory.get(fleet)?.get(pid);
      const after = residentMegabytes(pid);
      if (before === undefined || after === undefined || !(after - before > growth)) continue;
      this.report('I6', `${name} took ${Math.round(before)} MB before and takes ${Math.round(after)} MB`);
    }
  }

  get passed(): boolean {
    return this.figures.every(({ passed }) => passed) && this.findings.length === 0;
  }

  /** Describes the findings of each invariant, up to the maximum. */
  describeFindings(): string[] {
    return (Object.keys(invariants) as Invariant[]).flatMap((invariant) => {
      const of = this.findings.filter((finding) => finding.invariant === invariant);
      const more = of.length > MAX_NAMED ? [`    ${invariant}: … and ${of.length - MAX_NAMED} more`] : [];
      return [
        ...of.slice(0, MAX_NAMED).map(({ what }) => `    ${invariant}: ${what.slice(0, 600)}`),
        ...more,
      ];
    });
  }
}
