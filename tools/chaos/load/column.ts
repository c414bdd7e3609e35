type Numbers = Uint8Array | Uint16Array | Uint32Array | Float32Array | Float64Array;

/** A growing list of numbers in a typed array, which takes only as many bytes per number as its type. */
export class Column<T extends Numbers> {
  length = 0;
  #values: T;
  readonly #make: new (
    length: number,
  ) => T;

  constructor(make: new (length: number) => T) {
    this.#make = make;
    this.#values = new make(1024);
  }

  push(value: number): void {
    if (this.length === this.#values.length) {
      const grown = new this.#make(this.length * 2);
      grown.set(this.#values as never);
      this.#values = grown;
    }
    this.#values[this.length++] = value;
  }

  at(index: number): number {
    return this.#values[index]!;
  }

  set(index: number, value: number): void {
    this.#values[index] = value;
  }
}
