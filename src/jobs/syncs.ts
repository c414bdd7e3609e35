/**
 * The jobs of the queue `syncs`. They only nudge: what a run is, and whether there is one, stands in the tables.
 * Names are permanent and shapes only grow, as those of the lanes.
 */
export const SYNC_QUEUE = 'syncs';

/** `sync`: a run waits to be worked. `scheduled`: it is time for a run of an integration. */
export const syncJobs = { sync: 'sync', scheduled: 'scheduled' } as const;

/** Of a `sync` job, which goes by the run's id. */
export interface SyncJobData {
  /** Id of the run: of its row in sync_jobs. */
  job_id: string;
}

/** Of a `scheduled` job, which a job scheduler adds that goes by the integration's id. */
export interface ScheduledJobData {
  integration_id: string;
}
