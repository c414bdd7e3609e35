import { Column } from './column.ts';
import { type Kind, kinds } from './people.ts';

/** State of an object from the view of its sender. */
export type ObjectState =
  /** Answered with 201: it will take effect. */
  | 'acknowledged'
  /** Answered with 4xx, or rejected individually: it has no effect. */
  | 'refused'
  /** Answered with 5xx or not at all: it may or may not take effect. */
  | 'unknown';

export interface RequestEntry {
  /** HTTP status; 0 if there was no response. */
  status: number;
  /** Epoch milliseconds. */
  sentAt: number;
  milliseconds: number;
  retryAfter: number;
}

/**
 * The log of the load client: every request with its response, and every object in the order of sending. It
 * takes about 30 bytes per request and 11 per object; the content of an object follows from its user and
 * round.
 */
export class Journal {
  readonly #status = new Column(Uint16Array);
  readonly #sentAt = new Column(Float64Array);
  readonly #milliseconds = new Column(Float32Array);
  readonly #retryAfter = new Column(Uint8Array);
  readonly #user = new Column(Uint32Array);
  readonly #round = new Column(Uint16Array);
  readonly #kind = new Column(Uint8Array);
  readonly #request = new Column(Uint32Array);
  /** Number of valid objects in requests that were answered with 201. */
  acknowledged = 0;

  get requests(): number {
    return this.#status.length;
  }

  get objects(): number {
    return this.#user.length;
  }

  /** Records a request before it is sent and returns its number. */
  open(): number {
    const number = this.requests;
    this.#status.push(0);
    this.#sentAt.push(Date.now());
    this.#milliseconds.push(0);
    this.#retryAfter.push(0);
    return number;
  }

  /** Records an object of a request and returns its number, which identifies it in the store. */
  add(request: number, user: number, round: number, kind: Kind): number {
    const number = this.objects;
    this.#user.push(user);
    this.#round.push(round);
    this.#kind.push(kinds.indexOf(kind));
    this.#request.push(request);
    return number;
  }

  /** @param good number of its objects that are valid */
  close(request: number, answer: { status: number; milliseconds: number; retryAfter: number }, good: number) {
    this.#status.set(request, answer.status);
    this.#milliseconds.set(request, answer.milliseconds);
    this.#retryAfter.set(request, answer.retryAfter);
    if (answer.status === 201) this.acknowledged += good;
  }

  request(number: number): RequestEntry {
    return {
      status: this.#status.at(number),
      sentAt: this.#sentAt.at(number),
      milliseconds: this.#milliseconds.at(number),
      retryAfter: this.#retryAfter.at(number),
    };
  }

  /**
   * Counts requests with other statuses, among those sent from `from` until before `to`, in epoch
   * milliseconds.
   */
  requestsBut(statuses: number | number[], from = 0, to = Number.POSITIVE_INFINITY): number {
    const fine = [statuses].flat();
    return [...this.sentBetween(from, to)].filter(({ status }) => !fine.includes(status)).length;
  }

  /** Yields the requests that were sent from `from` until before `to`, in epoch milliseconds. */
  *sentBetween(from: number, to: number): Generator<RequestEntry> {
    for (let number = 0; number < this.requests; number++) {
      const at = this.#sentAt.at(number);
      if (at >= from && at < to) yield this.request(number);
    }
  }

  userOf = (object: number): number => this.#user.at(object);
  roundOf = (object: number): number => this.#round.at(object);
  kindOf = (object: number): Kind => kinds[this.#kind.at(object)]!;
  requestOf = (object: number): number => this.#request.at(object);

  stateOf(object: number): ObjectState {
    const status = this.#status.at(this.requestOf(object));
    if (status === 201) return this.kindOf(object) === 'bad' ? 'refused' : 'acknowledged';
    return status >= 400 && status < 500 ? 'refused' : 'unknown';
  }

  /** Describes an object with its user and the status of its request, for the report. */
  describe(object: number): string {
    const request = this.requestOf(object);
    const { status } = this.request(request);
    const of = `${this.kindOf(object)} of person-${this.userOf(object)}, round ${this.roundOf(object)}`;
    return `object ${object} (${of}; request ${request} → ${status || 'no answer'})`;
  }

  /** Returns the number of responses by status; 0 stands for no response. */
  statuses(): Map<number, number> {
    const counts = new Map<number, number>();
    for (let number = 0; number < this.requests; number++) {
      const status = this.#status.at(number);
      counts.set(status, (counts.get(status) ?? 0) + 1);
    }
    return counts;
  }
}
