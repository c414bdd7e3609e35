/** How much is measured at a time. */
export interface Size {
  users: number;
  /** Length of one measurement. */
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
  /** Custom attributes of the profiles that attributes are merged into. */
  attributes: number[];
  /** Profiles of each of those sizes. */
  attributeProfiles: number;
  /** Bytes of events that wait while the memory of the queue is looked at, about. */
  waitingBytes: number;
  /** Small envelopes that wait for a worker. */
  waitingEnvelopes: number;
  /** Workspaces that send side by side, and users of each. */
  tenants: number;
  usersOfTenant: number;
}

/**
 * @param seconds length of one measurement; under 3 it only shows that the bench runs
 * @param syncedRows of a sync, if not as many as go with the seconds
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

/** Requests on their way at once: enough that the pipelines are never idle, few enough that nothing times out. */
export const CONNECTIONS_OF_75 = 32;
export const CONNECTIONS_OF_1 = 256;
