import type { Operation, Resources } from '../operations/operation.ts';
import type { Semaphore } from '../platform/concurrency.ts';
import type { Config } from '../platform/config.ts';
import type { Log, StrangersLog } from '../platform/log.ts';
import type { Effects } from '../queue/effects.ts';
import type { GroupCommit } from '../queue/enqueue.ts';
import type { Validator } from '../schemas/compile.ts';
import type { Authenticator, ScimAuthenticator } from './authenticate.ts';
import type { Heads } from './heads.ts';
import type { Idempotency } from './idempotency.ts';
import type { LoadShedding } from './load-shedding.ts';
import type { EdgeMetrics } from './metrics.ts';
import type { RateLimiter } from './rate-limit.ts';
import type { Reading } from './reading.ts';
import type { RefusedObjects } from './refused-objects.ts';
import type { Responses } from './responses.ts';
import type { Turns } from './turns.ts';

/** The services that handle every request. */
export interface EdgeServices {
  config: Config;
  log: Log;
  /** Log for requests of unauthenticated callers. */
  strangers: StrangersLog;
  metrics: EdgeMetrics;
  authenticator: Authenticator;
  scimAuthenticator: ScimAuthenticator;
  /** Limits requests of SCIM connectors, which arrive in bursts, to a few at a time. */
  scimSemaphore: Semaphore;
  /** Limits requests that may have a large answer. */
  largeSemaphore: Semaphore;
  /** Admits large bodies. */
  reading: Reading;
  heads: Heads;
  /** Bounds the memory of responses that clients do not read. */
  responses: Responses;
  rateLimiter: RateLimiter;
  /** Turns of workspaces whose requests wait to be read and planned. */
  turns: Turns;
  queue: GroupCommit;
  idempotency: Idempotency;
  /** Returns the reason if no more may be stored, through the queue or directly in the store. */
  loadShedding: Pick<LoadShedding, 'overload'>;
  refusedObjects: Pick<RefusedObjects, 'note'>;
  effects: Effects;
  resources: Resources;
}

/** An operation with its validators, compiled at boot. */
export interface Endpoint {
  operation: Operation;
  /** Only for direct operations. */
  body: Validator | undefined;
  query: Validator | undefined;
}
