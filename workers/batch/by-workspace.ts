import { createHash } from 'node:crypto';
import { NIL } from 'uuid';
import { type Envelope, keysOf, requestPlaces } from '../../src/jobs/envelope.ts';
import { encodeTraces } from '../../src/jobs/traces.ts';
import { SMALL_ROUND } from './apply.ts';
import type { BatchResult } from './failures.ts';
import { type Delivery, ownersOf } from './open.ts';

/**
 * On a distributed Postgres a transaction is about one workspace, and an envelope may have objects of several. Then
 * each has its share of it, with a ledger row of its own. A row by the envelope's id follows behind all of them. So it
 * says what it says on one Postgres: all of the envelope has taken effect.
 */
export interface Share {
  workspaceId: string;
  deliveries: Delivery[];
}

/** Characters of an id that stay: its time is among them, and where the rest begins. */
const KEPT = 24;
const OWN = 12;

/** The key of a share. It has its envelope's time, by which the ledger is read and forgotten. */
function shareId(id: string, workspaceId: string): string {
  return `${id.slice(0, KEPT)}${createHash('sha256').update(`${id} ${workspaceId}`).digest('hex').slice(0, OWN)}`;
}

/**
 * Shares in the order in which they have their turn.
 *
 * @param late workspaces whose time was over before: they go behind the others, first come, first served
 */
export function sharesOf(deliveries: readonly Delivery[], late: ReadonlySet<string> = new Set()): Share[] {
  const shares = new Map<string, Delivery[]>();
  for (const delivery of deliveries) {
    const owners = ownersOf(delivery.envelope);
    for (const workspaceId of owners) {
      const id = owners.size === 1 ? delivery.id : shareId(delivery.id, workspaceId);
      const share = { ...delivery, id, share: { workspaceId, of: delivery.id } };
      const others = shares.get(workspaceId);
      if (others) others.push(share);
      else shares.set(workspaceId, [share]);
    }
  }
  const places = new Map([...late].map((workspaceId, place) => [workspaceId, place]));
  return [...shares]
    .map(([workspaceId, own]) => ({ workspaceId, deliveries: own, place: places.get(workspaceId) ?? -1 }))
    .sort((one, other) => one.place - other.place)
    .map(({ workspaceId, deliveries: own }) => ({ workspaceId, deliveries: own }));
}

/** What became of a share whose turn is in another part. */
export function untouched({ workspaceId, deliveries }: Share): BatchResult {
  const nothing = { objects: 0, deadLetters: [], leavesTombstones: false, seconds: 0 };
  return {
    ...{ kind: 'applied', ...nothing },
    left: {
      ...{ envelopes: new Set(deliveries.map(({ id }) => id)), workspaces: new Set([workspaceId]) },
      ...{ over: new Set<string>(), size: SMALL_ROUND },
    },
  };
}

/** Envelopes of several of which nothing is left. */
export function endedOf(deliveries: readonly Delivery[], result: BatchResult): string[] {
  const left = result.kind === 'applied' ? result.left?.envelopes : undefined;
  return deliveries
    .filter(({ id, envelope }) => !left?.has(id) && ownersOf(envelope).size > 1)
    .map(({ id }) => id);
}

/** What the ledger keeps of an envelope, or of a share of one. */
export function tracesOf({ envelope, share }: Delivery): Buffer | undefined {
  if (!share || ownersOf(envelope).size <= 1) return encodeTraces(envelope);
  return encodeTraces(onlyOf(envelope, share.workspaceId));
}

function onlyOf(envelope: Envelope, workspaceId: string): Envelope {
  const places = requestPlaces(envelope);
  const keys = keysOf(envelope.requests);
  const own = envelope.requests
    .map((request, place) => ({ request, place, key_id: keys[place] ?? null }))
    .filter(({ request }) => (request?.workspace_id ?? NIL) === workspaceId);
  return {
    requests: own.map(({ request, key_id }) => ({ ...request, key_id })),
    objects: own.flatMap(({ place }) => envelope.objects.filter((_, index) => places[index] === place)),
  };
}

/** What became of a batch, of what became of its shares. */
export function together(deliveries: readonly Delivery[], results: readonly BatchResult[]): BatchResult {
  const applied = results.flatMap((result) => (result.kind === 'applied' ? [result] : []));
  if (applied.length === 0) return { kind: 'skipped' };
  const left = applied.flatMap((result) => result.left ?? []);
  const of = new Map(deliveries.map(({ id, share }) => [id, share?.of ?? id]));
  return {
    kind: 'applied',
    objects: applied.reduce((sum, { objects }) => sum + objects, 0),
    deadLetters: applied.flatMap(({ deadLetters }) => deadLetters),
    leavesTombstones: applied.some(({ leavesTombstones }) => leavesTombstones),
    seconds: applied.reduce((sum, { seconds }) => sum + seconds, 0),
    ...(left.length > 0 && {
      left: {
        envelopes: new Set(left.flatMap(({ envelopes }) => [...envelopes].map((id) => of.get(id) ?? id))),
        workspaces: new Set(left.flatMap(({ workspaces }) => [...workspaces])),
        over: new Set(left.flatMap(({ over }) => [...over])),
        size: Math.max(...left.map(({ size }) => size)),
      },
    }),
  };
}
