import { Column } from './column.ts';
import { type Kind, kinds } from './people.ts';

/** What the sender knows of an object. */
export type Standing =
  /** Answered with 201: it will take effect. */
  | 'acknowledged'
  /** Answered with 4xx, or refused by name: it has no effect. */
  | 'refused'
  /** 5xx, or no answer: it takes effect or it does not. */
  | 'unknown';

export interface RequestEntry {
  /** HTTP status; 0: no answer came. */
  status: number;
  /** Epoch milliseconds. */
  sentAt: number;
  milliseconds: number;
  retryAfter: number;
}

/**
 * The load client's own log: every request with its answer, and every object in it, in the order of sending. About
 * 30 bytes a request and 11 an object; what an object was follows from its user and round.
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
  /** Good objects of the requests answered with 201. */
  acknowledged = 0;

  get requests(): number {
    return this.#status.length;
  }

  get objects(): number {
    return this.#user.length;
  }

  /** Notes a request that is about to be sent; its number. */
  open(): number {
    const number = this.requests;
    this.#status.push(0);
    this.#sentAt.push(Date.now());
    this.#milliseconds.push(0);
    this.#retryAfter.push(0);
    return number;
  }

  /** Notes an object of a request; its number, by which it is found again in the store. */
  add(request: number, user: number, round: number, kind: Kind): number {
    const number = this.objects;
    this.#user.push(user);
    this.#round.push(round);
    this.#kind.push(kinds.indexOf(kind));
    this.#request.push(request);
    return number;
  }

  /** @param good objects of it that the edge takes */
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

  /** Requests with other answers than these, among those sent from `from` until before `to`, in epoch milliseconds. */
  requestsBut(statuses: number | number[], from = 0, to = Number.POSITIVE_INFINITY): number {
    const fine = [statuses].flat();
    return [...this.sentBetween(from, to)].filter(({ status }) => !fine.includes(status)).length;
  }

  /** Requests that were sent from `from` until before `to`, in epoch milliseconds. */
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

  standing(object: number): Standing {
    const status = this.#status.at(this.requestOf(object));
    if (status === 201) return this.kindOf(object) === 'bad' ? 'refused' : 'acknowledged';
    return status >= 400 && status < 500 ? 'refused' : 'unknown';
  }

  /** For a person: what it was, whose, and what its request was answered with. */
  describe(object: number): string {
    const request = this.requestOf(object);
    const { status } = this.request(request);
    const of = `${this.kindOf(object)} of person-${this.userOf(object)}, round ${this.roundOf(object)}`;
    return `object ${object} (${of}; request ${request} → ${status || 'no answer'})`;
  }

  /** How often each status came; 0: no answer. */
  statuses(): Map<number, number> {
    const counts = new Map<number, number>();
    for (let number = 0; number < this.requests; number++) {
      const status = this.#status.at(number);
      counts.set(status, (counts.get(status) ?? 0) + 1);
    }
    return counts;
  }
}
