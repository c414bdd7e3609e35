import { NIL_UUID } from '../../src/platform/ids.ts';
import { type Json, JsonText } from '../../src/profile/json.ts';
import type { EventRow } from '../../src/store/events.ts';
import type { PurchaseRow } from '../../src/store/purchases.ts';
import { StreamEntries, type StreamEntry } from '../../src/store/stream-log.ts';
import type { RecordedState } from '../../src/store/subscription-history.ts';
import type { Changes, IdentityChanges } from './changes.ts';
import type { LoadedProfile } from './loaded-profile.ts';
import type { Profiles } from './profiles.ts';
import type { WorkItem } from './work-item.ts';
import type { SentRound } from './write.ts';

/** A round that is written. */
export interface Written extends SentRound {
  changes: Changes;
  /** Objects of the round. */
  round: WorkItem[];
}

/**
 * Returns the changes of a round as entries of the stream log, in the order of its objects. All attribute changes of
 * one user in a round form one entry, at the place of the last of them. Identity entries come last, because the
 * profiles that they concern are sealed for the rest of the round.
 *
 * @param streamed workspaces that have a stream destination
 */
export function toStreamEntries(
  written: Written & { states: RecordedState[] },
  streamed: ReadonlySet<string>,
): StreamEntries[] {
  const { changes, states, events, purchases, round } = written;
  const logs = new Logs(streamed);
  for (const { workspaceId, profileId, aliasLabel, aliasName } of changes.profiles.newAliases) {
    const detail = { change: 'alias_added', alias_label: aliasLabel, alias_name: aliasName };
    logs.add(identity(workspaceId, profileId, detail));
  }
  inOrder([
    {
      rows: changes.events,
      positionOf: ({ ordinal }) => ordinal,
      put: ({ workspaceId }, index) => logs.of(workspaceId)?.addActivity('e', events!, index),
    } satisfies Source<EventRow>,
    {
      rows: changes.purchases,
      positionOf: ({ ordinal }) => ordinal,
      put: ({ workspaceId }, index) => logs.of(workspaceId)?.addActivity('p', purchases!, index),
    } satisfies Source<PurchaseRow>,
    attributesOf(changes.profiles, logs),
    subscriptionsOf(states, round, logs),
  ]);
  for (const entry of identityEntries(changes.identity)) logs.add(entry);
  return logs.all();
}

/** Joins the entries of several rounds, in order, into one list per workspace. */
export function joinEntries(rounds: readonly StreamEntries[][]): StreamEntries[] {
  const filled = rounds.filter((lists) => lists.length > 0);
  if (filled.length <= 1) return filled[0] ?? [];
  const workspaces = new Map<string, StreamEntries[]>();
  for (const list of filled.flat()) {
    const others = workspaces.get(list.workspaceId);
    if (others) others.push(list);
    else workspaces.set(list.workspaceId, [list]);
  }
  return [...workspaces.values()].map((lists) => StreamEntries.joined(lists));
}

/** Entries of a round, by workspace. */
class Logs {
  readonly #lists = new Map<string, StreamEntries>();
  /** Cache of the last list: most rounds concern one workspace, or have the objects of each workspace in a row. */
  #last: StreamEntries | undefined;

  readonly streamed: ReadonlySet<string>;

  constructor(streamed: ReadonlySet<string>) {
    this.streamed = streamed;
  }

