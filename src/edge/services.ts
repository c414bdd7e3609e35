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

/** What every request is served with. */
export interface EdgeServices {
  config: Config;
  log: Log;
  /** For what is asked by nobody who is known. */
  strangers: StrangersLog;
  metrics: EdgeMetrics;
  authenticator: Authenticator;
  scimAuthenticator: ScimAuthenticator;
  /** What connectors send in bursts, a few requests at a time. */
  scimSemaphore: Semaphore;
  /** What may have a large answer. */
  largeSemaphore: Semaphore;
  /** Lets large bodies in. */
  reading: Reading;
  heads: Heads;
  /** Bounds what responses that are not read take. */
  responses: Responses;
  rateLimiter: RateLimiter;
  /** Of the workspaces whose requests are to be read and planned. */
  turns: Turns;
  queue: GroupCommit;
  idempotency: Idempotency;
  /** Says why nothing more may be stored, by the queue or straight in the store, if so. */
  loadShedding: Pick<LoadShedding, 'overload'>;
  refusedObjects: Pick<RefusedObjects, 'note'>;
  effects: Effects;
  resources: Resources;
}

/** An operation with its validators, compiled at boot. */
export interface Endpoint {
  operation: Operation;
  /** Of direct operations. */
  body: Validator | undefined;
  query: Validator | undefined;
}
