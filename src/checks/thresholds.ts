/** Seconds for which a job waits at most while all is well. */
export const LATE_SECONDS = 10;

/** Seconds after which an import that does nothing counts as stopped. */
export const IMPORT_STOPPED_SECONDS = 3600;
