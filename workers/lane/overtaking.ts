import type { LaneStore, Lease } from '../../src/queue/lane-store.ts';
import { SHARED, tagIn, tagOf } from '../../src/queue/lanes.ts';
import { NEIGHBOURS_MS } from '../../src/queue/turns.ts';

import { versionOf, type WireEnvelope } from '../../src/queue/wire.ts';
import { LARGE } from '../batch/handed-in.ts';
import { type Delivery, ledgerKey, workspacesOf } from '../batch/open.ts';
import { sizeOf, type WaitingEnvelope } from './prefetch.ts';

/** Jobs of a lane whose ids are looked at: what stands behind as many waits until there are fewer. */
const MOST_JOBS = 4096;

/** Envelopes that a look chooses among, and those of one workspace; so many are read at once, since one may have 4 MB. */
const MOST_CHOSEN = 32;
const MOST_OF_ONE = 8;
const READ_AT_ONCE = 8;

/** As much as is enough for a turn: a part of what is enough for a transaction. */
const ENOUGH = 1 / 4;

/**
 * A lane's turns: while it works on envelopes of one workspace, the others have their turn beside it, however much of
 * that workspace stands in front. What one workspace has in a lane keeps its order, and workspaces have none among each
 * other. Ids tell whose an envelope is (src/queue/lanes.ts), so that nothing has to be read of what is passed over.
 *
 * @param reads latest version of envelopes that is applied
 */
export function createOvertaking(laneStore: Pick<LaneStore, 'window' | 'read'>, reads: number) {
  /** Envelopes that have to wait for their place: their turn took too long, or failed. */
  const inPlace = new Set<string>();

  /**
   * What may be applied beside `inHand`, in the order of the lane: the first envelopes of workspaces that have nothing in
   * hand. They still wait in the lane.
   *
   * @param lease once it is lost nothing is found: what its next holder has in work waits no longer
   * @param inHand everything of the lane that is being applied
   * @param done ids of jobs that have taken effect, and may wait in the lane for a moment longer
   */
  async function find(
    lease: Lease,
    inHand: readonly Delivery[],
    done: ReadonlySet<string> = new Set(),
  ): Promise<WaitingEnvelope[]> {
    if (!inHand.some(({ id }) => isOfOne(id))) return [];
    const held = new Set([...inHand.map(({ id }) => id), ...done]);
    const blocked = new Set(inHand.flatMap(workspacesOf).map(tagOf));
    const ids = await laneStore.window(lease, MOST_JOBS);
    if (!ids) return [];
    const { candidates, leftOut } = candidatesIn(ids, held, blocked);
    const found: WaitingEnvelope[] = [];
    let enough = ENOUGH;
    for (let from = 0; from < candidates.length && enough > 0; from += READ_AT_ONCE) {
      const jobs = await laneStore.read(lease.lane, candidates.slice(from, from + READ_AT_ONCE));
      for (const [index, one] of jobs.entries()) {
        const place = from + index;
        const tags = one && tagsOf(one.data, reads);
        // What is gone is being applied by somebody else, and what nobody knows may be anybody's.
        if (!tags || isOther(candidates[place]!, tags)) return found;
        const isBehind = (tag: string) => blocked.has(tag) || (leftOut.get(tag) ?? place) < place;
        if (inPlace.has(one.id) || tags.some(isBehind)) {
          for (const tag of tags) blocked.add(tag);
          continue;
        }
        const size = sizeOf(one.data, one.characters);
        found.push({ id: one.id, envelope: one.data, size });
        enough -= size;
        if (enough <= 0) break;
      }
    }
    return found;
  }

  /**
   * Ids of envelopes that may be applied, as far as ids tell, up to the first that nothing may overtake. `leftOut` has
   * the workspaces of which some were passed over, with the place of the last candidate before that. A shared envelope
   * behind it may be of such a workspace, too.
   */
  function candidatesIn(
    ids: string[],
    held: ReadonlySet<string>,
    blocked: ReadonlySet<string>,
  ): { candidates: string[]; leftOut: Map<string, number> } {
    const candidates: string[] = [];
    const leftOut = new Map<string, number>();
    const counts = new Map<string, number>();
    for (const id of ids) {
      if (held.has(id) || held.has(ledgerKey(id))) continue;
      const tag = tagIn(id);
      if (tag === undefined) break;
      if (tag !== SHARED) {
        const count = counts.get(tag) ?? 0;
        if (count === MOST_OF_ONE && !leftOut.has(tag)) leftOut.set(tag, candidates.length - 1);
        if (blocked.has(tag) || count === MOST_OF_ONE) continue;
        counts.set(tag, count + 1);
      }
      candidates.push(id);
      if (candidates.length === MOST_CHOSEN) break;
    }
    return { candidates, leftOut };
  }

  /**
   * Parts what a lane hands out and what was seen behind it where one workspace has much of it. That workspace and the
   * others are not to wait for each other.
   *
   * @returns what is applied with the head, and what may be applied beside; the rest waits
   */
  function part(head: Delivery, following: WaitingEnvelope[]): Parted {
    const flood = floodIn([head, ...following]);
    if (flood === undefined) return { along: following, beside: [] };
    const ofFlood = (tags: string[]) => tags.includes(flood);
    const alone = (tags: string[]) => tags.length === 1 && ofFlood(tags);
    const others = pick(following, (tags) => !ofFlood(tags));
    return tagIn(head.id) === flood
      ? { along: pick(following, alone), beside: others }
      : { along: others, beside: [] };
  }

  /** Those of some workspaces, as far as they may be applied before the others. */
  function pick(envelopes: WaitingEnvelope[], belongs: (tags: string[]) => boolean): WaitingEnvelope[] {
    const blocked = new Set<string>();
    const picked: WaitingEnvelope[] = [];
    for (const one of envelopes) {
      const tags = tagsOf(one.envelope, reads);
      if (!tags) break;
      if (belongs(tags) && !inPlace.has(one.id) && !tags.some((tag) => blocked.has(tag))) picked.push(one);
      else for (const tag of tags) blocked.add(tag);
    }
    return picked;
  }

  return {
    find,
    part,
    /** These have not taken effect: they wait for their place in the lane. */
    leave(ids: string[]): void {
      if (inPlace.size > MOST_JOBS) inPlace.clear();
      for (const id of ids) inPlace.add(id);
    },
  };
}