  /** Returns the list of a workspace; undefined without a stream destination. */
  of(workspaceId: string): StreamEntries | undefined {
    if (this.#last?.workspaceId === workspaceId) return this.#last;
    if (!this.streamed.has(workspaceId)) return undefined;
    const list = this.#lists.get(workspaceId) ?? new StreamEntries(workspaceId);
    this.#lists.set(workspaceId, list);
    this.#last = list;
    return list;
  }

  add(entry: StreamEntry): void {
    this.of(entry.workspaceId)?.add(entry);
  }

  all(): StreamEntries[] {
    return [...this.#lists.values()];
  }
}

/** Rows that are ordered by their place in the round. */
interface Source<Row> {
  rows: readonly Row[];
  positionOf(row: Row): number;
  put(row: Row, index: number): void;
}

/** Merges the rows of all sources by place. At the same place, the row of the earlier source comes first. */
// biome-ignore lint/suspicious/noExplicitAny: each source has rows of its own, which it alone looks at
function inOrder(sources: Source<any>[]): void {
  const cursors = sources
    .filter(({ rows }) => rows.length > 0)
    .map((source) => ({ source, next: 0, position: source.positionOf(source.rows[0]) }));
  while (cursors.length > 0) {
    let first = 0;
    for (let index = 1; index < cursors.length; index++)
      if (cursors[index]!.position < cursors[first]!.position) first = index;
    const cursor = cursors[first]!;
    const { rows, positionOf, put } = cursor.source;
    put(rows[cursor.next], cursor.next);
    cursor.next++;
    if (cursor.next === rows.length) cursors.splice(first, 1);
    else cursor.position = positionOf(rows[cursor.next]);
  }
}

function attributesOf(profiles: Profiles, logs: Logs): Source<LoadedProfile> {
  const changed = [...profiles.all()].filter(
    ({ workspaceId, changedAt }) => changedAt >= 0 && logs.streamed.has(workspaceId),
  );
  return {
    rows: changed.sort((one, other) => one.changedAt - other.changedAt),
    positionOf: ({ changedAt }) => changedAt,
    put(profile) {
      const { workspaceId, id: profileId } = profile;
      const detail = changesOf(profile);
      if (detail) logs.add({ workspaceId, kind: 'a', profileId, detail });
    },
  };
}

function subscriptionsOf(
  states: RecordedState[],
  round: WorkItem[],
  logs: Logs,
): Source<{ state: RecordedState; position: number }> {
  const positions =
    states.length === 0 ? [] : round.map(({ requestId, ordinal }) => [requestId, ordinal] as const);
  const positionOf = new Map(positions);
  const positioned = states.map((state) => ({
    state,
    position: positionOf.get(state.requestId) ?? Number.MAX_VALUE,
  }));
  return {
    rows: positioned.sort((one, other) => one.position - other.position),
    positionOf: ({ position }) => position,
    put: ({ state }) => logs.add(subscription(state)),
  };
}

/** Returns the changed attributes as JSON text, reusing the text of the custom attributes that Postgres received. */
function changesOf(profile: LoadedProfile): JsonText | undefined {
  const { unset } = profile.custom.written();
  const set = profile.custom.text();
  const attributes = standardOf(profile);
  if (attributes === NO_MEMBERS && unset.length === 0 && set === undefined) return undefined;
  const removed = unset.length === 0 ? '[]' : JSON.stringify(unset);
  const custom = set?.text ?? NO_MEMBERS;
  return new JsonText(
    `{"attributes":${attributes},"custom_attributes":${custom},"removed_custom_attributes":${removed}}`,
  );
}

const NO_MEMBERS = '{}';

function standardOf(profile: LoadedProfile): string {
  if (!profile.changesColumns) return NO_MEMBERS;
  // `phone_valid` is derived from the number and is not an attribute.
  const { phone_valid: _, ...attributes } = profile.columns;
  return JSON.stringify(attributes);
}

function subscription(state: RecordedState): StreamEntry {
  const { workspaceId, subjectKind, subject, subscription, fromState, toState, requestId } = state;
  return {
    workspaceId,
    kind: 's',
    profileId: subjectKind === 'profile' ? subject : NIL_UUID,
    detail: asText({
      ...(subjectKind !== 'profile' && { [subjectKind]: subject }),
      ...{ subscription, from: fromState, to: toState, request_id: requestId },
    }),
  };
}

const asText = (detail: Json) => new JsonText(JSON.stringify(detail));

function identity(workspaceId: string, profileId: string, detail: Json): StreamEntry {
  return { workspaceId, kind: 'i', profileId, detail: asText(detail) };
}

function* identityEntries(changes: IdentityChanges): Generator<StreamEntry> {
  for (const { workspaceId, profileId, aliasLabel, oldAliasName, newAliasName } of changes.renamedAliases)
    yield identity(workspaceId, profileId, {
      change: 'alias_renamed',
      alias_label: aliasLabel,
      old_alias_name: oldAliasName,
      new_alias_name: newAliasName,
    });
  const previous = new Map(changes.deprecated.map((row) => [row.profileId, row.externalId]));
  for (const { workspaceId, id, externalId } of changes.externalIds)
    yield identity(workspaceId, id, {
      change: 'external_id_set',
      external_id: externalId,
      previous_external_id: previous.get(id) ?? null,
    });
  for (const { workspaceId, profileId, externalId } of changes.undeprecated)
    yield identity(workspaceId, profileId, { change: 'external_id_removed', external_id: externalId });
  for (const { workspaceId, mergedId, keptId, requestId } of changes.merges) {
    yield identity(workspaceId, mergedId, { change: 'merged_into', into: keptId, request_id: requestId });
    yield identity(workspaceId, keptId, { change: 'merged', from: mergedId, request_id: requestId });
  }
  for (const { workspaceId, id, externalId } of changes.deleted)
    yield identity(workspaceId, id, { change: 'deleted', external_id: externalId });
}
