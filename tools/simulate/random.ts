import { createRandom } from '../load/random.ts';

/** Random values that a seed determines. */
export class Random {
  readonly #seed: number;
  readonly #next: () => number;

  constructor(seed: number) {
    this.#seed = seed;
    this.#next = createRandom(seed);
  }

  /** Returns an independent sequence, so that draws in one part of a simulation do not change another part. */
  fork(name: string): Random {
    let hash = this.#seed ^ 0x9e3779b9;
    for (let index = 0; index < name.length; index++)
      hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
    return new Random(hash >>> 0);
  }

  /** Returns a number from 0 (included) to 1 (excluded). */
  number(): number {
    return this.#next();
  }

  /** Returns a number between two bounds. */
  between(min: number, max: number): number {
    return min + (max - min) * this.#next();
  }

  /** Returns a whole number from `min` to `max`, both included. */
  integer(min: number, max: number): number {
    return min + Math.floor(this.#next() * (max - min + 1));
  }

  chance(probability: number): boolean {
    return this.#next() < probability;
  }

  pick<Value>(values: readonly Value[]): Value {
    return values[Math.floor(this.#next() * values.length)]!;
  }

  bytes(count: number): Buffer {
    const bytes = Buffer.allocUnsafe(count);
    for (let index = 0; index < count; index++) bytes[index] = Math.floor(this.#next() * 256);
    return bytes;
  }
}
