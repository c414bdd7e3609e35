/** Amounts of a measurement. */
export interface Size {
  users: number;
  /** Seconds of one measurement. */
  seconds: number;
  /** Number of requests for the naive pipeline, which accepts much faster than it applies. */
  naiveRequestsOf75: number;
  naiveRequestsOf1: number;
  copiedRows: number;
  /** Requests of 50 identity operations. */
  identityRequests: number;
  /** Rows of a table that is synced. */
  syncedRows: number;
  /** Numbers of events of the users that are merged, with one merge each. */
  mergedEvents: number[];
  /** Numbers of custom attributes of the profiles that attributes are merged into. */
  attributes: number[];
  /** Number of profiles for each number of attributes. */
  attributeProfiles: number;
  /** Approximate bytes of events that wait while the memory of the queue is measured. */
  waitingBytes: number;
  /** Small envelopes that wait for a worker. */
  waitingEnvelopes: number;
  /** Number of workspaces that send concurrently, and users of each. */
  tenants: number;
  usersOfTenant: number;
}

/**
 * @param seconds length of one measurement; below 3 it only shows that the bench runs
 * @param syncedRows rows of a sync; by default proportional to the seconds
 */
export function sizeOf(seconds: number, syncedRows?: number): Size {
  const real = seconds >= 3;
  return {
    users: real ? 20_000 : 1000,
    seconds,
    naiveRequestsOf75: Math.ceil(15 * seconds),
    naiveRequestsOf1: Math.ceil(700 * seconds),
    copiedRows: Math.ceil(8 * seconds) * 10_000,
    identityRequests: Math.ceil(25 * seconds),
    syncedRows: syncedRows ?? Math.ceil(10 * seconds) * 1000,
    mergedEvents: seconds > 3 ? [1, 1000, 100_000, 1_000_000] : [1, 1000, 10_000],
    attributes: [10, 100, 400],
    attributeProfiles: real ? 20_000 : 500,
    waitingBytes: real ? 20_000_000 : 2_000_000,
    waitingEnvelopes: real ? 3000 : 300,
    tenants: real ? 1000 : 20,
    usersOfTenant: 200,
  };
}

/**
 * Concurrent requests: enough that the pipelines are never idle, and few enough that requests do not time
 * out.
 */
export const CONNECTIONS_OF_75 = 32;
export const CONNECTIONS_OF_1 = 256;
