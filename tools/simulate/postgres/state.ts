import { createHash } from 'node:crypto';
import type pg from 'pg';
import { NIL_UUID } from '../../../src/platform/ids.ts';
import { eraseDeletedFromLog } from '../../../src/retention/erase-log.ts';
import { createDestination } from '../../../src/store/stream-destinations.ts';
import { canonicalModel, canonicalStore } from '../../../test/model/canonical.ts';
import { IdentityModel } from '../../../test/model/identity-model.ts';
import type { Effect } from '../database.ts';
import { checkOrder, type History, isReachedByDelete, type Violation } from '../history.ts';
import type { Cluster } from './cluster.ts';
import type { Received } from './receiver.ts';

/** A workspace of a simulation. */
export interface SimulatedWorkspace {
  id: string;
  /** Id of the destination that receives its changes. */
  destination: string | undefined;
}

/** Inserts the workspaces and destinations of a simulation. */
export async function prepare(
  { control }: Cluster,
  workspaces: readonly SimulatedWorkspace[],
): Promise<void> {
  for (const { id, destination } of workspaces) {
    await control.query('insert into workspaces (id, name) values ($1, $2)', [id, id]);
    if (destination === undefined) continue;
    const made = {
      workspaceId: id,
      id: destination,
      name: 'receiver',
      kind: 'webhook',
      settings: {},
      secret: null,
    };
    await createDestination(control as unknown as pg.Pool, made);
  }
}

const workStatement = `
  select
    (select count(*) from removed_profiles)::integer as removed,
    (select count(*) from stream_destinations
      where stream_destinations.position < (
        select coalesce(max(stream_log.id), 0) from stream_log
        where stream_log.workspace_id = stream_destinations.workspace_id))::integer as behind`;

/** The remaining work: profiles to clean up, and destinations with undelivered changes. */
export interface Work {
  removed: number;
  behind: number;
}

/** Counts the profiles to clean up, and the destinations that have not received all changes. */
export async function readWork({ control }: Cluster): Promise<Work> {
  const { rows } = await control.query({ name: 'work', text: workStatement });
  return rows[0];
}

/** The requests, effects and deliveries of a simulation. */
export interface Done {
  history: History;
  effects: readonly Effect[];
  workspaces: readonly SimulatedWorkspace[];
  received: ReadonlyMap<string, readonly Received[]>;
}

/** Checks the final tables and the deliveries. @returns violations, and a hash of the final state */
export async function checkState(
  cluster: Cluster,
  done: Done,
): Promise<{ violations: Violation[]; state: string }> {
  const violations: Violation[] = [];
  const hash = createHash('sha256');
  const control = cluster.control as unknown as pg.Pool;
  for (const workspace of done.workspaces) {
    const model = modelOf(done, workspace.id);
    const expected = JSON.stringify(canonicalModel(model));
    const stored = JSON.stringify(await canonicalStore(control, workspace.id, []));
    hash.update(stored);
    if (stored !== expected)
      violations.push({
        guarantee: 'I5 profiles are those of the sequential model',
        text: `workspace ${workspace.id}: ${describeDifference(stored, expected)}`,
      });
  }
  // Workers would do this half an hour later.
  for (const { id } of done.workspaces) await eraseDeletedFromLog(control, id);
  violations.push(...(await checkRemains(cluster)), ...checkDeliveries(done));
  for (const [destination, messages] of done.received)
    hash.update(`${destination} ${messages.map(({ position }) => position).join(' ')}`);
  return { violations, state: hash.digest('hex') };
}

/** Applies the objects that took effect to the model, in the order of their effects. */
function modelOf({ history, effects }: Done, workspaceId: string): IdentityModel {
  const model = new IdentityModel();
  for (const { objectId, kind } of effects) {
    const object = history.objects.get(objectId);
    if (kind !== 'applied' || !object?.element || object.workspaceId !== workspaceId) continue;
    model.apply(object.element.kind, object.element.wire);
  }
  return model;
}

