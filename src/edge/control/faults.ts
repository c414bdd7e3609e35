import { request as forward, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { now } from '../../platform/clock.ts';
import { newId } from '../../platform/ids.ts';
import type { Database, Pool } from '../../store/database.ts';
import { refuse } from '../app.ts';
import { pathOf } from './journal.ts';
import { type ObjectError, withOperationFaults } from './operation-faults.ts';

/** Kinds of faults, with what the client sees. */
export const faultKinds = {
  rate_limit: '429 with `Retry-After` and the `X-RateLimit-` headers of an exhausted limit.',
  server_error: '500.',
  unavailable: '503 with `Retry-After`.',
  delay: 'The usual response, `delay_ms` milliseconds later.',
  reset: 'A reset connection. The request is not accepted.',
  lost_response: 'A reset connection. The request is accepted and takes effect.',
  object_errors:
    'The usual response with `errors` for the objects that `errors` names, for example `[{"input_array": "events", "index": 1, "type": "\'name\' is not valid"}]`. The other objects take effect.',
  stale_reads:
    'For `seconds` seconds, all reads that match return the data of the time at which you added the fault. `times` does not apply.',
} as const;

/** A failure of the next requests that match. */
export interface Fault {
  kind: keyof typeof faultKinds;
  /** Absent: any method, any path. */
  method?: string;
  path?: string;
  /** Number of requests. */
  times: number;
  delay_ms?: number;
  retry_after?: number;
  errors?: ObjectError[];
  seconds?: number;
}

/** Reads that match return the rows as of a moment in the past. */
interface StaleReads {
  fault: Fault;
  database: Database;
  expires: NodeJS.Timeout;
}

const STALE_SECONDS = 5;

const applies = ({ method: wanted, path }: Fault, { method, url = '' }: IncomingMessage): boolean =>
  (wanted === undefined || wanted.toUpperCase() === method) && (path === undefined || path === pathOf(url));

/** A request, and its handling without a fault. */
interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  /** Adds it to the journal. From then on its body is read. */
  record(): void;
  proceed(): void;
}

/** Header of requests that this process sends to itself. Faults and the journal ignore these requests. */
const PASSED_ON = 'x-penstock-dev-passed-on';

/** Applies faults to requests, each fault to a given number of requests. */
export class Faults {
  #faults: Fault[] = [];
  #stale: StaleReads | undefined;
  readonly #token = newId();
  readonly #pool: Pool;
  readonly #limitOf: (request: IncomingMessage) => number;

  /** @param limitOf number of requests that the rate limit of a request allows */
  constructor(pool: Pool, limitOf: (request: IncomingMessage) => number) {
    this.#pool = pool;
    this.#limitOf = limitOf;
  }

  async add(fault: Fault): Promise<void> {
    if (fault.kind !== 'stale_reads') return void this.#faults.push({ ...fault });
    const { seconds = STALE_SECONDS } = fault;
    const { openStaleDatabase } = await import('../../store/stale-database.ts');
    const database = await openStaleDatabase(this.#pool);
    await this.#endStale();
    const expires = setTimeout(() => void this.#endStale(), seconds * 1000).unref();
    this.#stale = { fault: { ...fault, seconds }, database, expires };
  }

  list(): Fault[] {
    return [...this.#faults, ...(this.#stale ? [this.#stale.fault] : [])];
  }

  async clear(): Promise<void> {
    this.#faults = [];
    await this.#endStale();
  }

  async #endStale(): Promise<void> {
    const stale = this.#stale;
    if (!stale) return;
    this.#stale = undefined;
    clearTimeout(stale.expires);
    await stale.database.stop();
  }

  /** The database that a request reads; undefined: the current data. */
  staleDatabase(request: IncomingMessage): Database | undefined {
    return this.#stale && applies(this.#stale.fault, request) ? this.#stale.database : undefined;
  }

  /** The headers that mark requests of this process to itself. */
  get ownHeaders(): Record<string, string> {
    return { [PASSED_ON]: this.#token };
  }

  /** Returns whether this process has sent the request itself. */
  isPassedOn = (request: IncomingMessage): boolean => request.headers[PASSED_ON] === this.#token;

  /** Takes the fault that is next for a request; undefined: the request is handled as usual. */
  next(request: IncomingMessage): Fault | undefined {
    const fault = this.#faults.find((one) => applies(one, request));
    if (!fault) return undefined;
    fault.times--;
    if (fault.times <= 0) this.#faults = this.#faults.filter((one) => one !== fault);
    return fault;
  }

  /** Handles a request according to its fault. */
  async apply(fault: Fault, exchange: Exchange): Promise<void> {
    const { kind, delay_ms = 0, retry_after = 1, errors = [] } = fault;
    const { request, response, record, proceed } = exchange;
    if (kind === 'delay') await sleep(delay_ms);
    record();
    if (kind === 'delay') proceed();
    else if (kind === 'object_errors') withOperationFaults({ errors }, proceed);
    else if (kind === 'reset') request.socket.resetAndDestroy();
    else if (kind === 'lost_response') this.#loseResponse(request);
    else {
      const [entry, headers] = answers[kind as keyof typeof answers](retry_after, this.#limitOf(request));
      response.setHeader('X-Request-Id', newId());
      request.resume();
      refuse(response, entry, headers);
    }
  }

  /**
   * Sends the request to this process again, and closes the connection of the client when the response has arrived.
   */
  #loseResponse(request: IncomingMessage): void {
    const { method, url, headers, socket } = request;
    const { address, port } = socket.address() as AddressInfo;
    const end = () => socket.resetAndDestroy();
    const again = forward({
      ...{ host: address, port, method, path: url, agent: false },
      headers: { ...headers, ...this.ownHeaders, connection: 'close' },
    });
    again.on('response', (response) => response.resume().on('close', end));
    again.on('error', end);
    request.pipe(again);
  }
}

const answers = {
  rate_limit: (seconds: number, limit: number) =>
    [
      'rateLimited',
      {
        'Retry-After': String(seconds),
        'X-RateLimit-Limit': String(limit),
        'X-RateLimit-Remaining': '0',
        'X-RateLimit-Reset': String(Math.ceil(now() / 1000) + seconds),
      },
    ] as const,
  server_error: () => ['internal', {}] as const,
  unavailable: (seconds: number) => ['serverBusy', { 'Retry-After': String(seconds) }] as const,
};
