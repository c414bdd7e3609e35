import type { LaneStore, OldestEnvelope, StoredEnvelope } from './lane-store.ts';
import { SHARED, tagIn, tagOf } from './lanes.ts';

/**
 * Number of waiting envelopes of a lane among which the scheduler chooses. The sample of later envelopes has the same
 * size.
 */
const WINDOW = 4096;
const SAMPLED = 256;

/**
 * Maximum part of the envelopes of a lane that a workspace may have to be within its share. The age of the backlog of a
 * larger workspace depends on what it sends.
 */
const SHARE = 1 / 8;

/** Envelopes without a workspace's tag that are read to find their workspaces. */
const MAX_READ = 16;

/**
 * Finds the oldest envelope of the workspaces that have at most their share of a lane. Larger workspaces wait for
 * their own backlog. An envelope of several workspaces counts unless one of them has more than its share.
 *
 * @param oldest envelope of the whole lane
 * @returns undefined if each envelope that was checked belongs to a workspace with more than its share
 */
export async function oldestWithinShare(
  store: Pick<LaneStore, 'head' | 'sample' | 'read'>,
  lane: number,
  oldest: OldestEnvelope,
): Promise<OldestEnvelope | undefined> {
  const head = await store.head(lane, WINDOW);
  const ids = new Set([oldest.id, ...head]);
  const large = largeTags(ids);
  if (head.length === WINDOW) for (const { id } of (await store.sample(lane, SAMPLED)).envelopes) ids.add(id);
  let reads = 0;
  for (const id of ids) {
    const tag = tagIn(id);
    if (tag !== undefined && large.has(tag)) continue;
    if (++reads > MAX_READ) return undefined;
    const [job] = await store.read(lane, [id], 1);
    if (!job || namesAny(job, large)) continue;
    const now = oldest.timestamp + oldest.age;
    return { id, timestamp: job.timestamp, age: Math.max(0, now - job.timestamp) };
  }
  return undefined;
}

function largeTags(ids: ReadonlySet<string>): ReadonlySet<string> {
  const counts = new Map<string, number>();
  for (const id of ids) {
    const tag = tagIn(id) ?? SHARED;
    counts.set(tag, (counts.get(tag) ?? 0) + 1);
  }
  return new Set(
    [...counts].flatMap(([tag, count]) => (tag !== SHARED && count > ids.size * SHARE ? [tag] : [])),
  );
}

function namesAny({ data }: StoredEnvelope, tags: ReadonlySet<string>): boolean {
  const { requests } = data;
  return Array.isArray(requests) && requests.some(({ workspace_id }) => tags.has(tagOf(workspace_id)));
}
