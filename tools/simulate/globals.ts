import * as realCrypto from 'node:crypto';
import type { Cancel, Host } from './world.ts';

/** Globals of Node that the simulation replaces in a process. */
export const GLOBAL_NAMES = [
  'Date',
  'Math',
  'performance',
  'crypto',
  'setTimeout',
  'clearTimeout',
  'setInterval',
  'clearInterval',
  'setImmediate',
  'clearImmediate',
  'AbortSignal',
] as const;

type Callback = (...given: unknown[]) => void;

/** A timer with the methods of Node's timers that Penstock uses. */
class Timer {
  readonly #host: Host;
  readonly #delay: number;
  readonly #run: () => void;
  readonly #isRepeated: boolean;
  #cancel: Cancel = () => {};

  constructor(host: Host, delay: number, { run, isRepeated }: { run: () => void; isRepeated: boolean }) {
    this.#host = host;
    this.#delay = Math.max(1, Number.isFinite(delay) ? delay : 1);
    this.#run = run;
    this.#isRepeated = isRepeated;
    this.#start();
  }

  #start(): void {
    this.#cancel = this.#host.schedule(this.#delay, () => {
      if (this.#isRepeated) this.#start();
      this.#run();
    });
  }

  stop(): void {
    this.#cancel();
  }

  refresh(): this {
    this.#cancel();
    this.#start();
    return this;
  }

  unref(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  hasRef(): boolean {
    return true;
  }
}

/** Creates the globals and Node modules of a process. Time, timers and randomness come from the simulation. */
export function environmentOf(host: Host) {
  const { world, random } = host;
  const wallClock = () => Math.floor(world.wallClock() + host.clockOffset);

  class SimulatedDate extends Date {
    constructor(...given: [] | [string | number | Date]) {
      if (given.length === 0) super(wallClock());
      else super(...(given as [number]));
    }

    static override now(): number {
      return wallClock();
    }
  }

  const performance = {
    now: () => world.now - host.startedAt,
    timeOrigin: world.epoch + host.startedAt,
    eventLoopUtilization: () => ({ idle: 0, active: 0, utilization: 0 }),
  };
  const math = Object.assign(Object.create(Math), { random: () => random.number() });

  const setTimer =
    (isRepeated: boolean) =>
    (callback: Callback, delay = 1, ...given: unknown[]) =>
      new Timer(host, delay, { run: () => callback(...given), isRepeated });
  const setTimeout = setTimer(false);
  const setInterval = setTimer(true);
  const setImmediate = (callback: Callback, ...given: unknown[]) => {
    const cancel = host.schedule(0, () => callback(...given));
    return { stop: cancel, unref() {}, ref() {} };
  };
  const clear = (timer: { stop(): void } | undefined) => timer?.stop();

  /** Waits as the functions of `timers/promises` do. Rejects with `AbortError` when the signal aborts. */
  function wait<Value>(
    begin: (done: () => void) => { stop(): void },
    value: Value,
    signal: AbortSignal | undefined,
  ): Promise<Value> {
    return new Promise((resolve, reject) => {
      const abort = () => {
        timer?.stop();
        reject(
          Object.assign(new Error('The operation was aborted'), { name: 'AbortError', code: 'ABORT_ERR' }),
        );
      };
      let timer: { stop(): void } | undefined;
      if (signal?.aborted) return abort();
      timer = begin(() => {
        signal?.removeEventListener('abort', abort);
        resolve(value);
      });
      signal?.addEventListener('abort', abort, { once: true });
      return undefined;
    });
  }

  const timersPromises = {
    setTimeout: <Value>(delay?: number, value?: Value, { signal }: { signal?: AbortSignal } = {}) =>
      wait((done) => setTimeout(done, delay), value, signal),
    setImmediate: <Value>(value?: Value, { signal }: { signal?: AbortSignal } = {}) =>
      wait((done) => setImmediate(done), value, signal),
  };

  const simulatedSignal = new Proxy(AbortSignal, {
    get(target, name) {
      if (name !== 'timeout') return Reflect.get(target, name);
      return (delay: number) => {
        const controller = new AbortController();
        setTimeout(() => controller.abort(new DOMException('timed out', 'TimeoutError')), delay);
        return controller.signal;
      };
    },
  });

  const randomBytes = (count: number) => random.bytes(count);
  const randomUUID = () => {
    const bytes = random.bytes(16);
    bytes[6] = (bytes[6]! & 0x0f) | 0x40;
    bytes[8] = (bytes[8]! & 0x3f) | 0x80;
    const hex = bytes.toString('hex');
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
  };
  const randomInt = (from: number, to?: number) =>
    to === undefined ? random.integer(0, from - 1) : random.integer(from, to - 1);
  const fills = random.fork('fills');
  const randomFillSync = (target: Buffer) => {
    target.set(fills.bytes(target.length));
    return target;
  };
  const crypto = { ...realCrypto, randomBytes, randomFillSync, randomUUID, randomInt };

  const globals: Record<(typeof GLOBAL_NAMES)[number], unknown> = {
    Date: SimulatedDate,
    Math: math,
    performance,
    crypto: { randomUUID, subtle: realCrypto.webcrypto.subtle },
    setTimeout,
    clearTimeout: clear,
    setInterval,
    clearInterval: clear,
    setImmediate,
    clearImmediate: clear,
    AbortSignal: simulatedSignal,
  };
  const modules: Record<string, unknown> = {
    timers: globals,
    'timers/promises': timersPromises,
    crypto,
    perf_hooks: { performance },
  };
  return { globals, modules };
}
