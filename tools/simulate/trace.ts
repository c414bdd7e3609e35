import { createHash } from 'node:crypto';
import type { World } from './world.ts';

/** One thing that happened, with the moment in simulated milliseconds. */
export interface TraceLine {
  at: number;
  what: string;
  details: Record<string, unknown>;
}

/** What happened in a simulation. Its hash tells whether two runs were the same. */
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

  /** Hash of all lines; only where lines are kept. */
  digest(): string {
    return this.#hash.copy().digest('hex');
  }
}
