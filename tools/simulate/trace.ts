import { createHash } from 'node:crypto';
import type { World } from './world.ts';

/** An event, with its time in simulated milliseconds. */
export interface TraceLine {
  at: number;
  what: string;
  details: Record<string, unknown>;
}

/** The events of a simulation. Two runs with the same hash had the same events at the same times. */
export class Trace {
  readonly #world: World;
  readonly #keepsLines: boolean;
  readonly #hash = createHash('sha256');
  readonly #listeners: ((line: TraceLine) => void)[] = [];
  readonly lines: TraceLine[] = [];

  constructor(world: World, { keepsLines }: { keepsLines: boolean }) {
    this.#world = world;
    this.#keepsLines = keepsLines;
  }

  note(what: string, details: Record<string, unknown>): void {
    const line: TraceLine = { at: this.#world.now, what, details };
    for (const listener of this.#listeners) listener(line);
    if (!this.#keepsLines) return;
    this.lines.push(line);
    this.#hash.update(`${line.at} ${what} ${JSON.stringify(details)}\n`);
  }

  listen(listener: (line: TraceLine) => void): void {
    this.#listeners.push(listener);
  }

  /** Returns the hash of all lines. Lines must be kept. */
  digest(): string {
    return this.#hash.copy().digest('hex');
  }
}
