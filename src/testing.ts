import { type ChildProcess, spawn } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { systemVariables } from './platform/environment.ts';
import { packageRoot } from './platform/files.ts';

/*
 * The module `penstock/testing` of the npm package. tools/bundle.mjs writes it with its declarations to dist/bundle, so types of
 * this file must not name types of other files or of Node.
 */

/** Options of `startPenstock`. */
export interface PenstockOptions {
  /**
   * Settings, for example `{ SERVICE_ID_FIELD: 'braze_id' }`. `penstock dev` gets no other settings: variables of the tests such
   * as `DATABASE_URL` and `LOG_LEVEL` belong to the program under test.
   */
  env?: Record<string, string>;
  /** Port of the API. Default: a free port. */
  port?: number;
  /** Milliseconds until the start fails. Default: 60,000, because the first start creates a template of the database. */
  timeout?: number;
}

/** Address and credentials of a running `penstock dev`. It can be written as JSON. */
export interface PenstockConnection {
  /** Base URL of the API, for example `http://127.0.0.1:21345`. */
  url: string;
  apiKey: string;
  scimToken: string;
  /** Value of the header `X-Request-Origin` of SCIM requests. */
  scimOrigin: string;
  consoleUrl: string;
  consoleUser: string;
  consolePassword: string;
  /** Process id of `penstock dev`. */
  pid: number;
}

/** Result of `settle`. */
export interface Settled {
  settled: boolean;
  /** Objects that were accepted and could not be applied. */
  dead_letters: Record<string, unknown>[];
  /** Objects that responses reported as invalid since the last reset, each with the reason in `type`. */
  rejected: {
    request_id: string;
    operation: string;
    type: string;
    input_array: string;
    index: number;
    object: unknown;
  }[];
}

/** Selects requests. An absent member matches each request. */
export interface RequestMatcher {
  method?: string;
  /** Path without the query, for example `/users/track`. */
  path?: string;
  status?: number;
  /** JSON that the body contains: members of objects and elements of arrays. */
  body?: unknown;
}

/** A request that the program under test has sent. */
export interface RecordedRequest {
  request_id: string | null;
  received_at: string;
  method: string;
  path: string;
  query: Record<string, string>;
  headers: Record<string, string | string[] | undefined>;
  /** Parsed JSON, or text. Null without a body, or if the body has more than 256 KiB. */
  // biome-ignore lint/suspicious/noExplicitAny: tests read members of JSON whose form they know
  body: any;
  /** Null while the request is not answered, or if its connection was closed first. */
  status: number | null;
}

/** A failure of the next requests that match `method` and `path`. */
export interface Fault {
  kind:
    | 'rate_limit'
    | 'server_error'
    | 'unavailable'
    | 'delay'
    | 'reset'
    | 'lost_response'
    | 'object_errors'
    | 'stale_reads';
  method?: string;
  path?: string;
  /** Number of requests. Default: 1. */
  times?: number;
  /** Milliseconds of a `delay`. */
  delay_ms?: number;
  /** Seconds in the header `Retry-After`. Default: 1. */
  retry_after?: number;
  /** Objects of the request that `object_errors` reports as wrong. */
  errors?: { input_array: string; index: number; type: string }[];
  /** Seconds of `stale_reads`. */
  seconds?: number;
}

/** Time in `penstock dev`. */
export interface ClockState {
  now: string;
  real_time: string;
  ahead_seconds: number;
  frozen: boolean;
}

/** Changes the time in `penstock dev`. Work that is due at the new time is done before the promise resolves. */
export interface Clock {
  get(): Promise<ClockState>;
  /** Sets the time, for example to `2027-01-31T12:00:00Z`. */
  set(time: Date | string): Promise<ClockState>;
  /** Moves the time forward by seconds, or by an amount such as `3 days` or `1 hour 30 minutes`. */
  advance(amount: number | string): Promise<ClockState>;
  freeze(): Promise<ClockState>;
  unfreeze(): Promise<ClockState>;
  /** Returns to the time of the machine. */
  reset(): Promise<ClockState>;
}

