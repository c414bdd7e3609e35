import type { Batch, Destination } from '../../../src/streams/destination.ts';
import type { Link } from '../link.ts';
import type { Random } from '../random.ts';
import type { Trace } from '../trace.ts';
import type { Host } from '../world.ts';

/** A message that arrived at a receiver. */
export interface Received {
  id: string;
  type: string;
  position: string;
  key: string;
}

/** The receivers of all destinations. They are not part of Penstock. */
export class Receivers {
  /** Messages in the order in which they arrived, by destination. */
  readonly received = new Map<string, Received[]>();
  /** Probability that a receiver refuses a batch. */
  failing = 0;
  readonly #trace: Trace;
  readonly #random: Random;

  constructor({ trace, random }: { trace: Trace; random: Random }) {
    this.#trace = trace;
    this.#random = random;
  }

  /** Opens the connection of a process to a receiver. @param fail creates the error of a failed delivery */
  open(id: string, given: { host: Host; link: Link; fail(message: string): Error }): Destination {
    const { host, link, fail } = given;
    return {
      limits: { messages: 20, bytes: 100_000 },
      deliver: (batch, signal) =>
        new Promise((resolve, reject) => {
          const abort = () => reject(signal.reason);
          if (signal.aborted) return abort();
          signal.addEventListener('abort', abort, { once: true });
          link
            .send(() => this.#receive(id, batch, host.name))
            .then(
              (isTaken) => (isTaken ? resolve() : reject(fail('the destination answered with 503'))),
              () => reject(fail('the destination did not answer')),
            )
            .finally(() => signal.removeEventListener('abort', abort));
          return undefined;
        }),
      close() {},
    };
  }

  #receive(id: string, { messages }: Batch, by: string): boolean {
    if (this.#random.chance(this.failing)) {
      this.#trace.note('delivery refused', { destination: id, by });
      return false;
    }
    const all = this.received.get(id) ?? [];
    this.received.set(id, all);
    const latest = all.reduce((most, { position }) => (position > most ? position : most), '');
    const repeated = messages.filter(({ position }) => position <= latest).length;
    this.#trace.note('delivered', { destination: id, by, messages: messages.length, repeated });
    all.push(...messages.map(({ id: own, type, position, key }) => ({ id: own, type, position, key })));
    return true;
  }
}
