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

/** What a round does to email addresses besides their states. */
interface EmailChanges {
  /** By address, in its workspace: what was said last. */
  bounces: ByWorkspace<HardBounce>;
  /** Addresses whose holders lose the mark as spam before anything else of the round is written. */
  clearedSpam: ClearedSpam[];
  /** Addresses, each in its workspace, that too many have for their marks to be cleared by one object. */
  crowded: ByWorkspace<true>;
}

function noEmailChanges(crowded: ByWorkspace<true>): EmailChanges {
  return { bounces: new ByWorkspace(), clearedSpam: [], crowded };
}

/** What a round writes. A map is keyed by what may stand once in its statement. */
export interface Changes {
  profiles: Profiles;
  groups: Map<string, Group>;
  /** Tokens that belonged to someone before the round. */
  ownedTokens: ByWorkspace<true>;
  /** As `tokenKey` says. */
  pushTokens: ByWorkspace<PushTokenRow>;
  states: States;
  events: EventRow[];
  purchases: PurchaseRow[];
  emails: EmailChanges;
  identity: IdentityChanges;
  /** Objects that cannot be applied, with the reason. */
  refused: { item: WorkItem; reason: string }[];
  /** Objects whose user goes by a name of another lane: nothing orders them with those that use it. */
  namedElsewhere: WorkItem[];
}

/** A text: why the operation cannot be applied; undefined: it is folded, even if it does nothing. */
export type FoldedIdentity = string | undefined | typeof RELOAD;

/**
 * What the identity operations of one round do to the store. Each profile and each identifier stands in one of
 * them at most: the next operation on it begins a round of its own.
 */
export interface IdentityChanges {
  renamedAliases: RenamedAlias[];
  externalIds: NewExternalId[];
  deprecated: DeprecatedExternalId[];
  undeprecated: DeprecatedExternalId[];
  merges: MergePair[];
  deleted: LoadedProfile[];
  /** The deletes themselves, whether they found anybody or not. */
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

/** Whose state it is: that of an address, or of a profile while it has no such address. */
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

/** Of whom something is said, and by which request. */
interface Saying {
  subject: Subject;
  requestId: string;
}

/** What a round writes: `taken` only where there is none yet, `dropped` away. */
type Said = Saying & State & { group: string; how: 'set' | 'taken' | 'dropped' };

/** A group's id is under its own name, the global email state under GLOBAL. */
export class States {
  /** What is stored of the subjects that were looked up. */
  readonly #known = new BySubject<Map<string, State>>();
  readonly #said = new BySubject<Map<string, Said>>();
  /** Whether somebody who is not in the round's hands has an address; missing: not looked up. */
  readonly #held = new ByWorkspace<boolean>();
  /** All that was said, in its order. */
  readonly changes: StateChange[] = [];

  /** From now on the subject's states are known: those taken in. */
  know(subject: Subject): void {
    if (!this.#known.get(subject)) this.#known.set(subject, new Map());
  }

  takeIn({ workspaceId, kind, subject, group, channel, state }: StoredState): void {
    this.#known.get({ workspaceId, kind, name: subject })?.set(group, { channel, state });
  }

  noteHeld(workspaceId: string, email: string, held: boolean): void {
    this.#held.set(workspaceId, email, held);
  }

  isHeld(workspaceId: string, email: string): boolean | undefined {
    return this.#held.get(workspaceId, email);
  }

  /** The subject's states by group as they are now; undefined: not known. */
  of(subject: Subject): Map<string, State> | undefined {
    const stored = this.#known.get(subject);
    if (!stored) return undefined;
    const states = new Map(stored);
    for (const [group, said] of this.#said.get(subject) ?? []) {
      if (said.how === 'dropped') states.delete(group);
      else states.set(group, said);
    }
    return states;
  }

  set({ subject, requestId }: Saying, group: string, { channel, state }: State): void {
    this.#say({ subject, requestId, group, channel, state, how: 'set' });
  }

  /** An address that has a state for the group keeps it. */
  take({ subject, requestId }: Saying, group: string, { channel, state }: State): void {
    if (this.#known.get(subject)?.has(group) || this.#said.get(subject)?.has(group)) return;
    this.#say({ subject, requestId, group, channel, state, how: 'taken' });
  }

  drop({ subject, requestId }: Saying, group: string, { channel, state }: State): void {
    this.#say({ subject, requestId, group, channel, state, how: 'dropped' });
  }

  /** Notes a mark for the history; what bears it is written elsewhere. */
  mark({ subject, requestId }: Saying, mark: Mark, isMarked: boolean): void {
    this.#note({ subject, requestId, group: mark, how: isMarked ? 'set' : 'dropped', state: marks[mark] });
  }

  /** The global states of addresses to write. */
  emailStates(how: Said['how']): EmailState[] {
    return this.#saidSo(how)
      .filter(({ group, subject }) => group === GLOBAL && subject.kind === 'email')
      .map(({ subject, state }) => ({ workspaceId: subject.workspaceId, email: subject.name, state }));
  }

  /** The states of groups to write. A profile's own global state is a column of the profile. */
  groupStates(how: Said['how']): GroupState[] {
    return this.#saidSo(how)
      .filter(({ group }) => group !== GLOBAL)
      .map(({ subject, group, state }) => ({
        workspaceId: subject.workspaceId,
        subjectKind: subject.kind,
        subject: subject.name,
        subscriptionGroupId: group,
        state,
      }));
  }

  #say(said: Said): void {
    const { subject, group } = said;
    this.#note(said);
    const groups = this.#said.get(subject);
    if (groups) groups.set(group, said);
    else this.#said.set(subject, new Map([[group, said]]));
  }

  #note({ subject, requestId, group, how, state }: Omit<Said, 'channel'>): void {
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

  #saidSo(how: Said['how']): Said[] {
    return [...this.#said.values()].flatMap((groups) =>
      [...groups.values()].filter((said) => said.how === how),
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

/** What tells a push token from others of its workspace. */
export function tokenKey({ appId, token }: Pick<PushTokenRow, 'appId' | 'token'>): string {
  return `${appId}\0${token}`;
}
