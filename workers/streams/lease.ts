import { type LinkedSignal, linkSignals } from '../../src/platform/time-limit.ts';
import { DeliveryError } from '../../src/streams/destination.ts';

/** A delivery made no progress until its lease ended: others may deliver, so that nothing more may be done for it. */
export class LeaseOver extends DeliveryError {
  override name = 'LeaseOver';

  constructor(milliseconds: number) {
    super(`the delivery was abandoned: it made no progress for ${milliseconds / 1000} s`);
  }
}

/** The time for which this process may deliver: each renewal in the store begins it again. */
export class DeliveryLease {
  readonly #milliseconds: number;
  readonly #over = new AbortController();
  readonly #work: LinkedSignal;
  #timer: NodeJS.Timeout | undefined;

  constructor(milliseconds: number, leaving: AbortSignal) {
    this.#milliseconds = milliseconds;
    this.#work = linkSignals({ signals: [leaving, this.#over.signal] });
    this.renew();
  }

  /** Aborts when the lease is over. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** Aborts when the lease is over, or the process leaves: for the work itself. */
  get signal(): AbortSignal {
    return this.#work.signal;
  }

  renew(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#over.abort(new LeaseOver(this.#milliseconds)), this.#milliseconds);
    this.#timer.unref();
  }

  release(): void {
    clearTimeout(this.#timer);
    this.#work.release();
  }
}
