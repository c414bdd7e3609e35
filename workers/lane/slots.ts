/** A lane that waits for a slot. */
interface Waiting {
  servedUntil(): number;
  begin(): void;
}

/** Permission to run a transaction; `release` passes it to the next waiting lane. */
export interface Slot {
  release(): void;
  /** Milliseconds that the caller waited for the slot. */
  waited: number;
}

/** Maximum number of waiting lanes that are compared when a slot becomes free: those that have waited longest. */
const COMPARED = 8;

/** Limits the concurrent transactions of a process. A freed slot goes to the least served waiting lane. */
export class Slots {
  #free: number;
  readonly #waiting: Waiting[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  get hasFree(): boolean {
    return this.#free > 0;
  }

  /**
   * Waits for a slot.
   *
   * @param servedUntil returns the virtual time of the work. If several lanes wait, it is called when a slot becomes
   * free, because further envelopes may have arrived meanwhile
   */
  async take(servedUntil: () => number): Promise<Slot> {
    const requestedAt = performance.now();
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((begin) => this.#waiting.push({ servedUntil, begin }));
    let isHeld = true;
    const release = () => {
      if (isHeld) this.#release();
      isHeld = false;
    };
    return { release, waited: performance.now() - requestedAt };
  }

  #release(): void {
    let next = 0;
    let earliest = Number.POSITIVE_INFINITY;
    for (const [index, { servedUntil }] of this.#waiting.slice(0, COMPARED).entries()) {
      const its = this.#waiting.length > 1 ? servedUntil() : 0;
      // Ties go to the lane that has waited longest, which comes first.
      if (its < earliest) [next, earliest] = [index, its];
    }
    const [first] = this.#waiting.splice(next, 1);
    if (first) first.begin();
    else this.#free++;
  }
}