/** A running `penstock dev`. Methods send and return the JSON of the control endpoints. */
export interface PenstockClient extends PenstockConnection {
  /** Address and credentials, for `connectPenstock` in another process. */
  readonly connection: PenstockConnection;
  /** Sends a request with the API key and returns the JSON of the response. Fails if the status is 400 or more. */
  // biome-ignore lint/suspicious/noExplicitAny: tests read members of JSON whose form they know
  get(path: string): Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: tests read members of JSON whose form they know
  post(path: string, body: object): Promise<any>;
  /** Removes all data, the journal of requests and all faults. */
  reset(): Promise<void>;
  /** Waits until everything that was accepted has taken effect. Fails after `timeout_ms`, by default 10,000. */
  settle(options?: { timeout_ms?: number }): Promise<Settled>;
  /** Keeps a copy of all data under a name. */
  snapshot(name: string): Promise<void>;
  /** Replaces all data by the copy of that name. */
  restore(name: string): Promise<void>;
  /** Lists requests that match, oldest first. */
  requests(matcher?: RequestMatcher): Promise<RecordedRequest[]>;
  /** Clears the journal of requests. */
  clearRequests(): Promise<void>;
  /** Lets the next requests that match fail. */
  fault(fault: Fault): Promise<void>;
  /** Removes the faults that are still to be applied. */
  clearFaults(): Promise<void>;
  readonly clock: Clock;
  /** Creates users, groups and other objects of a JSON document or a YAML text, and returns their numbers and ids. */
  // biome-ignore lint/suspicious/noExplicitAny: the form depends on the document
  seed(document: object | string): Promise<any>;
}

/** A `penstock dev` that `startPenstock` has started. It also stops when the process of the tests ends. */
export interface Penstock extends PenstockClient {
  /** Stops it and removes its data. */
  stop(): Promise<void>;
}

/** The command of the package that contains this file. */
const COMMAND = path.join(packageRoot, 'scripts/penstock.cjs');

/** Milliseconds until the start fails, and until a process that was asked to stop is killed. */
const START_MS = 60_000;
const STOP_MS = 10_000;

/** Milliseconds to wait for the output of a process that has exited. */
const OUTPUT_MS = 1000;

/** Lines of output in messages. */
const SHOWN_LINES = 20;

// Keep the original functions, because tests often replace these globals by fakes.
const { fetch, setTimeout, clearTimeout } = globalThis;

/** Starts `penstock dev` and waits until it accepts requests. */
export async function startPenstock(options: PenstockOptions = {}): Promise<Penstock> {
  const { env = {}, port = 0, timeout = START_MS } = options;
  const child = spawn(process.execPath, [COMMAND, 'dev', '--json', '--port', String(port)], {
    // With the channel, the process notices when this one ends, even if it is killed.
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: { ...systemVariables(), ...env },
  });
  const running = watch(child);
  const connection = readConnection(await firstLine(child, running, timeout));
  detach(child);
  return {
    ...createClient(connection, running),
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
      await running.exited;
      clearTimeout(late);
    },
  };
}

/** Controls a `penstock dev` that another process has started, for example the global setup of a test runner. */
export function connectPenstock(connection: PenstockConnection): PenstockClient {
  return createClient(connection);
}

interface Running {
  exited: Promise<unknown>;
  /** Describes how the process has ended and its last output. Undefined while it runs. */
  end(): string | undefined;
  /** Last output of the process, for a message. */
  output(): string;
}

function watch(child: ChildProcess): Running {
  const lines: string[] = [];
  createInterface({ input: child.stderr! }).on('line', (line) => {
    if (lines.push(line) > SHOWN_LINES) lines.shift();
  });
  let end: string | undefined;
  const exited = new Promise<void>((resolve) => {
    child.once('error', (error) => {
      end = error.message;
      resolve();
    });
    child.once('exit', (code, signal) => {
      end = code === null ? `it was ended by ${signal}` : `it exited with code ${code}`;
      const late = setTimeout(resolve, OUTPUT_MS);
      child.once('close', () => {
        clearTimeout(late);
        resolve();
      });
    });
  });
  const output = () => (lines.length === 0 ? ' It printed no error.' : ` Its output:\n${lines.join('\n')}`);
  return { exited, output, end: () => end && `${end}.${output()}` };
}

