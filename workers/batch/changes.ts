import type {
  DeprecatedExternalId,
  NewExternalId,
  RenamedAlias,
} from '../../src/store/alternate-identifiers.ts';
import type { ClearedSpam, EmailState, HardBounce } from '../../src/store/email-addresses.ts';
import type { EventRow } from '../../src/store/events.ts';
import type { MergePair } from '../../src/store/merges.ts';
import type { Outcome } from '../../src/store/outcomes.ts';
import type { PushTokenRow } from '../../src/store/profile-attributes.ts';
import type { PurchaseRow } from '../../src/store/purchases.ts';
import type { StateChange } from '../../src/store/subscription-history.ts';
import {
  GLOBAL,
  type Group,
  type GroupState,
  type Mark,
  marks,
  type StoredState,
} from '../../src/store/subscription-states.ts';
import { ByWorkspace } from './by-workspace.ts';
import type { LoadedProfile } from './loaded-profile.ts';
import type { Profiles } from './profiles.ts';
import type { RELOAD, WorkItem } from './work-item.ts';

/** Changes of a round to email addresses, other than their subscription states. */
interface EmailChanges {
  /** Latest hard bounce setting, by workspace and address. */
  bounces: ByWorkspace<HardBounce>;
  /** Addresses whose holders lose the spam mark before any other change of the round is written. */
  clearedSpam: ClearedSpam[];
  /** Addresses, by workspace, with too many holders to clear their spam marks by one object. */
  crowded: ByWorkspace<true>;
}

function noEmailChanges(crowded: ByWorkspace<true>): EmailChanges {
  return { bounces: new ByWorkspace(), clearedSpam: [], crowded };
}

/** Changes that a round writes. The key of each map must be unique within its statement. */
export interface Changes {
  profiles: Profiles;
  groups: Map<string, Group>;
  /** Push tokens that belonged to a profile before the round. */
  ownedTokens: ByWorkspace<true>;
  /** Push tokens to write, by workspace and `tokenKey`. */
  pushTokens: ByWorkspace<PushTokenRow>;
  states: States;
  events: EventRow[];
  purchases: PurchaseRow[];
  emails: EmailChanges;
  identity: IdentityChanges;
  /** Objects that cannot be applied, with the reason. */
  refused: { item: WorkItem; reason: string }[];
  /** Objects whose user has a primary identifier in another lane: they are not ordered with objects of that lane. */
  namedElsewhere: WorkItem[];
}

/** Result of an identity operation: why it cannot be applied, or undefined if it was folded, even without an effect. */
export type FoldedIdentity = string | undefined | typeof RELOAD;

/**
 * Changes by the identity operations of one round. A profile or an identifier occurs in at most one operation: the next
 * operation on it starts a new round.
 */
export interface IdentityChanges {
  renamedAliases: RenamedAlias[];
  externalIds: NewExternalId[];
  deprecated: DeprecatedExternalId[];
  undeprecated: DeprecatedExternalId[];
  merges: MergePair[];
  deleted: LoadedProfile[];
  /** Delete objects, whether or not they matched a user. */
  deletes: WorkItem[];
  outcomes: Outcome[];
}

export function noIdentityChanges(): IdentityChanges {
  return {
    renamedAliases: [],
    externalIds: [],
    deprecated: [],
    undeprecated: [],
    merges: [],
    deleted: [],
    deletes: [],
    outcomes: [],
  };
}

export function emptyChanges({
  crowdedEmails,
  ...loaded
}: Pick<Changes, 'profiles' | 'groups' | 'ownedTokens' | 'states'> & {
  crowdedEmails: ByWorkspace<true>;
}): Changes {
  return {
    ...loaded,
    pushTokens: new ByWorkspace(),
    events: [],
    purchases: [],
    emails: noEmailChanges(crowdedEmails),
    identity: noIdentityChanges(),
    refused: [],
    namedElsewhere: [],
  };
}

/** Owner of a subscription state: an address, or a profile while it has no such address. */
export interface Subject {
  workspaceId: string;
  kind: GroupState['subjectKind'];
  /** The address, or the profile's id. */
  name: string;
}

interface State {
  channel: Group['channel'];
  state: string;
}

/** Owner of a state that is set, and the request that sets it. */
interface StateWrite {
  subject: Subject;
  requestId: string;
}

/** A state that a round writes. `taken` is written only if the owner has no state yet; `dropped` is removed. */
type PendingState = StateWrite & State & { group: string; how: 'set' | 'taken' | 'dropped' };

