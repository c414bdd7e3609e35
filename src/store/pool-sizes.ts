/**
 * Maximum number of connections of `prisma`. Its statements read or write one row, so they are short and
 * leave the other connections to set-based statements.
 */
export const ROW_CONNECTIONS = 3;

/** Connections of a retention run: one holds its lock, and one works. */
export const RETENTION_CONNECTIONS = 2;

/** Segment exports that one sync process writes at the same time. */
export const EXPORTS_AT_ONCE = 2;

/** Connections of segment exports: a snapshot for each, and two for leases and progress. */
export const EXPORT_CONNECTIONS = EXPORTS_AT_ONCE + 2;

/** Connections of the console: pages are short, and few users view them at the same time. */
export const BOARD_CONNECTIONS = 4;