/** Returns the first difference of two JSON texts, with the characters around it. */
function describeDifference(stored: string, expected: string): string {
  let index = 0;
  while (stored[index] === expected[index]) index++;
  const around = (text: string) => text.slice(Math.max(0, index - 200), index + 100);
  return `stored …${around(stored)}…\n  expected …${around(expected)}…`;
}

const OWNED = [
  ...['events', 'purchases', 'event_summaries', 'purchase_summaries', 'user_aliases', 'push_tokens'],
  ...['deprecated_external_ids'],
];

const isMissing = (workspace: string, profile: string) => `
  not exists (select from profiles where profiles.workspace_id = ${workspace} and profiles.id = ${profile})
  and not exists (
    select from merged_profiles
    where merged_profiles.workspace_id = ${workspace} and merged_profiles.profile_id = ${profile})`;

const remainsStatement = [
  ...OWNED.map(
    (table) => `
      select '${table}' as name, count(*)::integer as count from ${table} as own
      where ${isMissing('own.workspace_id', 'own.profile_id')}`,
  ),
  `select 'merged_profiles', count(*)::integer from merged_profiles as own
    where ${isMissing('own.workspace_id', 'own.kept_id')}`,
  `select 'stream_log', count(*)::integer
    from stream_log as own,
      unnest(own.profile_ids, regexp_split_to_array(own.kinds, '')) with ordinality as entry (profile, kind, number)
    where entry.kind <> 'i' and entry.profile <> '${NIL_UUID}'
      and own.details ->> (entry.number - 1)::text <> '{}'
      and ${isMissing('own.workspace_id', 'entry.profile')}`,
].join(' union all ');

/** Checks that the tables contain no rows of deleted users. */
async function checkRemains({ control }: Cluster): Promise<Violation[]> {
  const { rows } = await control.query<{ name: string; count: number }>({
    name: 'remains',
    text: remainsStatement,
  });
  return rows.flatMap(({ name, count }): Violation[] =>
    count === 0
      ? []
      : [
          {
            guarantee: 'nothing is left of a deleted user',
            text: `${count} rows of ${name} have no profile`,
          },
        ],
  );
}

/**
 * Checks the messages that arrived at receivers. A new message must have a higher position than all earlier messages. A
 * repeated message may arrive at any time, with the same id. Every event and purchase must be delivered, unless a delete may
 * have removed it. The order of the messages for each user must be an order that `checkOrder` accepts.
 */
function checkDeliveries({ history, effects, workspaces, received }: Done): Violation[] {
  const violations: Violation[] = [];
  for (const { id: workspaceId, destination } of workspaces) {
    if (destination === undefined) continue;
    const messages = received.get(destination) ?? [];
    const firsts = new Map<string, Received>();
    let latest = '';
    for (const message of messages) {
      if (firsts.has(message.position)) {
        if (firsts.get(message.position)!.id === message.id) continue;
        violations.push(outOfOrder(`${message.position} was delivered with two ids`));
      }
      if (message.position < latest)
        violations.push(outOfOrder(`${message.position} was delivered for the first time after ${latest}`));
      firsts.set(message.position, message);
      latest = message.position;
    }
    const ids = new Set(messages.map(({ id }) => id));
    const mayBeGone = isReachedByDelete(history, workspaceId);
    for (const { objectId, kind } of effects) {
      const object = history.objects.get(objectId);
      if (kind !== 'applied' || !object?.element || object.workspaceId !== workspaceId) continue;
      const isActivity = object.element.kind === 'events' || object.element.kind === 'purchases';
      if (isActivity && !ids.has(objectId) && !mayBeGone(object))
        violations.push({
          guarantee: 'streams are complete',
          text: `${object.element.kind} ${objectId} was not delivered to ${destination}`,
        });
    }
    const delivered = [...firsts.values()].map(({ id }) => ({ objectId: id, kind: 'applied' as const }));
    for (const { text } of checkOrder(history, delivered))
      violations.push({ guarantee: 'streams are in order', text });
  }
  return violations;
}

const outOfOrder = (text: string): Violation => ({ guarantee: 'streams are in order', text });
