import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Operation } from '../../operations/operation.ts';
import { readUpTo } from '../../platform/bounded-body.ts';
import { type ClockState, REAL_TIME } from '../../platform/clock.ts';
import { backOff, until } from '../../platform/poll.ts';
import type { Host, SeedDefinitions } from '../../processes/host.ts';
import type { Json } from '../../profile/json.ts';
import type { LaneStore } from '../../queue/lane-store.ts';
import { everyLane } from '../../queue/lanes.ts';
import { compile, describeError, type Schema } from '../../schemas/compile.ts';
import { buckets } from '../../schemas/limits.ts';
import type { Database } from '../../store/database.ts';
import {
  countUnfinishedWork,
  dropSnapshot,
  EMPTY_SNAPSHOT,
  listWaitingDeadLetters,
  restoreSnapshot,
  takeSnapshot,
} from '../../store/snapshots.ts';
import type { RefusedObjectsOf } from '../refused-objects.ts';
import { AMOUNT, Clock, type ClockChange, changedClock } from './clock.ts';
import { type Fault, Faults, faultKinds } from './faults.ts';
import { Journal, pathOf, type RequestMatcher } from './journal.ts';
import { faulty, withOperationFaults } from './operation-faults.ts';
import { seedSchema } from './seed-schema.ts';

/** The path of all control endpoints. */
const CONTROL_ROOT = '/_dev';

const MAX_BODY_BYTES = 4_194_304;

/** Dead letters and rejected requests that `settle` returns. */
const MAX_LISTED = 1000;

/** Milliseconds that `settle` waits by default. */
const SETTLE_MS = 10_000;

/** Milliseconds between two checks of the lanes: the first and the longest pause. */
const FIRST_POLL_MS = 1;
const MAX_POLL_MS = 25;

interface ControlSources {
  database: Pick<Database, 'pool' | 'prisma'>;
  laneStore: LaneStore;
  lanes: number;
  /** Number of accepted objects that are not in a lane yet. */
  pending(): number;
  /** Control of the program's other parts. */
  parts: NonNullable<Host['control']>;
}

type Handle<Request extends IncomingMessage> = (request: Request, response: ServerResponse) => void;

/** The answer of an endpoint. */
interface ControlReply {
  status?: number;
  body: object;
}

/** A control endpoint, with its documentation. */
export interface ControlEndpoint {
  id: string;
  method: 'GET' | 'POST' | 'DELETE';
  path: string;
  summary: string;
  description: string;
  body?: Schema;
  /** Other types of the same body, for endpoints that read its text. */
  alsoType?: string;
  /** A valid body and the answer to it. */
  example: { body?: object; reply: object };
  /**
   * @param body validated by the schema `body`, {} if it was not sent; its text if there is another type
   * @param origin URL of this process
   */
  handle(body: never, origin: string): Promise<ControlReply> | ControlReply;
}

const SUCCESS = { message: 'success' };

const BUSY: ControlReply = {
  status: 409,
  body: { message: `Requests or jobs were still in progress after ${SETTLE_MS / 1000} s.` },
};

/** Snapshot of the data before a seed. No client can use this name. */
const BEFORE_SEED = 'before seed';

/** Letters, digits, `_` and `-`: the name becomes a part of a name in Postgres. */
const snapshotName = {
  type: 'object',
  additionalProperties: false,
  required: ['name'],
  properties: {
    name: {
      type: 'string',
      pattern: '^[A-Za-z0-9_-]{1,40}$',
      rule: 'it must have 1 to 40 letters, digits, hyphens and underscores',
      description: 'Name of the snapshot.',
    },
  },
} as const;

const matcher = {
  type: 'object',
  additionalProperties: false,
  properties: {
    method: { type: 'string', description: 'For example `POST`.' },
    path: { type: 'string', description: 'For example `/users/track`, without the query.' },
    status: { type: 'integer', description: 'Status of the response.' },
    body: { description: 'JSON that the body contains: members of objects and elements of arrays.' },
  },
} as const;

const exampleClock = {
  now: '2027-02-03T12:00:00.000Z',
  real_time: '2027-01-31T12:00:00.000Z',
  ahead_seconds: 259_200,
  frozen: false,
};

const times = { type: 'integer', minimum: 1, maximum: 1_000_000, default: 1 };

/**
 * Creates the control endpoints of `penstock dev`, and hooks into all other requests: a journal, faults, and a gate
 * that holds requests while rows are replaced.
 */
