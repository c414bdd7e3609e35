import { NIL } from 'uuid';
import { newId } from '../../src/platform/ids.ts';
import type { Json } from '../../src/profile/json.ts';
import type { StreamEntry } from '../../src/store/stream-log.ts';
import type { RecordedState } from '../../src/store/subscription-history.ts';
import type { Changes, IdentityChanges } from './changes.ts';
import type { LoadedProfile } from './loaded-profile.ts';
import type { WorkItem } from './work-item.ts';

/** A round that was written. */
export interface Written {
  changes: Changes;
  states: RecordedState[];
  /** Its objects. */
  round: WorkItem[];
}

type Placed = { entry: StreamEntry; place: number };

/**
 * What a round has done, for the log of streams, in the order of its objects. What several objects make of one user's
 * attributes in one round is one entry, at the place of the last of them. Identity comes last: what it touches is
 * sealed for the rest of the round.
 *
 * @param streamed workspaces that have a destination
 */
export function toStreamEntries(written: Written, streamed: ReadonlySet<string>): StreamEntry[] {
  const { changes, states, round } = written;
  const placed: Placed[] = [];
  const put = (entry: StreamEntry, place: number) => {
    if (streamed.has(entry.workspaceId)) placed.push({ entry, place });
  };
  for (const { workspace_id, alias_label, alias_name, profile_id } of changes.profiles.newAliases)
    put(identity(workspace_id, profile_id, { change: 'alias_added', alias_label, alias_name }), -1);
  for (const { workspace_id: workspaceId, profile_id: profileId, id, ordinal } of changes.events)
    put({ workspaceId, kind: 'e', profileId, id }, ordinal);
  for (const { workspace_id: workspaceId, profile_id: profileId, id, ordinal } of changes.purchases)
    put({ workspaceId, kind: 'p', profileId, id }, ordinal);
  for (const profile of changes.profiles.all()) {
    const { workspaceId, id: profileId, changedAt } = profile;
    if (changedAt < 0 || !streamed.has(workspaceId)) continue;
    const detail = attributesOf(profile);
    if (detail) put({ workspaceId, kind: 'a', profileId, id: newId(), detail }, changedAt);
  }
  if (states.length > 0) {
    const places = new Map(round.map(({ requestId, ordinal }) => [requestId, ordinal]));
    for (const state of states) put(subscription(state), places.get(state.request_id) ?? Number.MAX_VALUE);
  }
  placed.sort((one, other) => one.place - other.place);
  const entries = placed.map(({ entry }) => entry);
  for (const entry of identityEntries(changes.identity))
    if (streamed.has(entry.workspaceId)) entries.push(entry);
  return entries;
}

/** One list for each workspace. */
export function byWorkspace(entries: StreamEntry[]): StreamEntry[][] {
  const lists = new Map<string, StreamEntry[]>();
  for (const entry of entries) {
    const list = lists.get(entry.workspaceId);
    if (list) list.push(entry);
    else lists.set(entry.workspaceId, [entry]);
  }
  return [...lists.values()];
}

function attributesOf(profile: LoadedProfile): Json | undefined {
  const { set, unset } = profile.custom.written();
  const columns: [string, unknown][] = profile.changesColumns ? Object.entries(profile.columns) : [];
  // What is made of the number, and no attribute.
  const standard = columns.filter(([name, value]) => name !== 'phone_valid' && value !== undefined);
  const attributes = Object.fromEntries(standard) as Record<string, Json>;
  if (standard.length === 0 && unset.length === 0 && Object.keys(set).length === 0) return undefined;
  return { attributes, custom_attributes: set, removed_custom_attributes: unset };
}

function subscription(state: RecordedState): StreamEntry {
  const { workspace_id: workspaceId, subject_kind, subject, subscription, from_state, to_state } = state;
  return {
    workspaceId,
    kind: 's',
    profileId: subject_kind === 'profile' ? subject : NIL,
    id: newId(),
    detail: {
      ...(subject_kind !== 'profile' && { [subject_kind]: subject }),
      ...{ subscription, from: from_state, to: to_state, request_id: state.request_id },
    },
  };
}

function identity(workspaceId: string, profileId: string, detail: Json): StreamEntry {
  return { workspaceId, kind: 'i', profileId, id: newId(), detail };
}

function* identityEntries(changes: IdentityChanges): Generator<StreamEntry> {
  for (const row of changes.renamedAliases) {
    const { workspace_id, profile_id, alias_label, old_alias_name, new_alias_name } = row;
    const detail = { change: 'alias_renamed', alias_label, old_alias_name, new_alias_name };
    yield identity(workspace_id, profile_id, detail);
  }
  const previous = new Map(changes.deprecated.map((row) => [row.profile_id, row.external_id]));
  for (const { workspace_id, id, external_id } of changes.externalIds)
    yield identity(workspace_id, id, {
      ...{ change: 'external_id_set', external_id, previous_external_id: previous.get(id) ?? null },
    });
  for (const { workspace_id, external_id, profile_id } of changes.undeprecated)
    yield identity(workspace_id, profile_id, { change: 'external_id_removed', external_id });
  for (const { workspace_id, merged_id, kept_id, request_id } of changes.merges) {
    yield identity(workspace_id, merged_id, { change: 'merged_into', into: kept_id, request_id });
    yield identity(workspace_id, kept_id, { change: 'merged', from: merged_id, request_id });
  }
  for (const { workspaceId, id, externalId: external_id } of changes.deleted)
    yield identity(workspaceId, id, { change: 'deleted', external_id });
}
