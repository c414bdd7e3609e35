import { request as forward, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '../../platform/ids.ts';
import { refuse } from '../app.ts';
import { pathOf } from './journal.ts';

/** Kinds of faults, with what the client sees. */
export const faultKinds = {
  rate_limit: '429 with `Retry-After` and the `X-RateLimit-` headers of an exhausted limit.',
  server_error: '500.',
  unavailable: '503 with `Retry-After`.',
  delay: 'The usual response, `delay_ms` milliseconds later.',
  reset: 'A reset connection. The request is not accepted.',
  lost_response: 'A reset connection. The request is accepted and takes effect.',
} as const;

/** What happens to the next requests that match. */
export interface Fault {
  kind: keyof typeof faultKinds;
  /** Absent: any method, any path. */
  method?: string;
  path?: string;
  /** Number of requests. */
  times: number;
  delay_ms?: number;
  retry_after?: number;
}

/** A request, and what is done with it otherwise. */
interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  /** Adds it to the journal. From then on its body flows. */
  record(): void;
  proceed(): void;
}

/** Names a request that this process sends to itself, and that no fault and no journal concerns. */
const PASSED_ON = 'x-penstock-dev-passed-on';

/** Applies faults to requests, each fault to so many. */
export class Faults {
  #faults: Fault[] = [];
  readonly #token = newId();

  add(fault: Fault): void {
    this.#faults.push({ ...fault });
  }

  list(): Fault[] {
    return this.#faults;
  }

  clear(): void {
    this.#faults = [];
  }

  /** Returns whether this process has sent the request itself. */
  isPassedOn = (request: IncomingMessage): boolean => request.headers[PASSED_ON] === this.#token;

  /** Takes the fault that is next for a request; undefined: the request is handled as usual. */
  next({ method, url = '' }: IncomingMessage): Fault | undefined {
    const found = this.#faults.find(
      (one) =>
        (one.method === undefined || one.method.toUpperCase() === method) &&
        (one.path === undefined || one.path === pathOf(url)),
    );
    if (!found) return undefined;
    found.times--;
    if (found.times <= 0) this.#faults = this.#faults.filter((one) => one !== found);
    return found;
  }

  /** Treats a request as its fault says. */
  async apply({ kind, delay_ms = 0, retry_after = 1 }: Fault, exchange: Exchange): Promise<void> {
    const { request, response, record, proceed } = exchange;
    if (kind === 'delay') await sleep(delay_ms);
    record();
    if (kind === 'delay') proceed();
    else if (kind === 'reset') request.socket.resetAndDestroy();
    else if (kind === 'lost_response') this.#loseResponse(request);
    else {
      const [entry, headers] = answers[kind](retry_after);
      response.setHeader('X-Request-Id', newId());
      request.resume();
      refuse(response, entry, headers);
    }
  }

  /** Sends the request to this process again, and closes the connection of the client when the response is there. */
  #loseResponse(request: IncomingMessage): void {
    const { method, url, headers, socket } = request;
    const { address, port } = socket.address() as AddressInfo;
    const end = () => socket.resetAndDestroy();
    const again = forward({
      ...{ host: address, port, method, path: url, agent: false },
      headers: { ...headers, [PASSED_ON]: this.#token, connection: 'close' },
    });
    again.on('response', (response) => response.resume().on('close', end));
    again.on('error', end);
    request.pipe(again);
  }
}

const answers = {
  rate_limit: (seconds: number) =>
    [
      'rateLimited',
      {
        'Retry-After': String(seconds),
        'X-RateLimit-Limit': '250000',
        'X-RateLimit-Remaining': '0',
        'X-RateLimit-Reset': String(Math.ceil(Date.now() / 1000) + seconds),
      },
    ] as const,
  server_error: () => ['internal', {}] as const,
  unavailable: (seconds: number) => ['serverBusy', { 'Retry-After': String(seconds) }] as const,
};