/** Subscription states of a round. A state is keyed by its group id, the global email state by GLOBAL. */
export class States {
  /** Stored states of the subjects that were looked up. */
  readonly #stored = new BySubject<Map<string, State>>();
  readonly #pending = new BySubject<Map<string, PendingState>>();
  /** Whether an address has a holder that the round has not loaded; absent if it was not looked up. */
  readonly #held = new ByWorkspace<boolean>();
  /** All state changes, in order. */
  readonly changes: StateChange[] = [];

  /** Marks the stored states of a subject as known; `takeIn` adds them. */
  know(subject: Subject): void {
    if (!this.#stored.get(subject)) this.#stored.set(subject, new Map());
  }

  takeIn({ workspaceId, kind, subject, group, channel, state }: StoredState): void {
    this.#stored.get({ workspaceId, kind, name: subject })?.set(group, { channel, state });
  }

  noteHeld(workspaceId: string, email: string, held: boolean): void {
    this.#held.set(workspaceId, email, held);
  }

  isHeld(workspaceId: string, email: string): boolean | undefined {
    return this.#held.get(workspaceId, email);
  }

  /** Returns the current states of a subject by group; undefined if they are not known. */
  of(subject: Subject): Map<string, State> | undefined {
    const stored = this.#stored.get(subject);
    if (!stored) return undefined;
    const states = new Map(stored);
    for (const [group, pending] of this.#pending.get(subject) ?? []) {
      if (pending.how === 'dropped') states.delete(group);
      else states.set(group, pending);
    }
    return states;
  }

  set({ subject, requestId }: StateWrite, group: string, { channel, state }: State): void {
    this.#write({ subject, requestId, group, channel, state, how: 'set' });
  }

  /** Sets a state unless the subject already has one for the group. */
  take({ subject, requestId }: StateWrite, group: string, { channel, state }: State): void {
    if (this.#stored.get(subject)?.has(group) || this.#pending.get(subject)?.has(group)) return;
    this.#write({ subject, requestId, group, channel, state, how: 'taken' });
  }

  drop({ subject, requestId }: StateWrite, group: string, { channel, state }: State): void {
    this.#write({ subject, requestId, group, channel, state, how: 'dropped' });
  }

  /** Records a mark for the history; the marked row itself is written elsewhere. */
  mark({ subject, requestId }: StateWrite, mark: Mark, isMarked: boolean): void {
    this.#note({ subject, requestId, group: mark, how: isMarked ? 'set' : 'dropped', state: marks[mark] });
  }

  /** Returns the global email states of addresses to write. */
  emailStates(how: PendingState['how']): EmailState[] {
    return this.#pendingWith(how)
      .filter(({ group, subject }) => group === GLOBAL && subject.kind === 'email')
      .map(({ subject, state }) => ({ workspaceId: subject.workspaceId, email: subject.name, state }));
  }

  /** Returns the group states to write. The global state of a profile without an address is a column of the profile. */
  groupStates(how: PendingState['how']): GroupState[] {
    return this.#pendingWith(how)
      .filter(({ group }) => group !== GLOBAL)
      .map(({ subject, group, state }) => ({
        workspaceId: subject.workspaceId,
        subjectKind: subject.kind,
        subject: subject.name,
        subscriptionGroupId: group,
        state,
      }));
  }

  #write(pending: PendingState): void {
    const { subject, group } = pending;
    this.#note(pending);
    const groups = this.#pending.get(subject);
    if (groups) groups.set(group, pending);
    else this.#pending.set(subject, new Map([[group, pending]]));
  }

  #note({ subject, requestId, group, how, state }: Omit<PendingState, 'channel'>): void {
    this.changes.push({
      workspaceId: subject.workspaceId,
      subjectKind: subject.kind,
      subject: subject.name,
      subscription: group,
      how,
      state,
      requestId,
    });
  }

  #pendingWith(how: PendingState['how']): PendingState[] {
    return [...this.#pending.values()].flatMap((groups) =>
      [...groups.values()].filter((pending) => pending.how === how),
    );
  }
}

/** A map by subject. */
export class BySubject<Value> {
  readonly #kinds: Record<Subject['kind'], ByWorkspace<Value>> = {
    email: new ByWorkspace(),
    phone: new ByWorkspace(),
    profile: new ByWorkspace(),
  };

  get({ workspaceId, kind, name }: Subject): Value | undefined {
    return this.#kinds[kind].get(workspaceId, name);
  }

  set({ workspaceId, kind, name }: Subject, value: Value): void {
    this.#kinds[kind].set(workspaceId, name, value);
  }

  *values(): Iterable<Value> {
    for (const kind of Object.values(this.#kinds)) yield* kind.values();
  }
}

/** Returns the key of a push token, unique in its workspace. */
export function tokenKey({ appId, token }: Pick<PushTokenRow, 'appId' | 'token'>): string {
  return `${appId}\0${token}`;
}