export function createControl(sources: ControlSources) {
  const { database, laneStore, lanes, pending, parts } = sources;
  const { pool } = database;
  const { forget, noteActivity } = parts;
  const journal = new Journal();
  /** Sizes of rate limits by method and path. */
  const limits = new Map<string, number>();
  const faults = new Faults(
    pool,
    ({ method, url = '' }) => limits.get(`${method} ${pathOf(url)}`) ?? buckets.default.requests,
  );
  const clock = new Clock(pool, forget);
  /** The state of the clock at each snapshot. */
  const clocks = new Map<string, ClockState>([[EMPTY_SNAPSHOT, REAL_TIME]]);
  let rejected: object[] = [];
  /** Requests that are not answered yet. */
  let inHand = 0;
  /** Set while rows are replaced. */
  let gate: Promise<unknown> | undefined;

  async function isIdle(): Promise<boolean> {
    // A client may have disconnected before its objects were added.
    if (inHand > 0 || pending() > 0) return false;
    const depths = await Promise.all(everyLane(lanes).map((lane) => laneStore.depth(lane)));
    if (depths.some(({ waiting, active }) => waiting + active > 0)) return false;
    const { syncRuns, segmentExports } = await countUnfinishedWork(database);
    return syncRuns + segmentExports === 0;
  }

  const settle = (milliseconds: number) =>
    until(isIdle, {
      every: backOff(FIRST_POLL_MS, MAX_POLL_MS),
      deadline: Date.now() + milliseconds,
    });

  /**
   * Runs work while no request and no job is in progress. Requests that arrive meanwhile wait. Calls run one after
   * the other.
   */
  async function alone(work: () => Promise<ControlReply>): Promise<ControlReply> {
    const whenIdle = async () => ((await settle(SETTLE_MS)) ? work() : BUSY);
    const before = gate;
    const mine = (before ?? Promise.resolve()).then(whenIdle);
    const settled = mine.catch(() => {});
    gate = settled;
    try {
      return await mine;
    } finally {
      if (gate === settled) gate = undefined;
    }
  }

  /** Replaces all rows, and restores the clock that they were written with. */
  const replace = (name: string): Promise<ControlReply> =>
    alone(async () => {
      if (!(await restoreSnapshot(pool, name)))
        return { status: 404, body: { message: `There is no snapshot '${name}'.` } };
      await clock.set(clocks.get(name)!);
      forget();
      rejected = [];
      return { body: SUCCESS };
    });

  /** Applies a seed completely, or not at all. */
  async function seed(
    text: string,
    {
      applySeed,
      SeedError,
      definitions,
      origin,
    }: typeof import('./seed.ts') & {
      definitions: SeedDefinitions;
      origin: string;
    },
  ): Promise<ControlReply> {
    async function send(method: string, path: string, body: Record<string, Json>) {
      const response = await fetch(`${origin}${path}`, {
        method,
        headers: {
          ...{ Authorization: `Bearer ${parts.apiKey}`, 'Content-Type': 'application/json' },
          ...faults.ownHeaders,
        },
        body: JSON.stringify(body),
      });
      return { status: response.status, body: (await response.json()) as Record<string, Json> };
    }
    await takeSnapshot(pool, BEFORE_SEED);
    const noted = rejected.length;
    try {
      const applied = await applySeed(text, {
        definitions,
        async send(...request) {
          const answer = await send(...request);
          if (answer.status !== 429) return answer;
          // A seed may be larger than a rate limit.
          forget();
          return send(...request);
        },
      });
      return { body: { ...applied, message: 'success' } };
    } catch (error) {
      await restoreSnapshot(pool, BEFORE_SEED);
      rejected.length = noted;
      if (!(error instanceof SeedError)) throw error;
      return {
        status: 400,
        body: { message: 'The seed was refused; nothing was created.', errors: [...error.problems] },
      };
    } finally {
      await dropSnapshot(pool, BEFORE_SEED);
      forget();
    }
  }

  const endpoints: ControlEndpoint[] = [
    {
      id: 'dev.reset',
      method: 'POST',
      path: `${CONTROL_ROOT}/reset`,
      summary: 'Remove all data',
      description:
        'Removes everything that requests have stored, the journal of requests and all faults, and sets the clock to real time. The first workspace and its credentials, and snapshots, remain. Waits for requests and jobs in progress.',
      example: { reply: SUCCESS },
      async handle() {
        await faults.clear();
        const reply = await replace(EMPTY_SNAPSHOT);
        if (reply !== BUSY) journal.clear();
        return reply;
      },
    },
    {
      id: 'dev.settle',
      method: 'POST',
      path: `${CONTROL_ROOT}/settle`,
      summary: 'Wait until everything has taken effect',
      description:
        'Returns when all accepted requests have taken effect and syncs and segment exports have ended. `dead_letters` are objects that were accepted and could not be applied, and `rejected` are objects that were reported in responses since the last reset. Returns 504 if that takes longer than `timeout_ms`.',
      body: {
        type: 'object',
        additionalProperties: false,
        properties: {
          timeout_ms: {
            type: 'integer',
            ...{ minimum: 0, maximum: 600_000, default: SETTLE_MS },
            description: 'Longest time to wait.',
          },
        },
      },
      example: { body: {}, reply: { settled: true, dead_letters: [], rejected: [] } },
      async handle({ timeout_ms = SETTLE_MS }: { timeout_ms?: number }) {
        const settled = await settle(timeout_ms);
        const letters = await listWaitingDeadLetters(database, MAX_LISTED);
        const dead_letters = letters.map(({ requestId, ...letter }) => ({
          ...letter,
          request_id: requestId,
        }));
        return { status: settled ? 200 : 504, body: { settled, dead_letters, rejected } };
      },
    },
    {
      id: 'dev.snapshot',
      method: 'POST',
      path: `${CONTROL_ROOT}/snapshot`,
      summary: 'Take a snapshot',
      description:
        'Keeps a copy of all data and the state of the clock under a name until the process stops. An earlier snapshot of that name is replaced.',
      body: snapshotName,
      example: { body: { name: 'with_users' }, reply: SUCCESS },
      handle({ name }: { name: string }) {
        if (name === EMPTY_SNAPSHOT)
          return { status: 400, body: { message: `The snapshot '${EMPTY_SNAPSHOT}' cannot be replaced.` } };
        return alone(async () => {
          await takeSnapshot(pool, name);
          clocks.set(name, clock.state);
          return { body: SUCCESS };
        });
      },
    },
    {
      id: 'dev.restore',
      method: 'POST',
      path: `${CONTROL_ROOT}/restore`,
      summary: 'Restore a snapshot',
      description: `Replaces all data and the state of the clock by a snapshot. The snapshot \`${EMPTY_SNAPSHOT}\` always exists. Waits for requests and jobs in progress.`,
      body: snapshotName,
      example: { body: { name: EMPTY_SNAPSHOT }, reply: SUCCESS },
      handle: ({ name }: { name: string }) => replace(name),
    },
    {
      id: 'dev.seed',
      method: 'POST',
      path: `${CONTROL_ROOT}/seed`,
      summary: 'Create data',
      description:
        'Creates users, events, purchases, subscription groups with states, preference centers, segments and integrations from a JSON or YAML document, through the operations of the API and the commands of `penstock`. All data has taken effect when the response arrives. If a part is refused, nothing is created, and `errors` names the positions, lines and rules.',
      body: seedSchema,
      alsoType: 'application/yaml',
      example: {
        body: {
          subscription_groups: [{ name: 'News', channel: 'email' }],
          users: [
            {
              external_id: 'ada',
              attributes: { first_name: 'Ada', email: 'ada@example.com' },
              subscription_groups: { News: 'subscribed' },
            },
          ],
        },
        reply: {
          ...{ users: 1, aliases: 0, events: 0, purchases: 0, preference_centers: {}, segments: {} },
          ...{ subscription_groups: { News: '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f' }, integrations: {} },
          message: 'success',
        },
      },
      async handle(text: string, origin: string) {
        const definitions = await parts.definitions();
        const program = await import('./seed.ts');
        return alone(() => seed(text, { ...program, definitions, origin }));
      },
    },
    {
      id: 'dev.clock.show',
      method: 'GET',
      path: `${CONTROL_ROOT}/clock`,
      summary: 'Read the clock',
      description:
        'Returns the time of the service (`now`), the time of the machine, the difference, and whether the time of the service is frozen.',
      example: { reply: exampleClock },
      handle: () => ({ body: clock.show() }),
    },
    {
      id: 'dev.clock.set',
      method: 'POST',
      path: `${CONTROL_ROOT}/clock`,
      summary: 'Set the clock',
      description:
        'Changes the time that the service and its database read. The members apply in the order `real`, `set`, `advance`, `freeze`. Waits for requests and jobs in progress, changes the time, and then does what is due: scheduled syncs, retention and removal of expired rows. `settle` waits for the syncs. Logs, timeouts and the clock of your client are not affected. If you set the clock back, stored objects can have times in the future.',
      body: {
        type: 'object',
        additionalProperties: false,
        minProperties: 1,
        properties: {
          real: { const: true, rule: 'it must be true', description: 'Returns to the time of the machine.' },
          set: { type: 'string', description: 'Time in ISO 8601, for example `2027-01-31T12:00:00Z`.' },
          advance: {
            type: ['string', 'number'],
            minimum: 0,
            pattern: AMOUNT,
            rule: "it must be a number of seconds, or an amount such as '3 days' or '1 hour 30 minutes'",
            description:
              'Amount of time to add: seconds, or text with the units `seconds`, `minutes`, `hours`, `days`, `weeks`, `months` and `years`.',
          },
          freeze: {
            type: 'boolean',
            description:
              '`true`: time does not advance, and only `set` and `advance` change it. `false`: time passes again.',
          },
        },
      },
      example: { body: { advance: '3 days' }, reply: exampleClock },
      async handle(change: ClockChange) {
        await parts.startAll();
        return alone(async () => {
          const next = changedClock(change);
          if (typeof next === 'string') return { status: 400, body: { message: next } };
          await clock.set(next);
          await clock.doDue();
          return { body: clock.show() };
        });
      },
    },
    {
      id: 'dev.requests.list',
      method: 'GET',
      path: `${CONTROL_ROOT}/requests`,
      summary: 'List requests',
      description: 'Lists the last 1,000 requests, oldest first, without control requests.',
      example: { reply: { count: 0, requests: [] } },
      handle: () => listRequests({}),
    },
    {
      id: 'dev.requests.search',
      method: 'POST',
      path: `${CONTROL_ROOT}/requests`,
      summary: 'Search requests',
      description: 'Lists the requests that match all given members, oldest first.',
      body: matcher,
      example: {
        body: { method: 'POST', path: '/users/track', body: { events: [{ name: 'signed_up' }] } },
        reply: { count: 0, requests: [] },
      },
      handle: (wanted: RequestMatcher) => listRequests(wanted),
    },
    {
      id: 'dev.requests.clear',
      method: 'DELETE',
      path: `${CONTROL_ROOT}/requests`,
      summary: 'Clear the journal of requests',
      description: 'Removes all requests from the journal.',
      example: { reply: SUCCESS },
      handle() {
        journal.clear();
        return { body: SUCCESS };
      },
    },
    {
      id: 'dev.faults.list',
      method: 'GET',
      path: `${CONTROL_ROOT}/faults`,
      summary: 'List faults',
      description: 'Lists the faults that are still to be applied, with the number of requests that is left.',
      example: { reply: { faults: [] } },
      handle: () => ({ body: { faults: faults.list() } }),
    },
    {
      id: 'dev.faults.add',
      method: 'POST',
      path: `${CONTROL_ROOT}/faults`,
      summary: 'Add a fault',
      description: `Lets the next \`times\` requests that match \`method\` and \`path\` fail. Faults apply in the order in which they were added. Kinds: ${Object.entries(
        faultKinds,
      )
        .map(([kind, effect]) => `\`${kind}\`: ${effect}`)
        .join(' ')}`,
      body: {
        type: 'object',
        additionalProperties: false,
        required: ['kind'],
        properties: {
          kind: { type: 'string', enum: Object.keys(faultKinds), description: 'Kind of the fault.' },
          method: matcher.properties.method,
          path: matcher.properties.path,
          times: { ...times, description: 'Number of requests.' },
          delay_ms: { type: 'integer', minimum: 0, maximum: 600_000, description: 'Time for `delay`.' },
          retry_after: {
            type: 'integer',
            ...{ minimum: 0, maximum: 3600, default: 1 },
            description: 'Seconds in `Retry-After`.',
          },
          errors: {
            type: 'array',
            ...{ minItems: 1, maxItems: 1000 },
            description: 'Objects that `object_errors` refuses.',
            items: {
              type: 'object',
              additionalProperties: false,
              required: ['index'],
              properties: {
                input_array: {
                  type: 'string',
                  description: 'Name of the array; by default the first array of the request.',
                },
                index: { type: 'integer', minimum: 0, description: 'Position in the array, from 0.' },
                type: { type: 'string', minLength: 1, description: 'Text of the error.' },
              },
            },
          },
          seconds: {
            type: 'number',
            ...{ minimum: 0, maximum: 600, default: 5 },
            description: 'Duration of `stale_reads`.',
          },
        },
      },
      example: { body: { kind: 'rate_limit', path: '/users/track', times: 2 }, reply: SUCCESS },
      async handle(fault: Fault) {
        if (fault.kind === 'object_errors' && !fault.errors)
          return { status: 400, body: { message: "'errors' is required for the kind 'object_errors'" } };
        await faults.add({ ...fault, times: fault.times ?? 1 });
        return { body: SUCCESS };
      },
    },
    {
      id: 'dev.faults.clear',
      method: 'DELETE',
      path: `${CONTROL_ROOT}/faults`,
      summary: 'Remove all faults',
      description: 'Removes all faults that are still to be applied.',
      example: { reply: SUCCESS },
      async handle() {
        await faults.clear();
        return { body: SUCCESS };
      },
    },
  ];

  function listRequests(wanted: RequestMatcher): ControlReply {
    const requests = journal.find(wanted);
    return { body: { count: requests.length, requests } };
  }

  const byTarget = new Map(
    endpoints.map((one) => [
      `${one.method} ${one.path}`,
      { endpoint: one, isValid: compile(one.body ?? { type: 'object' }) },
    ]),
  );

  async function answer(request: IncomingMessage): Promise<ControlReply> {
    // A page of another site that a developer has open could send requests here. Browsers send the site's origin.
    if (request.headers.origin !== undefined)
      return { status: 403, body: { message: 'Control endpoints refuse requests with the header Origin.' } };
    const path = pathOf(request.url!);
    const match = byTarget.get(`${request.method} ${path}`);
    if (!match) {
      const isPath = endpoints.some((one) => one.path === path);
      return isPath
        ? { status: 405, body: { message: 'Method Not Allowed' } }
        : { status: 404, body: { message: `There is no control endpoint ${path}.` } };
    }
    const { endpoint, isValid } = match;
    const { bytes, isWhole } = await readUpTo(MAX_BODY_BYTES, request);
    if (!isWhole)
      return { status: 413, body: { message: `The body has more than ${MAX_BODY_BYTES} bytes.` } };
    const { localAddress = '', localPort } = request.socket;
    const origin = `http://${localAddress.includes(':') ? `[${localAddress}]` : localAddress}:${localPort}`;
    if (endpoint.alsoType) return endpoint.handle(bytes.toString() as never, origin);
    let body: unknown;
    try {
      body = bytes.length === 0 ? {} : JSON.parse(bytes.toString());
    } catch {
      return { status: 400, body: { message: 'The body is not valid JSON.' } };
    }
    if (!isValid(body)) return { status: 400, body: { message: describeError(isValid.errors![0]!).error } };
    return endpoint.handle(body as never, origin);
  }

  function respond(request: IncomingMessage, response: ServerResponse): void {
    answer(request)
      .catch((error: Error): ControlReply => ({ status: 500, body: { message: error.message } }))
      .then(({ status = 200, body }) => {
        response.writeHead(status, { 'Content-Type': 'application/json; charset=utf-8' });
        response.end(JSON.stringify(body));
      });
  }

  function take<Request extends IncomingMessage>(
    request: Request,
    response: ServerResponse,
    handle: Handle<Request>,
  ): void {
    inHand++;
    response.once('close', () => {
      inHand--;
    });
    const isOwn = faults.isPassedOn(request);
    const fault = isOwn ? undefined : faults.next(request);
    const record = () => journal.record(request, response);
    const database = faults.staleDatabase(request);
    const proceed = database
      ? () => withOperationFaults({ database }, () => handle(request, response))
      : () => handle(request, response);
    if (fault) return void faults.apply(fault, { request, response, record, proceed });
    if (!isOwn) record();
    proceed();
  }

  return {
    endpoints,

    /** Prepares an operation for the faults of its requests. */
    prepare(operation: Operation): Operation {
      limits.set(`${operation.method} ${operation.path}`, buckets[operation.bucket].requests);
      return faulty(operation);
    },

    /** Notes the rejected objects of a request. */
    noteRejected({ requestId, operation, body, rejected: rejections }: RefusedObjectsOf): void {
      for (const { type, input_array, index } of rejections) {
        if (rejected.length >= MAX_LISTED) return;
        const object = (body?.[input_array as string] as unknown[] | undefined)?.[index as number] ?? null;
        rejected.push({ request_id: requestId, operation, type, input_array, index, object });
      }
    },

    /** Wraps the handler of all requests. */
    wrap<Request extends IncomingMessage>(handle: Handle<Request>): Handle<Request> {
      return (request, response) => {
        noteActivity();
        const path = pathOf(request.url ?? '');
        if (path === CONTROL_ROOT || path.startsWith(`${CONTROL_ROOT}/`)) return respond(request, response);
        if (gate && !faults.isPassedOn(request)) void gate.then(() => take(request, response, handle));
        else take(request, response, handle);
      };
    },
  };
}

export type Control = ReturnType<typeof createControl>;
