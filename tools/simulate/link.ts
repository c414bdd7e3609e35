import type { Random } from './random.ts';
import type { Host, World } from './world.ts';

/** Delays and failures of the network. */
export interface Weather {
  /** Probability that a command or an answer takes long. */
  slow: number;
  /** Longest delay of a slow command or answer in milliseconds. */
  slowest: number;
  /** Probability that the connection breaks at a command. */
  cut: number;
}

export const CALM: Weather = { slow: 0.01, slowest: 30, cut: 0 };

/** The connection of a process to a server was lost. */
export class ConnectionLost extends Error {
  override name = 'ConnectionLost';
  readonly code = 'ECONNRESET';
}

/** An answer that the server gives later. Listeners are called synchronously, unlike those of a promise. */
export class Later<Answer> {
  #outcome: { answer: Answer } | { error: Error } | undefined;
  #listener: ((outcome: { answer: Answer } | { error: Error }) => void) | undefined;

  answer(answer: Answer): void {
    this.#settle({ answer });
  }

  fail(error: Error): void {
    this.#settle({ error });
  }

  #settle(outcome: { answer: Answer } | { error: Error }): void {
    if (this.#outcome) return;
    this.#outcome = outcome;
    this.#listener?.(outcome);
  }

  onOutcome(listener: (outcome: { answer: Answer } | { error: Error }) => void): void {
    if (this.#outcome) listener(this.#outcome);
    else this.#listener = listener;
  }
}

interface Call {
  channel: Channel;
  reject(error: Error): void;
  /** Whether the command has reached the server. */
  hasArrived: boolean;
  isDropped: boolean;
  isSettled: boolean;
}

/**
 * A TCP connection: commands arrive in the order in which they were sent, the server carries them out one after the
 * other, and answers arrive in that order.
 */
export class Channel {
  lastArrival = 0;
  lastAnswer = 0;
  /** Commands that have arrived and wait for the current command to end. */
  readonly waiting: (() => void)[] = [];
  isBusy = false;
}

export interface LinkOptions {
  host: Host;
  weather(): Weather;
  /** Whether commands are sent again after a lost connection. The server may then carry out a command twice. */
  resends: boolean;
}

/** The connections of one process to one server. */
export class Link {
  readonly #host: Host;
  readonly #world: World;
  readonly #random: Random;
  readonly #options: LinkOptions;
  readonly #calls = new Set<Call>();
  readonly #onCut: (() => void)[] = [];
  /** Simulated time in milliseconds until which the server cannot be reached. */
  #downUntil = 0;

  constructor(name: string, options: LinkOptions) {
    this.#options = options;
    this.#host = options.host;
    this.#world = options.host.world;
    this.#random = options.host.random.fork(name);
  }

  /** Adds a callback for each loss of the connections. */
  onCut(callback: () => void): void {
    this.#onCut.push(callback);
  }

  get isUp(): boolean {
    return this.#world.now >= this.#downUntil;
  }

  /**
   * Sends a command. The promise rejects when the connection breaks, even if the server has carried out the command.
   *
   * @param run carries out the command at the server
   * @param channel the connection; a new one by default
   */
  send<Answer>(run: () => Answer | Later<Answer>, channel = new Channel()): Promise<Answer> {
    return new Promise<Answer>((resolve, reject) => this.#send<Answer>(run, channel, { resolve, reject }));
  }

  #send<Answer>(
    run: () => Answer | Later<Answer>,
    channel: Channel,
    { resolve, reject }: { resolve(answer: Answer): void; reject(error: Error): void },
  ): void {
    const call: Call = { channel, hasArrived: false, isDropped: false, isSettled: false, reject: () => {} };
    const finishCall = (finish: () => void) => {
      if (call.isSettled) return;
      call.isSettled = true;
      this.#calls.delete(call);
      finish();
    };
    const answer = (finish: () => void) => {
      if (!call.isDropped) {
        channel.lastAnswer = Math.max(channel.lastAnswer, this.#world.now + this.#delay());
        const arrives = () => !call.isDropped && finishCall(finish);
        this.#world.schedule(channel.lastAnswer - this.#world.now, arrives, this.#host);
      }
      channel.isBusy = false;
      channel.waiting.shift()?.();
    };
    const carryOut = () => {
      channel.isBusy = true;
      let answered: Answer | Later<Answer>;
      try {
        answered = run();
      } catch (error) {
        answer(() => reject(error as Error));
        return;
      }
      if (answered instanceof Later) {
        answered.onOutcome((outcome) =>
          answer('error' in outcome ? () => reject(outcome.error) : () => resolve(outcome.answer)),
        );
        return;
      }
      const value = answered;
      answer(() => resolve(value));
    };
    call.reject = (error) => {
      const isAgain = this.#options.resends && this.#host.isAlive;
      const finish = isAgain ? () => this.#send(run, channel, { resolve, reject }) : () => reject(error);
      this.#world.schedule(this.#random.between(0, 5), () => finishCall(finish), this.#host);
    };
    this.#calls.add(call);
    const earliest = Math.max(this.#world.now, this.#downUntil) + this.#delay();
    channel.lastArrival = Math.max(channel.lastArrival, earliest);
    this.#world.schedule(channel.lastArrival - this.#world.now, () => {
      if (call.isDropped && !call.hasArrived) return;
      call.hasArrived = true;
      if (channel.isBusy) channel.waiting.push(carryOut);
      else carryOut();
    });
    if (this.#random.chance(this.#options.weather().cut)) this.cut(this.#random.between(0, 300));
  }

  #delay(): number {
    const { slow, slowest } = this.#options.weather();
    return this.#random.chance(slow) ? this.#random.between(0, slowest) : this.#random.between(0.05, 0.6);
  }

  /** Breaks the connections. A command in transit may still arrive, but its answer is lost. */
  cut(milliseconds: number): void {
    this.#downUntil = Math.max(this.#downUntil, this.#world.now + milliseconds);
    for (const callback of this.#onCut) callback();
    /** Channels that have lost a command. Their later commands are lost as well. */
    const lost = new Set<Channel>();
    for (const call of this.#calls) {
      // If the command is not lost, the server carries it out, and only its answer is lost.
      const isLost = !call.hasArrived && (lost.has(call.channel) || this.#random.chance(0.5));
      if (isLost) lost.add(call.channel);
      call.isDropped = true;
      if (!isLost) call.hasArrived = true;
      call.reject(new ConnectionLost('Connection terminated unexpectedly'));
    }
  }
}
