/** Maximum seconds that a job waits in normal operation. */
export const LATE_SECONDS = 10;

/** Seconds without progress after which an import counts as stopped. */
export const IMPORT_STOPPED_SECONDS = 3600;
