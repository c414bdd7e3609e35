import type { JobJson, QueueOptions } from 'bullmq';
import { createRedisBackend, QueueKeys } from './bullmq.ts';
import { createPatientBackend, type QueueAccess } from './bullmq-queues.ts';
import { seal } from './checksum.ts';
import type { Redis } from './ioredis.ts';
import type { AdditionCounter } from './loss.ts';
import type { ReplicaWait } from './replicas.ts';

/** A job of one lane. */
interface LaneJob {
  queueName: string;
  id: string;
  name: string;
  /** JSON text of the envelope. */
  data: string;
  opts: JobJson['opts'] & { timestamp: number };
}

/** The answer of the server for one job: an error, or the id of the job, or a negative error code of BullMQ. */
export type JobAnswer = [error: Error | null, idOrCode: string | number];

/** Adds jobs to the lanes of a shard in one atomic step. */
export interface ShardAdder {
  /**
   * Adds the jobs, all or none.
   * @returns the answer for each job, in order
   * @throws if the step as a whole failed
   */
  add(jobs: LaneJob[]): Promise<JobAnswer[]>;
  waitUntilReady(): Promise<void>;
  close(): Promise<void>;
}

/** Members of BullMQ's form of a job that an add does not store. */
const NOT_STARTED = {
  ...{ progress: 0, attemptsMade: 0, attemptsStarted: 0, stalledCounter: 0 },
  ...{ failedReason: '', returnvalue: '' },
};

/** Matches the ids that BullMQ generates, and ids that would look like a key of another job. */
const REFUSED_ID = /^\d+$|:/;

/**
 * Returns a job in the form in which BullMQ's backends take it.
 * @throws if the id is an integer or contains a colon
 */
function jsonOf({ id, name, data, opts }: LaneJob): JobJson {
  if (REFUSED_ID.test(id)) throw new Error(`the job id ${id} is an integer or contains a colon; use a UUID`);
  return { ...NOT_STARTED, id, name, data, opts, timestamp: opts.timestamp };
}

interface RedisParts {
  additions: AdditionCounter;
  /** Absent: an add waits only for the disk of the server. */
  replicas: ReplicaWait | undefined;
}

/** The answers to the commands of a pipeline. */
type Answers = [error: Error | null, result: unknown][];

/**
 * Adds jobs to Redis in one pipeline: MULTI, the jobs, the count of additions, EXEC, and then the commands that wait for
 * replicas. BullMQ's `addJobToTransaction` adds each job, so the keys and scripts of a job are BullMQ's alone.
 */
export function openRedisAdder(options: QueueOptions, { additions, replicas }: RedisParts): ShardAdder {
  const backend = createRedisBackend('', options);
  // Errors come back from the calls themselves; without a listener this event would end the process.
  backend.on('error', () => {});
  const keys = new QueueKeys(options.prefix);

  return {
    async add(jobs) {
      const client = await backend.client;
      const pipeline = (client as unknown as Redis).pipeline([['multi']]);
      const transaction = pipeline as typeof pipeline & Parameters<typeof backend.addJobToTransaction>[0];
      for (const job of jobs) {
        // Redis stores the text of a job, which a checksum can cover.
        const json = { ...jsonOf(job), data: seal(job.data) };
        await backend.addJobToTransaction(transaction, json, job.id, {}, keys.getKeys(job.queueName));
      }
      additions.appendTo(pipeline);
      const execAt = pipeline.length;
      // In a pipeline with an open transaction, `exec` only appends EXEC.
      void pipeline.exec();
      const checkReplicas = replicas?.appendTo(pipeline);
      const answers = ((await pipeline.exec()) ?? []) as Answers;
      const results = resultsOf(answers, execAt);
      checkReplicas?.(answers.slice(execAt + 1));
      additions.note(results.slice(jobs.length));
      return results.slice(0, jobs.length);
    },
    waitUntilReady: () => backend.waitUntilReady(),
    close: () => backend.close(),
  };
}

/**
 * Returns the results of a transaction.
 * @param execAt position of EXEC among the answers
 * @throws the reason why Redis did not execute the transaction
 */
function resultsOf(answers: Answers, execAt: number): JobAnswer[] {
  const [error, results] = answers[execAt] ?? [new Error('no answer')];
  // EXECABORT does not name the reason; an earlier answer does.
  if (error) throw answers.find(([one]) => one && !/^EXECABORT/.test(one.message))?.[0] ?? error;
  if (!Array.isArray(results)) throw new Error('Redis did not execute the transaction');
  return results.map((result: unknown) =>
    result instanceof Error ? [result, -1] : [null, result as string | number],
  );
}

/** Adds jobs to Postgres in one statement. Postgres stores the values of a job, not its text, and has its own checksums. */
export function openPostgresAdder(options: QueueAccess['options']): ShardAdder {
  const backend = createPatientBackend('', options as never);
  backend.on('error', () => {});
  return {
    add: (jobs) =>
      backend.addFlow(
        jobs.map((job) => ({
          queueName: job.queueName,
          jobData: jsonOf(job),
          jobId: job.id,
          parentKeyOpts: {},
          prefix: '',
        })),
      ),
    waitUntilReady: () => backend.waitUntilReady(),
    close: () => backend.close(),
  };
}
