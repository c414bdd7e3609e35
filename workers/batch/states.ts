import type { EmailState } from '../../src/store/email-addresses.ts';
import type { StateChange } from '../../src/store/subscription-history.ts';
import {
  GLOBAL,
  type Group,
  type GroupState,
  type Mark,
  marks,
  type StoredState,
} from '../../src/store/subscription-states.ts';
import { scoped } from './work-item.ts';

/** Whose state it is: that of an address, or of a profile while it has no such address. */
export interface Subject {
  workspaceId: string;
  kind: GroupState['subject_kind'];
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
  readonly #known = new Map<string, Map<string, State>>();
  readonly #said = new Map<string, Map<string, Said>>();
  /** Whether somebody who is not in the round's hands has an address; missing: not looked up. */
  readonly #held = new Map<string, boolean>();
  /** All that was said, in its order. */
  readonly changes: StateChange[] = [];

  /** From now on the subject's states are known: those taken in. */
  know({ workspaceId, kind, name }: Subject): void {
    const key = keyOf(workspaceId, kind, name);
    if (!this.#known.has(key)) this.#known.set(key, new Map());
  }

  takeIn({ workspaceId, kind, subject, group, channel, state }: StoredState): void {
    this.#known.get(keyOf(workspaceId, kind, subject))?.set(group, { channel, state });
  }

  noteHeld(workspaceId: string, email: string, held: boolean): void {
    this.#held.set(scoped(workspaceId, email), held);
  }

  isHeld(workspaceId: string, email: string): boolean | undefined {
    return this.#held.get(scoped(workspaceId, email));
  }

  /** The subject's states by group as they are now; undefined: not known. */
  of({ workspaceId, kind, name }: Subject): Map<string, State> | undefined {
    const key = keyOf(workspaceId, kind, name);
    const stored = this.#known.get(key);
    if (!stored) return undefined;
    const states = new Map(stored);
    for (const [group, said] of this.#said.get(key) ?? []) {
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
    const key = keyOf(subject.workspaceId, subject.kind, subject.name);
    if (this.#known.get(key)?.has(group) || this.#said.get(key)?.has(group)) return;
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
      .map(({ subject, state }) => ({ workspace_id: subject.workspaceId, email: subject.name, state }));
  }

  /** The states of groups to write. A profile's own global state is a column of the profile. */
  groupStates(how: Said['how']): GroupState[] {
    return this.#saidSo(how)
      .filter(({ group }) => group !== GLOBAL)
      .map(({ subject, group, state }) => ({
        workspace_id: subject.workspaceId,
        subject_kind: subject.kind,
        subject: subject.name,
        subscription_group_id: group,
        state,
      }));
  }

  #say(said: Said): void {
    const { subject, group } = said;
    this.#note(said);
    const key = keyOf(subject.workspaceId, subject.kind, subject.name);
    const groups = this.#said.get(key);
    if (groups) groups.set(group, said);
    else this.#said.set(key, new Map([[group, said]]));
  }

  #note({ subject, requestId, group, how, state }: Omit<Said, 'channel'>): void {
    this.changes.push({
      workspace_id: subject.workspaceId,
      subject_kind: subject.kind,
      subject: subject.name,
      subscription: group,
      how,
      state,
      request_id: requestId,
    });
  }

  #saidSo(how: Said['how']): Said[] {
    return [...this.#said.values()].flatMap((groups) =>
      [...groups.values()].filter((said) => said.how === how),
    );
  }
}

function keyOf(workspaceId: string, kind: string, name: string): string {
  return scoped(workspaceId, `${kind}\0${name}`);
}
