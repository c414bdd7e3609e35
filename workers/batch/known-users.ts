import { LRUCache } from 'lru-cache';
import type { ProfileVersions } from '../../src/store/profile-versions.ts';

/** Workspaces of which something is known. */
const MAX_WORKSPACES = 10_000;

/** The users of a workspace, for as long as nobody changes whom a name of it means. */
interface Version {
  /** What tells it from every other. */
  text: string;
  /** By external id: those who were in hand lately, and those who were before. */
  young: Map<string, KnownUser>;
  old: Map<string, KnownUser>;
}

/** Whom an external id means. */
export interface KnownUser {
  id: string;
  /** Bytes at most of the stored custom attributes; undefined: not known. */
  bytes: number | undefined;
}

/** Whom a round had in hand. */
interface UserInHand {
  workspaceId: string;
  externalId: string | null;
  id: string;
  /** Where an earlier batch knew the user. */
  known: KnownUser | undefined;
  /** Whether the round has changed attributes of the user, or has made the user. */
  changed: boolean;
  /** Bytes at most of the custom attributes once the round is written; undefined: not known. */
  bytesAtMost: number | undefined;
}

/**
 * A cache of users by external id, over the batches of one process: most objects name somebody who was named a moment ago.
 *
 * An entry holds for one version of its workspace, which the claim of each batch reads: whatever lane or process changes
 * whom a name means counts that in the transaction of the change (`readProfileVersions`). So a batch knows what it would
 * have found at its beginning. Who is not known is looked up, and nobody is known to be missing.
 *
 * Two generations instead of a list by use: the key of a list over all workspaces has to be put together, and hashed, for
 * each object. When the young ones are half of what there may be they become the old ones, and the old ones go.
 */
export class KnownUsers {
  readonly #most: number;
  #young = 0;
  readonly #versions = new LRUCache<string, Version>({ max: MAX_WORKSPACES });

  /** @param max users at most; 0: none */
  constructor(max: number) {
    this.#most = max / 2;
  }

  /** What a batch knows that has read these versions of its workspaces. */
  begin(read: ProfileVersions): UsersOfBatch {
    const versions = new Map<string, Version>();
    for (const [workspaceId, text] of this.#most > 0 ? read : []) {
      let version = this.#versions.get(workspaceId);
      if (version?.text !== text) {
        version = { text, young: new Map(), old: new Map() };
        this.#versions.set(workspaceId, version);
      }
      versions.set(workspaceId, version);
    }
    return new UsersOfBatch(this, versions);
  }

  get({ young, old }: Version, externalId: string): KnownUser | undefined {
    const user = young.get(externalId);
    if (user) return user;
    const before = old.get(externalId);
    if (before) this.#add(young, externalId, before);
    return before;
  }

  /** Takes in what a batch has found out, unless the workspace has another version since. */
  keep(workspaceId: string, version: Version, [externalId, user]: [string, KnownUser]): void {
    if (this.#versions.get(workspaceId) === version) this.#add(version.young, externalId, user);
  }

  #add(young: Map<string, KnownUser>, externalId: string, user: KnownUser): void {
    young.set(externalId, user);
    if (++this.#young < this.#most) return;
    this.#young = 0;
    for (const version of this.#versions.values()) {
      version.old = version.young;
      version.young = new Map();
    }
  }

  /** Forgets the users of a workspace. */
  forget(workspaceId: string): void {
    this.#versions.delete(workspaceId);
  }

  /** Forgets everybody: a transaction has failed, or another process may have worked what is this one's now. */
  forgetAll(): void {
    this.#versions.clear();
    this.#young = 0;
  }
}

/** What one batch knows of users, and learns; it is kept when its transaction has been committed. */
export class UsersOfBatch {
  readonly #all: KnownUsers;
  /** Of the workspaces of which nothing has been changed yet. */
  readonly #versions: Map<string, Version>;
  readonly #changed = new Set<string>();
  readonly #learnt: { workspaceId: string; version: Version; entry: [string, KnownUser] }[] = [];

  constructor(all: KnownUsers, versions: Map<string, Version>) {
    this.#all = all;
    this.#versions = versions;
  }

  find(workspaceId: string, externalId: string): KnownUser | undefined {
    const version = this.#versions.get(workspaceId);
    return version && this.#all.get(version, externalId);
  }

  /** Notes whom a round had in hand, and what it has made of them. */
  learn(user: UserInHand): void {
    const { workspaceId, externalId, id, known, bytesAtMost: bytes } = user;
    const version = this.#versions.get(workspaceId);
    if (!version || externalId === null) return;
    if (!known) this.#learnt.push({ workspaceId, version, entry: [externalId, { id, bytes }] });
    // At once, for the rounds that follow: should the transaction fail, everybody is forgotten.
    else if (user.changed) known.bytes = bytes;
  }

  /** From now on the batch knows nobody of the workspace: it has changed whom names mean. */
  change(workspaceId: string): void {
    this.#versions.delete(workspaceId);
    this.#changed.add(workspaceId);
  }

  /** To be called behind COMMIT. */
  keep(): void {
    for (const workspaceId of this.#changed) this.#all.forget(workspaceId);
    for (const { workspaceId, version, entry } of this.#learnt) this.#all.keep(workspaceId, version, entry);
  }
}
