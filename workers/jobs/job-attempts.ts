import { Counter, type Registry } from 'prom-client';
import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import { beginAttempts, countAttempts, endAttempts, type SyncJobKind } from '../../src/store/job-attempts.ts';

/** A job that has ended so many processes without progress is set aside. */
const MAX_ENDED = 2;

/** A suspect that has lived for so long lets the next one begin. */
const SUSPECT_MS = 60_000;

/** The reason of a job that was set aside, as its owner reads it. */
export const endedTheProcess = (what: string) =>
  `ended the process: ${MAX_ENDED} sync processes ended unexpectedly while they worked on this ${what}. Their log has the cause. Fix it, then start the ${what} again`;

interface JobName {
  kind: SyncJobKind;
  /** A UUID. */
  id: string;
}

const workOf = ({ kind, id }: JobName) => ({ kind, ids: [id] });

/** A job in the hands of this process. */
export interface Attempt {
  /** The job came further, durably: what happened to it before is forgotten. */
  progress(): Promise<void>;
  /** `given back`: another attempt goes on with it. Otherwise the job ended, whether or not it failed. */
  end(how?: 'given back'): Promise<void>;
}

/**
 * Finds jobs that end the processes that work on them. Each attempt is noted in Postgres before the work begins; one
 * that is still there when another process begins the job belongs to a process that did not end it.
 *
 * All jobs that a process had in hand are suspects when it has died. One suspect at a time is worked on, until it makes
 * progress: when the process dies again, only the one that was worked on has ended two.
 */
export class JobAttempts {
  readonly #pool: Pool;
  readonly #processId: string;
  readonly #log: Log;
  readonly #setAside: Counter<'kind'>;
  #suspect: { job: JobName; until: number } | undefined;
  /** Jobs whose end could not be noted yet, by kind and id. */
  readonly #unnoted = new Map<string, { job: JobName; whose: 'own' | 'all' }>();

  constructor({ pool, processId, log, registry }: JobAttemptsOptions) {
    this.#pool = pool;
    this.#processId = processId;
    this.#log = log;
    this.#setAside = new Counter({
      name: 'penstock_sync_set_aside_total',
      help: 'Jobs that were set aside because they ended two sync processes, by kind.',
      labelNames: ['kind'],
      registers: [registry],
    });
    for (const kind of kinds) this.#setAside.inc({ kind }, 0);
  }

  /** @returns `waits`: another suspect is worked on, so that this job has to be tried a little later */
  async begin(kind: SyncJobKind, id: string): Promise<Attempt | 'set aside' | 'waits'> {
    await this.#noteEnds();
    const job = { kind, id };
    const ended = (await countAttempts(this.#pool, workOf(job), this.#processId)).get(id) ?? 0;
    if (ended >= MAX_ENDED) {
      await endAttempts(this.#pool, workOf(job), { processId: this.#processId, whose: 'all' });
      this.#setAside.inc({ kind });
      this.#log.error({ job_kind: kind, job_id: id, ended }, 'job ended its process repeatedly; set aside');
      return 'set aside';
    }
    if (ended > 0) {
      if (this.#suspect && this.#suspect.until > performance.now()) return 'waits';
      this.#suspect = { job, until: performance.now() + SUSPECT_MS };
      this.#log.warn({ job_kind: kind, job_id: id, ended }, 'retrying a job whose process ended');
    }
    try {
      await beginAttempts(this.#pool, workOf(job), this.#processId);
    } catch (error) {
      this.#clear(job);
      throw error;
    }
    return this.#attempt(job, ended > 0);
  }

  #attempt(job: JobName, begunAsSuspect: boolean): Attempt {
    let isSuspect = begunAsSuspect;
    return {
      progress: async () => {
        if (!isSuspect) return;
        isSuspect = false;
        this.#clear(job);
        await endAttempts(this.#pool, workOf(job), { processId: this.#processId, whose: 'others' });
      },
      end: async (how) => {
        this.#clear(job);
        const whose = how === 'given back' ? 'own' : 'all';
        this.#unnoted.set(`${job.kind} ${job.id}`, { job, whose });
        await this.#noteEnds().catch(() => {});
      },
    };
  }

  #clear(job: JobName): void {
    if (this.#suspect?.job.id === job.id) this.#suspect = undefined;
  }

  /** Postgres may have been away when a job ended. */
  async #noteEnds(): Promise<void> {
    for (const [key, ended] of this.#unnoted) {
      await endAttempts(this.#pool, workOf(ended.job), { processId: this.#processId, whose: ended.whose });
      if (this.#unnoted.get(key) === ended) this.#unnoted.delete(key);
    }
  }
}

export interface JobAttemptsOptions {
  pool: Pool;
  /** Of this life of the process, a UUID. */
  processId: string;
  log: Log;
  registry: Registry;
}

const kinds: readonly SyncJobKind[] = [
  'sync run',
  'segment export',
  'export callback',
  'stream delivery',
  'retention',
];
