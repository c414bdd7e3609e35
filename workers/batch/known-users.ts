import { LRUCache } from 'lru-cache';
import type { ProfileVersions } from '../../src/store/profile-versions.ts';

/** Workspaces of which something is known. */
const MAX_WORKSPACES = 10_000;

/** What a workspace's users were read under: as long as it is the same object, nobody has changed whom a name means. */
interface Version {
  text: string;
}

/** Whom an external id means. */
export interface KnownUser {
  id: string;
  /** Bytes at most of the stored custom attributes; undefined: not known. */
  bytes: number | undefined;
  version: Version;
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
 * whom a name means counts that in the transaction of the change (`readVersions`). So a batch knows what it would have
 * found at its beginning. Who is not known is looked up, and nobody is known to be missing.
 */
export class KnownUsers {
  readonly #users: LRUCache<string, KnownUser> | undefined;
  readonly #versions = new LRUCache<string, Version>({ max: MAX_WORKSPACES });

  /** @param max users at most; 0: none */
  constructor(max: number) {
    if (max > 0) this.#users = new LRUCache({ max });
  }

  /** What a batch knows that has read these versions of its workspaces. */
  begin(read: ProfileVersions): UsersOfBatch {
    const versions = new Map<string, Version>();
    for (const [workspaceId, text] of this.#users ? read : []) {
      let version = this.#versions.get(workspaceId);
      if (version?.text !== text) {
        version = { text };
        this.#versions.set(workspaceId, version);
      }
      versions.set(workspaceId, version);
    }
    return new UsersOfBatch(this, versions);
  }

  get(workspaceId: string, externalId: string): KnownUser | undefined {
    return this.#users?.get(keyOf(workspaceId, externalId));
  }

  /** Takes in what a batch has found out, unless the workspace has another version since. */
  keep(workspaceId: string, externalId: string, user: KnownUser): void {
    if (this.#versions.get(workspaceId) === user.version)
      this.#users?.set(keyOf(workspaceId, externalId), user);
  }

  /** Forgets the users of a workspace. */
  forget(workspaceId: string): void {
    this.#versions.delete(workspaceId);
  }

  /** Forgets everybody: a transaction has failed, or another process may have worked what is this one's now. */
  forgetAll(): void {
    this.#versions.clear();
    this.#users?.clear();
  }
}

/** An id is as long as another: no two keys are alike. */
function keyOf(workspaceId: string, externalId: string): string {
  return workspaceId + externalId;
}

/** What one batch knows of users, and learns; it is kept when its transaction has been committed. */
export class UsersOfBatch {
  readonly #all: KnownUsers;
  /** Of the workspaces of which nothing has been changed yet. */
  readonly #versions: Map<string, Version>;
  readonly #changed = new Set<string>();
  readonly #learnt: { workspaceId: string; externalId: string; user: KnownUser }[] = [];

  constructor(all: KnownUsers, versions: Map<string, Version>) {
    this.#all = all;
    this.#versions = versions;
  }

  find(workspaceId: string, externalId: string): KnownUser | undefined {
    const version = this.#versions.get(workspaceId);
    if (!version) return undefined;
    const user = this.#all.get(workspaceId, externalId);
    return user?.version === version ? user : undefined;
  }

  /** Notes whom a round had in hand, and what it has made of them. */
  learn(user: UserInHand): void {
    const { workspaceId, externalId, id, known, bytesAtMost: bytes } = user;
    const version = this.#versions.get(workspaceId);
    if (!version || externalId === null) return;
    if (!known) this.#learnt.push({ workspaceId, externalId, user: { id, bytes, version } });
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
    for (const { workspaceId, externalId, user } of this.#learnt)
      this.#all.keep(workspaceId, externalId, user);
  }
}
