import { codeOf, describeFailure } from '../platform/format.ts';

/** SQLSTATEs of a Postgres that answers and refuses to write: read-only, disk full, I/O error. */
const REFUSES_WRITES = ['25006', '53100', '58030'];

/** Postgres answers, and refuses the writes of a process. */
export interface WriteRefusal {
  /** Message of Postgres. */
  reason: string;
  /** Time of the first refused write. */
  since: Date;
}

/**
 * Remembers whether Postgres refuses one kind of writes: heartbeats, batches, or jobs of a queue in Postgres. Each kind has
 * an object of its own, because a full disk often accepts small updates while it refuses rows that need a new page.
 */
export class WriteRefusals {
  readonly #onChange: () => void;
  #refusal: WriteRefusal | undefined;

  /** @param onChange called when refusals begin and when they end */
  constructor(onChange: () => void = () => {}) {
    this.#onChange = onChange;
  }

  /** The refusal of the latest write; undefined if it was accepted, or failed for another reason. */
  get refusal(): WriteRefusal | undefined {
    return this.#refusal;
  }

  /** Notes the error of a failed write. Errors may wrap the error of Postgres as their cause. */
  noteFailure(error: unknown): void {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    if (!REFUSES_WRITES.includes(codeOf(cause) ?? '')) {
      this.noteSuccess();
      return;
    }
    const isNew = this.#refusal === undefined;
    const since = this.#refusal?.since ?? new Date(Date.now());
    this.#refusal = { reason: describeFailure(cause), since };
    if (isNew) this.#onChange();
  }

  noteSuccess(): void {
    const isOver = this.#refusal !== undefined;
    this.#refusal = undefined;
    if (isOver) this.#onChange();
  }
}
