import { validate as isUuid } from 'uuid';
import { type Connection, sendTogether } from '../../src/store/database.ts';
import {
  claimEnvelopes,
  cutEnvelopes,
  dropCutEnvelopes,
  type EnvelopeKey,
  readCutEnvelopes,
  releaseEnvelopes,
  SHARED,
} from '../../src/store/ledger.ts';
import { readProfileVersions } from '../../src/store/profile-versions.ts';
import { tracesOf } from './by-workspace.ts';
import type { KnownUsers, UsersOfBatch } from './known-users.ts';
import type { Delivery, Opened } from './open.ts';
import { type LeftOver, workspacesOf } from './parts.ts';
import type { Origin } from './work-item.ts';

/** Envelopes that are claimed, and what earlier parts have left of them. */
export interface Claimed {
  mine: Delivery[];
  /** Places of objects, by the envelope's id; one that was never cut is missing. */
  left: ReadonlyMap<string, ReadonlySet<number>>;
  now: string;
  /** Workspaces that have a destination of streams. */
  streamed: ReadonlySet<string>;
  /** What is known of users. */
  users: UsersOfBatch | undefined;
}

/** Whose row of the ledger an envelope has: that of its one workspace, or everybody's. */
function keyOf({ id, envelope, share }: Delivery): EnvelopeKey {
  if (share) return { id, workspaceId: share.workspaceId };
  const [first, ...more] = Array.isArray(envelope?.requests) ? envelope.requests : [];
  const workspaceId = first?.workspace_id;
  const isOne = more.every((request) => request?.workspace_id === workspaceId) && isUuid(workspaceId);
  return { id, workspaceId: isOne ? workspaceId! : SHARED };
}

/** Claims each envelope once, however often it is among those that were handed in. */
export async function claim(
  tx: Connection,
  given: Delivery[],
  users?: KnownUsers | undefined,
): Promise<Claimed> {
  const deliveries = [...new Map(given.map((delivery) => [delivery.id, delivery])).values()];
  const envelopes = deliveries.map((delivery) => ({ ...keyOf(delivery), traces: tracesOf(delivery) }));
  // Nobody has looked at the envelopes yet: what is no id has no destination.
  const workspaces = [...new Set(deliveries.flatMap(workspacesOf))].filter((id) => isUuid(id));
  const [{ claimed, now, streamed }, cut, versions] = await sendTogether(tx, [
    () => claimEnvelopes(tx, envelopes, workspaces),
    () => readCutEnvelopes(tx, envelopes),
    // Behind the claim, which may have waited for who changed them.
    () => users && readProfileVersions(tx, workspaces),
  ]);
  return {
    mine: deliveries.filter(({ id }) => claimed.has(id)),
    left: new Map(cut.map(({ id, left }) => [id, new Set(left)])),
    now,
    streamed,
    users: versions && users?.begin(versions),
  };
}

/** Leaves out what earlier parts have done. */
export function withoutDone(opened: Opened, left: Claimed['left']): Opened {
  if (left.size === 0) return opened;
  const isLeft = ({ envelope, place }: Origin) => left.get(envelope)?.has(place) ?? true;
  const items = opened.items.filter(isLeft);
  const deadLetters = opened.deadLetters
    .filter(({ origin }) => isLeft(origin))
    .map((one) => ({
      ...one,
      place: opened.items.slice(0, one.place).filter(isLeft).length,
    }));
  return { ...opened, items, deadLetters };
}

/**
 * Ends a part: gives the envelopes back of which something is left, and notes what.
 *
 * @returns ids of these envelopes
 */
export async function endPart(
  tx: Connection,
  { mine, left: before }: Claimed,
  { origins }: LeftOver,
): Promise<Set<string>> {
  const places = new Map<string, number[]>();
  for (const { envelope, place } of origins) {
    const known = places.get(envelope);
    if (known) known.push(place);
    else places.set(envelope, [place]);
  }
  const isPartDone = ({ id, envelope }: Delivery) =>
    places.has(id) && places.get(id)!.length < (envelope?.objects?.length ?? 0);
  const finished = mine.filter(({ id }) => before.has(id) && !places.has(id)).map(keyOf);
  const released = mine.filter(({ id }) => places.has(id)).map(keyOf);
  const cut = mine
    .filter(isPartDone)
    .map((delivery) => ({ ...keyOf(delivery), left: places.get(delivery.id)!.sort((a, b) => a - b) }));
  await sendTogether(tx, [
    () => finished.length > 0 && dropCutEnvelopes(tx, finished),
    () => released.length > 0 && releaseEnvelopes(tx, released),
    () => cut.length > 0 && cutEnvelopes(tx, cut),
  ]);
  return new Set(places.keys());
}
