import type { LaneEntry } from './lanes.ts';

/**
 * Entries that were packed when there may have been more lanes. What would stand in a lane that nobody works any more
 * goes to the first one, as if there had been no others; envelopes keep their ids, which the ledger knows them by.
 */
export function inPresentLanes(entries: LaneEntry[], lanes: number): LaneEntry[] {
  const isPresent = ({ lane, envelope: { fence } }: LaneEntry) =>
    lane < lanes && (fence?.lanes ?? []).every((other) => other < lanes);
  if (entries.every(isPresent)) return entries;
  return entries
    .filter(({ envelope }) => envelope.objects.length > 0)
    .map(({ id, envelope: { fence: _, ...envelope } }) => ({ lane: 0, id, envelope }));
}
