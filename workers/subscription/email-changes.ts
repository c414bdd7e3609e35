import type { ClearedSpam } from '../../src/store/subscriptions/clear-spam-marks.ts';
import type { HardBounce } from '../../src/store/subscriptions/set-hard-bounces.ts';

/** What a round does to email addresses besides their states. */
export interface EmailChanges {
  /** By address, in its workspace: what was said last. */
  bounces: Map<string, HardBounce>;
  /** Addresses whose holders lose the mark as spam before anything else of the round is written. */
  clearedSpam: ClearedSpam[];
}

export function noEmailChanges(): EmailChanges {
  return { bounces: new Map(), clearedSpam: [] };
}
