/** A profile that is gone, and what has to be done for it still. */
export interface RemovedProfile {
  workspace_id: string;
  id: string;
  /** `merged`: sums that came late are brought to who took it in. `deleted`: what it did is erased. */
  fate: 'merged' | 'deleted';
}
