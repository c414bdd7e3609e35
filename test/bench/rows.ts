import type { Contender } from './contender.ts';
import { measureCopy } from './copy-ceiling.ts';
import type { Environment } from './environment.ts';
import type { BenchRow } from './figure.ts';
import { measurePipeline, type Shape } from './measure-pipeline.ts';

/** How much is measured at a time. */
export interface Size {
  users: number;
  seconds: number;
  /** What the naive pipeline is given: it accepts much faster than it applies. */
  naiveRequestsOf75: number;
  naiveRequestsOf1: number;
  copiedRows: number;
  /** Requests of 50 identity operations. */
  identityRequests: number;
  /** Rows of a table that is synced. */
  syncedRows: number;
  /** Events of the users who are merged, one merge each. */
  mergedEvents: number[];
}

/**
 * @param seconds length of one measurement; under 3 it only shows that the bench runs
 * @param syncedRows of a sync, if not as many as go with the seconds
 */
export function sizeOf(seconds: number, syncedRows?: number): Size {
  return {
    users: seconds >= 3 ? 20_000 : 1000,
    seconds,
    naiveRequestsOf75: Math.ceil(15 * seconds),
    naiveRequestsOf1: Math.ceil(700 * seconds),
    copiedRows: Math.ceil(2.5 * seconds) * 10_000,
    identityRequests: Math.ceil(25 * seconds),
    syncedRows: syncedRows ?? Math.ceil(10 * seconds) * 1000,
    mergedEvents: seconds > 3 ? [1, 1000, 100_000, 1_000_000] : [1, 1000, 10_000],
  };
}

/** Requests on their way at once: enough that the pipelines are never idle, few enough that nothing times out. */
const CONNECTIONS_OF_75 = 16;
const CONNECTIONS_OF_1 = 64;

/** What the bench measures, in the order of a round. */
export function benchRows(
  { ours, naive }: { ours: Contender; naive: Contender },
  environment: Environment,
  size: Size,
): BenchRow[] {
  const unbounded = Number.POSITIVE_INFINITY;
  const of75 = (maxRequests: number): Shape => ({
    ...size,
    objects: 75,
    connections: CONNECTIONS_OF_75,
    maxRequests,
  });
  const of1 = (maxRequests: number): Shape => ({
    ...size,
    objects: 1,
    connections: CONNECTIONS_OF_1,
    maxRequests,
  });
  return [
    {
      name: 'ours-75',
      what: 'Penstock, 75 mixed objects per request: objects/s applied',
      measure: () => measurePipeline(ours, environment, of75(unbounded)),
    },
    {
      name: 'ours-75-identity',
      what: 'the same, while 100 identity requests a second pass',
      measure: () => measurePipeline(ours, environment, { ...of75(unbounded), withIdentity: true }),
    },
    {
      name: 'naive-75',
      what: 'naive pipeline, 75 mixed objects per request: objects/s applied',
      measure: () => measurePipeline(naive, environment, of75(size.naiveRequestsOf75)),
    },
    {
      name: 'copy',
      what: 'COPY of the same event rows, one connection: rows/s',
      measure: () => measureCopy(ours.databaseUrl, size.copiedRows),
    },
    {
      name: 'ours-1',
      what: 'Penstock, one object per request: requests/s accepted and applied',
      measure: () => measurePipeline(ours, environment, of1(unbounded)),
    },
    {
      name: 'naive-1',
      what: 'naive pipeline, one object per request: requests/s accepted and applied',
      measure: () => measurePipeline(naive, environment, of1(size.naiveRequestsOf1)),
    },
  ];
}

/** What is compared: a row over another row of the same round. */
export const ratios: readonly (readonly [row: string, over: string])[] = [
  ['ours-75', 'naive-75'],
  ['ours-1', 'naive-1'],
  ['ours-75', 'copy'],
  ['ours-75-identity', 'ours-75'],
];
