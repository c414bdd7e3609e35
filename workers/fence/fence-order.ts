import type { Fence } from '../../src/jobs/envelope.ts';
import { SHARED, tagOf } from '../../src/queue/lanes.ts';
import type { LaneWait } from './fences.ts';

/** An entry of a fence in a lane. */
export interface FenceEntry {
  fence: Fence;
  /** Whether the entry has the objects of the fence: it is in the first lane. The other entries are marks. */
  isCarrier: boolean;
  /** The workspace that waits at the fence; undefined for a fence of an earlier release, at which all wait. */
  workspaceId: string | undefined;
  /** Whether the lane need not wait: the other lanes have arrived, or, for a mark, the fence has been applied. */
  isOpen: boolean;
}

/** A waiting envelope, as far as it matters for fences. */
export interface Ordered {
  tag: string | undefined;
  parts?: ReadonlyMap<string, unknown> | undefined;
  isBarrier?: boolean;
  fence?: FenceEntry;
}

const NO_LANES: readonly number[] = [];

/**
 * Maximum number of fences of one workspace at which a lane waits at once: about as many as one transaction applies. The
 * fences of other workspaces do not count, so that a lane arrives at theirs too.
 */
const MAX_WAITS = 256;

/**
 * Finds the fences at which a lane waits, in one snapshot of the lane.
 *
 * A lane has arrived at a fence when the fence is the first entry of its workspace in the lane. Earlier fences of the
 * workspace do not matter if they are in the first lane of the later fence too: that lane applies the later fence only
 * after the earlier ones. So the fences of a busy workspace can be applied in one transaction.
 */
export function fencesIn(lane: readonly Ordered[]): LaneWait[] {
  const waits: LaneWait[] = [];
  /** Number of waits by workspace. */
  const counts = new Map<string, number>();
  /**
   * Lanes that all earlier fences of a workspace have, by workspace; none if an earlier envelope has other objects of
   * it. Absent if the workspace has no earlier envelope.
   */
  const common = new Map<string, readonly number[]>();
  /** Tags of earlier envelopes that are not read yet. */
  const unread = new Set<string>();
  for (const [index, { tag, parts, isBarrier, fence: entry }] of lane.entries()) {
    if (isBarrier) break;
    if (entry && entry.workspaceId === undefined) {
      const { fence, isOpen } = entry;
      waits.push({ fence, isFirst: index === 0 });
      if (!isOpen) break;
    } else if (entry) {
      const { fence, isCarrier, workspaceId } = entry as FenceEntry & { workspaceId: string };
      const lanes = common.get(workspaceId);
      const isFirst = !unread.has(tagOf(workspaceId)) && (!lanes || lanes.includes(fence.lanes[0]!));
      const count = counts.get(workspaceId) ?? 0;
      if ((isCarrier || isFirst) && count < MAX_WAITS) {
        waits.push({ fence, isFirst });
        counts.set(workspaceId, count + 1);
      }
      common.set(workspaceId, lanes?.filter((one) => fence.lanes.includes(one)) ?? fence.lanes);
      continue;
    }
    if (parts) for (const workspaceId of parts.keys()) common.set(workspaceId, NO_LANES);
    else if (entry) continue;
    else if (tag === undefined || tag === SHARED) break;
    else unread.add(tag);
  }
  return waits;
}
