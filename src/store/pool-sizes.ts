/** Most connections of `prisma`: what is one row at a time is short, and never in the way of whole sets. */
export const ROW_CONNECTIONS = 3;

/** Connections of the retention: one holds its lease, one works. */
export const RETENTION_CONNECTIONS = 2;

/** Exports of segments that one sync process writes at the same time. */
export const EXPORTS_AT_ONCE = 2;

/** Connections of exports of segments: a snapshot for each, and two for leases and progress. */
export const EXPORT_CONNECTIONS = EXPORTS_AT_ONCE + 2;

/** Connections of the console: pages are short, and few people look at a time. */
export const BOARD_CONNECTIONS = 4;