async function firstLine(child: ChildProcess, running: Running, milliseconds: number): Promise<string> {
  let late: ReturnType<typeof setTimeout> | undefined;
  try {
    return await Promise.race([
      new Promise<string>((resolve) => createInterface({ input: child.stdout! }).once('line', resolve)),
      running.exited.then(() => {
        throw new Error(`penstock dev did not start: ${running.end()}`);
      }),
      new Promise<never>((_, reject) => {
        late = setTimeout(() => {
          child.kill('SIGKILL');
          reject(new Error(`penstock dev did not start within ${milliseconds} ms.${running.output()}`));
        }, milliseconds);
      }),
    ]);
  } finally {
    clearTimeout(late);
  }
}

function readConnection(line: string): PenstockConnection {
  const facts = JSON.parse(line);
  return {
    url: facts.url,
    apiKey: facts.api_key,
    scimToken: facts.scim_token,
    scimOrigin: facts.scim_origin,
    consoleUrl: facts.console,
    consoleUser: facts.console_user,
    consolePassword: facts.console_password,
    pid: facts.pid,
  };
}

/** Lets this process exit while `penstock dev` still runs, so that a test that does not stop it does not hang. */
function detach(child: ChildProcess): void {
  child.unref();
  child.channel?.unref();
  for (const stream of [child.stdout, child.stderr]) (stream as unknown as { unref(): void }).unref();
}

function createClient(connection: PenstockConnection, running?: Running): PenstockClient {
  const request = async <Reply>(method: string, target: string, body?: object | string): Promise<Reply> => {
    const isText = typeof body === 'string';
    const response = await fetch(`${connection.url}${target}`, {
      method,
      headers: {
        Authorization: `Bearer ${connection.apiKey}`,
        'Content-Type': isText ? 'application/yaml' : 'application/json',
      },
      ...(body !== undefined && { body: isText ? body : JSON.stringify(body) }),
    }).catch((error: Error) => {
      const reason = running?.end() ?? error.message;
      throw new Error(`penstock dev at ${connection.url} does not answer ${method} ${target}: ${reason}`, {
        cause: error,
      });
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${target} failed with ${response.status}: ${text}`);
    return JSON.parse(text) as Reply;
  };
  const send = async (method: string, target: string, body?: object) =>
    void (await request(method, target, body));
  const changeClock = (change: object) => request<ClockState>('POST', '/_dev/clock', change);
  return {
    ...connection,
    connection,
    get: (target) => request('GET', target),
    post: (target, body) => request('POST', target, body),
    reset: () => send('POST', '/_dev/reset'),
    settle: (options = {}) => request('POST', '/_dev/settle', options),
    snapshot: (name) => send('POST', '/_dev/snapshot', { name }),
    restore: (name) => send('POST', '/_dev/restore', { name }),
    requests: async (matcher = {}) =>
      (await request<{ requests: RecordedRequest[] }>('POST', '/_dev/requests', matcher)).requests,
    clearRequests: () => send('DELETE', '/_dev/requests'),
    fault: (fault) => send('POST', '/_dev/faults', fault),
    clearFaults: () => send('DELETE', '/_dev/faults'),
    clock: {
      get: () => request('GET', '/_dev/clock'),
      set: (time) => changeClock({ set: new Date(time).toISOString() }),
      advance: (amount) => changeClock({ advance: amount }),
      freeze: () => changeClock({ freeze: true }),
      unfreeze: () => changeClock({ freeze: false }),
      reset: () => changeClock({ real: true }),
    },
    seed: (document) => request('POST', '/_dev/seed', document),
  };
}
