/** Bytes that one use of the budget holds. */
export interface Reservation {
  readonly bytes: number;
  /**
   * Adds so many bytes, or returns them if negative.
   * @returns false, without a change, if the limit of the owner or of the budget would be exceeded
   */
  grow(bytes: number): boolean;
  /** Returns all bytes of the reservation; further calls have no effect. */
  release(): void;
}

/** Bytes that arrive from a client. The budget drops them to make room for others. */
export interface Arrival {
  /**
   * Adds bytes that are in memory already, or subtracts them if negative. Drops the arrivals that are first in the order
   * of `ByteBudget.receive` until there is room. Has no effect after a release.
   */
  grow(bytes: number): void;
  /** Marks the sender as having a valid key. */
  know(): void;
  /** Marks the bytes as received completely. */
  complete(): void;
  /** Returns all bytes; further calls have no effect. */
  release(): void;
}

interface ByteBudgetSettings {
  /** Bytes that all owners together may hold. */
  maxBytes: number;
  /** Bytes that one owner may hold; `maxBytes` by default. */
  maxPerOwner?: number;
  /** Bytes that all callers without a key may hold together; `maxBytes` by default. */
  maxAnonymous?: number;
  /** Maximum number of callers that wait in `reserveInTurn`; 0 by default. */
  maxWaiting?: number;
  /** Maximum wait in milliseconds in `reserveInTurn`. */
  patience?: number;
}

/** Owner id for all callers without a key. */
const ANONYMOUS = '';

interface Waiting {
  bytes: number;
  begin(): void;
}

/** An arrival that can be dropped. */
interface Droppable {
  drop(): void;
}

/**
 * Bytes of memory that requests or responses may hold together, shared by workspace. Callers that ask for more are
 * refused (`reserve`), wait (`reserveInTurn`), or replace bytes that arrived before (`receive`). An owner that holds nothing
 * may always reserve as much as the share of one owner, so that the largest body or response is possible.
 */
export class ByteBudget {
  readonly #settings: Required<ByteBudgetSettings>;
  readonly #byOwner = new Map<string, number>();
  readonly #waiting = new Set<Waiting>();
  /** Arrivals that can be dropped, in the order in which they began: of unknown senders, and incomplete ones of others. */
  readonly #unknown = new Set<Droppable>();
  readonly #incomplete = new Set<Droppable>();
  #held = 0;

  constructor({ maxBytes, ...rest }: ByteBudgetSettings) {
    this.#settings = {
      ...{ maxBytes, maxPerOwner: maxBytes, maxAnonymous: maxBytes, maxWaiting: 0, patience: 0 },
      ...rest,
    };
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
    return this.#held + bytes <= this.#settings.maxBytes && this.heldBy(owner) + bytes <= this.#maxOf(owner);
  }

  /** @returns undefined if the owner or the budget has no room */
  reserve(bytes: number, owner = ANONYMOUS): Reservation | undefined {
    const weight = Math.min(bytes, this.#maxOf(owner));
    return this.hasRoom(weight, owner) ? this.count(weight, owner) : undefined;
  }

  /**
   * Reserves bytes as soon as there is room, in the order of the calls. More bytes than the budget has take all of it.
   * @param gone aborted when the caller no longer needs the bytes
   * @returns undefined if too many callers wait, or this one has waited too long
   * @throws the reason of `gone`
   */
  async reserveInTurn(bytes: number, gone: AbortSignal): Promise<Reservation | undefined> {
    gone.throwIfAborted();
    const { maxBytes, maxWaiting, patience } = this.#settings;
    const weight = Math.min(bytes, maxBytes);
    if (this.#waiting.size === 0 && this.hasRoom(weight)) return this.count(weight);
    if (this.#waiting.size >= maxWaiting) return undefined;
    return new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer);
        gone.removeEventListener('abort', stop);
        this.#waiting.delete(one);
      };
      const stop = () => {
        leave();
        reject(gone.reason);
        this.#admit();
      };
      const timer = setTimeout(() => {
        leave();
        resolve(undefined);
        this.#admit();
      }, patience);
      const one: Waiting = {
        bytes: weight,
        begin: () => {
          leave();
          resolve(this.count(weight));
        },
      };
      this.#waiting.add(one);
      gone.addEventListener('abort', stop);
    });
  }

  /**
   * Counts bytes while they arrive. If there is no room, the oldest arrival of an unknown sender is dropped, or else the
   * oldest incomplete arrival, or else the growing one. A legitimate sender sends without pauses, so bytes that
   * are held open are older.
   *
   * @param drop called once if the arrival is dropped; its bytes are released then
   */
  receive(drop: () => void): Arrival {
    const reservation = this.count(0);
    let [isComplete, isOver] = [false, false];
    const release = () => {
      isOver = true;
      this.#unknown.delete(one);
      this.#incomplete.delete(one);
      reservation.release();
    };
    const one: Droppable = {
      drop() {
        release();
        drop();
      },
    };
    this.#unknown.add(one);
    return {
      grow: (bytes) => {
        while (!isOver && !reservation.grow(bytes)) {
          const [oldest = one] = this.#unknown.size > 0 ? this.#unknown : this.#incomplete;
          oldest.drop();
        }
      },
      know: () => {
        if (this.#unknown.delete(one) && !isComplete) this.#incomplete.add(one);
      },
      complete: () => {
        isComplete = true;
        this.#incomplete.delete(one);
      },
      release,
    };
  }

  /** Counts bytes that are in memory already, also above the limit. */
  count(bytes: number, owner = ANONYMOUS): Reservation {
    let own = 0;
    const add = (by: number) => {
      own += by;
      this.#held += by;
      const sum = this.heldBy(owner) + by;
      if (sum > 0) this.#byOwner.set(owner, sum);
      else this.#byOwner.delete(owner);
      if (by < 0) this.#admit();
    };
    add(bytes);
    return {
      get bytes() {
        return own;
      },
      grow: (by) => {
        if (by > 0 && !this.hasRoom(by, owner)) return false;
        add(Math.max(by, -own));
        return true;
      },
      release: () => add(-own),
    };
  }

  /** Lets waiting callers begin, in their order, while there is room. */
  #admit(): void {
    for (const one of this.#waiting) {
      if (!this.hasRoom(one.bytes)) return;
      one.begin();
    }
  }

  #maxOf(owner: string): number {
    return owner === ANONYMOUS ? this.#settings.maxAnonymous : this.#settings.maxPerOwner;
  }
}
