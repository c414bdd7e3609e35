/** What waits for a slot. */
interface Waiting {
  servedUntil(): number;
  begin(): void;
}

/** The right to run a transaction; `release` gives it to the next that waits. */
export interface Slot {
  release(): void;
  /** Milliseconds. */
  waited: number;
}

/** Waiting lanes that are compared when a slot is free: those that have waited longest. */
const COMPARED = 8;

/** The transactions that a process runs at once. A freed slot goes to whoever was served least. */
export class Slots {
  #free: number;
  readonly #waiting: Waiting[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  get hasFree(): boolean {
    return this.#free > 0;
  }

  /** @param servedUntil virtual time at which the work would begin; asked when a slot is free, because more may have come */
  async take(servedUntil: () => number): Promise<Slot> {
    const asked = performance.now();
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((begin) => this.#waiting.push({ servedUntil, begin }));
    let isHeld = true;
    const release = () => {
      if (isHeld) this.#release();
      isHeld = false;
    };
    return { release, waited: performance.now() - asked };
  }

  #release(): void {
    let next = 0;
    let least = Number.POSITIVE_INFINITY;
    for (const [place, { servedUntil }] of this.#waiting.slice(0, COMPARED).entries()) {
      const its = this.#waiting.length > 1 ? servedUntil() : 0;
      // Of those that were served as much, the first has waited longest.
      if (its < least) [next, least] = [place, its];
    }
    const [first] = this.#waiting.splice(next, 1);
    if (first) first.begin();
    else this.#free++;
  }
}
