import { within } from '../../src/platform/lifecycle.ts';
import { type HandedIn, lanesOf } from './parts.ts';

/** Milliseconds for which the next part waits for what lanes hand in. */
const PATIENCE_MS = 500;

/** A lane, which hears of what becomes of its transactions. */
export interface Follower {
  /**
   * A batch of it was cut. It may hand in what waits behind it: others have their turn meanwhile.
   *
   * @param pending ids of the lane's envelopes that are not applied yet
   */
  onCut(pending: ReadonlySet<string>): Promise<void>;
  /** Others overtake a transaction of it: smaller ones let them pass sooner. */
  onOvertaken?(): void;
}

/** The lanes that follow a coalescer. */
export function createFollowers() {
  const followers = new Map<number, Follower>();

  return {
    follow(lane: number, follower: Follower): void {
      followers.set(lane, follower);
    },

    /** Lets the lanes hand in what waits behind these, of all that is `held`. */
    async tellCut(left: HandedIn[], held: HandedIn[]): Promise<void> {
      const cut = new Set(left.flatMap(lanesOf));
      const hearings = [...cut].map(async (lane) => {
        const pending = held.flatMap(({ deliveries }) => deliveries.filter((one) => one.lane === lane));
        await followers.get(lane)?.onCut(new Set(pending.map(({ id }) => id)));
      });
      await within(PATIENCE_MS, Promise.all(hearings)).catch(() => {});
    },

    tellOvertaken(lanes: Iterable<number>): void {
      for (const lane of lanes) followers.get(lane)?.onOvertaken?.();
    },
  };
}