interface Parted {
  along: WaitingEnvelope[];
  beside: WaitingEnvelope[];
}

/** The tag of a workspace that has much of these, if others have some as well. */
function floodIn(envelopes: { id: string; envelope: { objects: unknown } }[]): string | undefined {
  const counts = new Map<string, number>();
  for (const { id, envelope } of envelopes) {
    const tag = tagIn(id);
    // Of what does not tell whose it is nobody knows what may pass it.
    if (tag === undefined) return undefined;
    const count = Array.isArray(envelope?.objects) ? envelope.objects.length : 0;
    counts.set(tag, (counts.get(tag) ?? 0) + count);
  }
  if (counts.size < 2) return undefined;
  const [largest] = [...counts].filter(([tag]) => tag !== SHARED).sort(([, one], [, other]) => other - one);
  return largest && largest[1] >= LARGE ? largest[0] : undefined;
}

/** Whether an envelope is known to be of one workspace. */
function isOfOne(id: string): boolean {
  const tag = tagIn(id);
  return tag !== undefined && tag !== SHARED;
}

/** Of the workspaces of an envelope; undefined of one that a worker of this release does not apply out of its place. */
function tagsOf(data: WireEnvelope, reads: number): string[] | undefined {
  if (!Array.isArray(data?.objects) || !Array.isArray(data.requests)) return undefined;
  if (data.fence !== undefined || data.replay || versionOf(data) > reads) return undefined;
  return [...new Set(data.requests.map((request) => tagOf(String(request?.workspace_id))))];
}

/** Whether an envelope is not of the workspace that its id tells. */
function isOther(id: string, tags: string[]): boolean {
  const tag = tagIn(id);
  return tag !== SHARED && (tags.length !== 1 || tags[0] !== tag);
}

/** Milliseconds before a look; each that finds nobody doubles the pause. */
const FIRST_PAUSE_MS = 3;

/** Where one workspace has sent alone for long a look is in vain, and costs the lane a round trip. */
const LONGEST_PAUSE_MS = 96;

/** The longest pause while others send as well: they wait for half of it, on an average. */
const LONGEST_AMONG_NEIGHBOURS_MS = 24;

/**
 * When a lane looks who may overtake what it works. The pause goes on over the ends of transactions: however short those
 * are, a look is due after it.
 */
export function createLooks(clock: () => number = () => performance.now()) {
  let pause = FIRST_PAUSE_MS;
  let lookedAt = Number.NEGATIVE_INFINITY;
  let foundAt = Number.NEGATIVE_INFINITY;

  return {
    /** Milliseconds until the next one. */
    wait: (): number => Math.max(0, lookedAt + pause - clock()),

    /** One has ended. */
    note(hasFound: boolean): void {
      lookedAt = clock();
      if (hasFound) foundAt = lookedAt;
      const longest = lookedAt - foundAt < NEIGHBOURS_MS ? LONGEST_AMONG_NEIGHBOURS_MS : LONGEST_PAUSE_MS;
      pause = hasFound ? FIRST_PAUSE_MS : Math.min(pause * 2, longest);
    },
  };
}
