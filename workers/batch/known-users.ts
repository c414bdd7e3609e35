import { LRUCache } from 'lru-cache';
import type { ProfileVersions } from '../../src/store/profile-versions.ts';

/** Workspaces of which something is known. */
const MAX_WORKSPACES = 10_000;

/** Whom an external id means. */
export interface KnownUser {
  readonly id: string;
  /** Bytes at most of the stored custom attributes; undefined: not known. */
  readonly bytes: number | undefined;
}

type Users = Map<string, Entry>;

interface Entry extends KnownUser {
  /** Of the workspace when `bytes` was learnt. */
  readonly sizes: number;
}

/** The users of a workspace, for as long as nobody changes whom a name of it means. */
interface Version {
  /** What tells it from every other. */
  names: string;
  /** By external id: those who were in hand lately, and those who were before. */
  young: Users;
  old: Users;
  /** Attribute objects that are to be counted by now, should nobody but this process change attributes. */
  attributes: number;
  /** Another number as soon as somebody else has changed attributes. */
  sizes: number;
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
 * An entry holds for one version of its workspace, which each batch reads behind its claim: whatever lane or process changes
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
    const begun = new Map<string, Begun>();
    for (const [workspaceId, { names, attributes }] of this.#most > 0 ? read : []) {
      let version = this.#versions.get(workspaceId);
      if (version?.names !== names) {
        version = { names, young: new Map(), old: new Map(), attributes, sizes: 0 };
        this.#versions.set(workspaceId, version);
      }
      if (version.attributes !== attributes) version.sizes++;
      version.attributes = attributes;
      begun.set(workspaceId, { version, sizes: version.sizes, attributes, learnt: new Map() });
    }
    return new UsersOfBatch(this, begun);
  }

  get(version: Version, externalId: string): Entry | undefined {
    const { young, old } = version;
    const user = young.get(externalId);
    if (user) return user;
    const before = old.get(externalId);
    if (before) this.#add(young, externalId, before);
    return before;
  }

  /** Takes in what a batch has found out, unless the workspace has another version since. */
  keep(workspaceId: string, { version, sizes, attributes, learnt }: Begun): void {
    if (this.#versions.get(workspaceId) !== version) return;
    version.attributes = attributes;
    for (const [externalId, user] of learnt) {
      if (user) this.#add(version.young, externalId, { ...user, sizes });
      else for (const users of [version.young, version.old]) users.delete(externalId);
    }
  }

  #add(young: Users, externalId: string, user: Entry): void {
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

  /** Forgets everybody: a transaction has failed. */
  forgetAll(): void {
    this.#versions.clear();
    this.#young = 0;
  }
}

/** A workspace in the hands of a batch. */
interface Begun {
  version: Version;
  sizes: number;
  /** Attribute objects that will be counted when the batch is committed. */
  attributes: number;
  /** What the batch has found, made or changed itself: it holds before what was known. Undefined: nobody. */
  learnt: Map<string, KnownUser | undefined>;
}

/** What one batch knows of users, and learns; it is kept when its transaction has been committed. */
export class UsersOfBatch {
  readonly #all: KnownUsers;
  /** Workspaces in which the batch has not changed whom names mean. */
  readonly #begun: Map<string, Begun>;
  readonly #changed = new Set<string>();

  constructor(all: KnownUsers, begun: Map<string, Begun>) {
    this.#all = all;
    this.#begun = begun;
  }

  find(workspaceId: string, externalId: string): KnownUser | undefined {
    const begun = this.#begun.get(workspaceId);
    if (!begun) return undefined;
    if (begun.learnt.has(externalId)) return begun.learnt.get(externalId);
    const user = this.#all.get(begun.version, externalId);
    return !user || user.sizes === begun.sizes ? user : { id: user.id, bytes: undefined };
  }

  /** Notes that somebody was looked up in vain. */
  miss(workspaceId: string, externalId: string): void {
    this.#begun.get(workspaceId)?.learnt.set(externalId, undefined);
  }

  /** Notes whom a round had in hand, and what it has made of them. */
  learn({ workspaceId, externalId, id, known, changed, bytesAtMost }: UserInHand): void {
    // Of most nothing has changed.
    if (externalId === null || (known && !changed)) return;
    this.#begun.get(workspaceId)?.learnt.set(externalId, { id, bytes: bytesAtMost });
  }

  /** Notes attribute objects that take effect. */
  count(workspaceId: string, attributes: number): void {
    const begun = this.#begun.get(workspaceId);
    if (begun) begun.attributes += attributes;
  }

  /** From now on the batch knows nobody of the workspace: it has changed whom names mean. */
  change(workspaceId: string): void {
    this.#begun.delete(workspaceId);
    this.#changed.add(workspaceId);
  }

  /** To be called behind COMMIT. */
  keep(): void {
    for (const workspaceId of this.#changed) this.#all.forget(workspaceId);
    for (const [workspaceId, begun] of this.#begun) this.#all.keep(workspaceId, begun);
  }
}
