import { type LinkedSignal, linkSignals } from '../../src/platform/time-limit.ts';
import { DeliveryError } from '../../src/streams/destination.ts';

/**
 * Thrown if a delivery made no progress before its lease expired. Other processes may then deliver, so the
 * work must stop.
 */
export class LeaseOver extends DeliveryError {
  override name = 'LeaseOver';

  constructor(milliseconds: number) {
    super(`the delivery was abandoned: it made no progress for ${milliseconds / 1000} s`);
  }
}

/** The period in which this process may deliver. Each renewal in the store restarts it. */
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

  /** Aborts when the lease has expired. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** Aborts when the lease has expired or the process stops. Pass it to the work itself. */
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
