import type { Contender } from '../contender.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline, type Shape } from '../pipeline.ts';
import { CONNECTIONS_OF_1, CONNECTIONS_OF_75, type Size } from '../size.ts';
import { measureCopy } from './copy.ts';

/** Measures the complete pipelines from HTTP to Postgres, Penstock and other pipelines, and COPY. */
export function pipelineRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  const of = async (fleet: Promise<Contender>, shape: Partial<Shape> & { objects: number }) =>
    measurePipeline(await fleet, environment, {
      ...size,
      connections: shape.objects === 1 ? CONNECTIONS_OF_1 : CONNECTIONS_OF_75,
      maxRequests: Number.POSITIVE_INFINITY,
      ...shape,
    });
  return [
    {
      name: 'ours-75',
      what: 'Penstock, 75 mixed objects per request: objects/s applied',
      measure: () => of(fleets.ours(), { objects: 75 }),
    },
    // This row is between the two rows that it is compared with, because a machine changes within a minute.
    {
      name: 'copy',
      what: 'COPY of the same event rows, one connection: rows/s',
      measure: async () => measureCopy((await fleets.ours()).databaseUrl, size.copiedRows, environment),
    },
    {
      name: 'two-lanes-75',
      what: 'the same as the first, with two lanes',
      measure: () => of(fleets.twoLanes(), { objects: 75 }),
    },
    {
      name: 'ours-75-identity',
      what: 'the same, while 100 identity requests a second pass',
      measure: () => of(fleets.ours(), { objects: 75, withIdentity: true }),
    },
    {
      name: 'two-workers-75',
      what: 'the same as the first, with a second worker process',
      measure: () => of(fleets.twoWorkers(), { objects: 75 }),
    },
    {
      name: 'embedded-75',
      what: 'the same as the first, with the queue in Postgres and one lane',
      measure: () => of(fleets.embedded(), { objects: 75 }),
    },
    {
      name: 'request-jobs-75',
      what: 'one job per request and one statement per job, without order, sums or protection from repeats: objects/s',
      measure: () => of(fleets.requestJobs('few'), { objects: 75 }),
    },
    {
      name: 'request-jobs-sums-75',
      what: 'the same, with the rows that Penstock keeps, without order per user or dead letters: objects/s',
      measure: () => of(fleets.requestJobs('all'), { objects: 75 }),
    },
    {
      name: 'naive-75',
      what: 'naive pipeline, 75 mixed objects per request: objects/s applied',
      measure: () => of(fleets.naive(), { objects: 75, maxRequests: size.naiveRequestsOf75 }),
    },
    {
      name: 'ours-1',
      what: 'Penstock, one object per request: requests/s accepted and applied',
      measure: () => of(fleets.ours(), { objects: 1 }),
    },
    {
      name: 'embedded-1',
      what: 'the same, with the queue in Postgres and one lane',
      measure: () => of(fleets.embedded(), { objects: 1 }),
    },
    {
      name: 'request-jobs-1',
      what: 'one job per request and one statement per job, one object per request: requests/s',
      measure: () => of(fleets.requestJobs('few'), { objects: 1 }),
    },
    {
      name: 'naive-1',
      what: 'naive pipeline, one object per request: requests/s accepted and applied',
      measure: () => of(fleets.naive(), { objects: 1, maxRequests: size.naiveRequestsOf1 }),
    },
  ];
}
