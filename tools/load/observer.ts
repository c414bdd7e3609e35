/** Observes the state of the service apart from its responses. */
export interface Observer {
  /** Source of the figures, for the report. */
  source: string;
  /**
   * Returns the number of objects that the workers have processed since the installation was created: applied
   * objects and dead letters.
   */
  applied(): Promise<number>;
  /** Returns whether the profile with this external id can be read. */
  isReadable(externalId: string): Promise<boolean>;
  /** Milliseconds between two probes. */
  probeEvery: number;
  /** Milliseconds between two reads of the applied objects, which limits the error of the applied rate. */
  readEvery: number;
  stop(): Promise<void>;
}
