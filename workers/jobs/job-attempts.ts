import { Counter, type Registry } from 'prom-client';
import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import { beginAttempts, countAttempts, endAttempts, type SyncJobKind } from '../../src/store/job-attempts.ts';

/** Number of processes that a job may end without progress before it is set aside. */
const MAX_ENDED = 2;

/** Milliseconds after which a running suspect no longer keeps other suspects from starting. */
const SUSPECT_MS = 60_000;

/** Returns the reason that the owner of a job sees when the job was set aside. */
export const endedTheProcess = (what: string) =>
  `ended the process: ${MAX_ENDED} sync processes ended unexpectedly while they worked on this ${what}. Their log has the cause. Fix it, then start the ${what} again`;

interface JobName {
  kind: SyncJobKind;
  /** A UUID. */
  id: string;
}

const workOf = ({ kind, id }: JobName) => ({ kind, ids: [id] });

/** One attempt of this process at a job. */
export interface Attempt {
  /** Records that the job has made durable progress: its earlier attempts no longer count. */
  progress(): Promise<void>;
  /** Ends the attempt. With `given back`, another attempt continues the job; otherwise the job succeeded or failed. */
  end(how?: 'given back'): Promise<void>;
}

/**
 * Detects jobs that crash the processes that work on them. Each attempt is recorded in Postgres before the work begins.
 * If the record still exists when another process begins the job, the first process died during the attempt.
 *
 * When a process dies, all its active jobs become suspects. A process runs one suspect at a time, until the suspect
 * makes progress. If the process dies again, only that suspect has two recorded attempts.
 */
export class JobAttempts {
  readonly #pool: Pool;
  readonly #processId: string;
  readonly #log: Log;
  readonly #setAside: Counter<'kind'>;
  #suspect: { job: JobName; until: number } | undefined;
  /** Jobs whose end could not be recorded yet, by kind and id. */
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

  /** @returns `waits` if another suspect is running, so that this job has to be retried a little later */
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

  /** Records ended jobs, including those that ended while Postgres was unavailable. */
  async #noteEnds(): Promise<void> {
    for (const [key, ended] of this.#unnoted) {
      await endAttempts(this.#pool, workOf(ended.job), { processId: this.#processId, whose: ended.whose });
      if (this.#unnoted.get(key) === ended) this.#unnoted.delete(key);
    }
  }
}

interface JobAttemptsOptions {
  pool: Pool;
  /** UUID of this run of the process. */
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
