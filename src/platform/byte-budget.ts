/** Bytes that one use of the budget holds. */
export interface Reservation {
  /**
   * Adds so many bytes, or returns them if negative.
   * @returns false, without a change, if the limit of the owner or of the budget would be exceeded
   */
  grow(bytes: number): boolean;
  /** Returns all bytes of the reservation; further calls have no effect. */
  release(): void;
}

interface ByteBudgetSettings {
  /** Bytes that all owners together may hold. */
  maxBytes: number;
  /** Bytes that one owner may hold. */
  maxPerOwner: number;
  /** Bytes that all callers without a key may hold together. */
  maxAnonymous: number;
}

/** Owner id for all callers without a key. */
const ANONYMOUS = '';

/**
 * Bytes of memory that requests may hold together, shared by workspace. An owner that holds nothing may always reserve as
 * much as the share of one owner, so that the largest response is possible.
 */
export class ByteBudget {
  readonly #settings: ByteBudgetSettings;
  readonly #byOwner = new Map<string, number>();
  #held = 0;

  constructor(settings: ByteBudgetSettings) {
    this.#settings = settings;
  }

  /** Bytes that are held at this moment. */
  get held(): number {
    return this.#held;
  }

  heldBy(owner: string): number {
    return this.#byOwner.get(owner) ?? 0;
  }

  /** @param owner id of the workspace or company; absent for a caller without a key */
  hasRoom(bytes: number, owner = ANONYMOUS): boolean {
    const { maxBytes, maxPerOwner, maxAnonymous } = this.#settings;
    const limit = owner === ANONYMOUS ? maxAnonymous : maxPerOwner;
    return this.#held + bytes <= maxBytes && (this.#byOwner.get(owner) ?? 0) + bytes <= limit;
  }

  /** @returns undefined if the owner or the budget has no room */
  reserve(bytes: number, owner = ANONYMOUS): Reservation | undefined {
    const { maxPerOwner, maxAnonymous } = this.#settings;
    const weight = Math.min(bytes, owner === ANONYMOUS ? maxAnonymous : maxPerOwner);
    return this.hasRoom(weight, owner) ? this.count(weight, owner) : undefined;
  }

  /** Counts bytes that are in memory already, also above the limit. */
  count(bytes: number, owner = ANONYMOUS): Reservation {
    let own = 0;
    const add = (by: number) => {
      own += by;
      this.#held += by;
      const sum = (this.#byOwner.get(owner) ?? 0) + by;
      if (sum > 0) this.#byOwner.set(owner, sum);
      else this.#byOwner.delete(owner);
    };
    add(bytes);
    return {
      grow: (by) => {
        if (by > 0 && !this.hasRoom(by, owner)) return false;
        add(Math.max(by, -own));
        return true;
      },
      release: () => add(-own),
    };
  }
}
