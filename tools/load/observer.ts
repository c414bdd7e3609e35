/** What a run can see of the service behind its answers. */
export interface Observer {
  /** Where the figures come from, for the report. */
  source: string;
  /** Objects that the workers are done with since the installation was made: applied, or dead letters. */
  applied(): Promise<number>;
  /** Whether the profile with this external id can be read. */
  isReadable(externalId: string): Promise<boolean>;
  /** Milliseconds between two probes. */
  probeEvery: number;
  /** Milliseconds between two looks at what is applied: bounds the error of the applied rate. */
  lookEvery: number;
  stop(): Promise<void>;
}
