/** What waits for a slot. */
interface Waiting {
  debt: number;
  begin(): void;
}

/** The right to run a transaction; `release` gives it to the next that waits. */
export interface Slot {
  release(): void;
  /** Milliseconds. */
  waited: number;
}

/** The transactions that a process runs at once. A freed slot goes to whoever was served least. */
export class Slots {
  #free: number;
  readonly #waiting: Waiting[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** @param debt units by which the work is ahead of others */
  async take(debt: number): Promise<Slot> {
    const asked = performance.now();
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((begin) => this.#waiting.push({ debt, begin }));
    let isHeld = true;
    const release = () => {
      if (isHeld) this.#release();
      isHeld = false;
    };
    return { release, waited: performance.now() - asked };
  }

  #release(): void {
    let next = 0;
    for (const [place, { debt }] of this.#waiting.entries())
      if (debt < this.#waiting[next]!.debt) next = place;
    const [first] = this.#waiting.splice(next, 1);
    if (first) first.begin();
    else this.#free++;
  }
}
