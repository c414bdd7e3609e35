import { type Json, jsonBytes, type Size, storedBytes } from './json.ts';

/** Sizes by slot, in columns: an object for each would be most of what a long array costs. */
export class Sizes {
  #json: number[] = [];
  #stored: number[] = [];

  of(slot: number): Size {
    return { json: this.#json[slot]!, stored: this.#stored[slot]! };
  }

  put(slot: number, { json, stored }: Size): void {
    this.#json[slot] = json;
    this.#stored[slot] = stored;
  }

  /** @param sum gets what the element takes */
  push(element: Json, sum: Size): void {
    const [json, stored] = [jsonBytes(element), storedBytes(element)];
    this.#json.push(json);
    this.#stored.push(stored);
    sum.json += json;
    sum.stored += stored;
  }

  cut(length: number): void {
    this.#json.length = length;
    this.#stored.length = length;
  }

  where(isKept: (slot: number) => boolean): Sizes {
    const kept = new Sizes();
    kept.#json = this.#json.filter((_, slot) => isKept(slot));
    kept.#stored = this.#stored.filter((_, slot) => isKept(slot));
    return kept;
  }
}
