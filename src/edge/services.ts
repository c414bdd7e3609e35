import type { ValidateFunction } from 'ajv';
import type { Config } from '../config.ts';
import type { Log } from '../log.ts';
import type { Operation, Resources } from '../operations/operation.ts';
import type { GroupCommit } from '../queue/group-commit.ts';
import type { Authenticator } from './authenticate.ts';
import type { ScimAuthenticator } from './authenticate-scim.ts';
import type { Effects } from './effects.ts';
import type { EdgeMetrics } from './metrics.ts';
import type { Once } from './once.ts';
import type { RateLimiter } from './rate-limit.ts';
import type { Reading } from './reading.ts';
import type { InTurn } from './turns.ts';

/** What every request is served with. */
export interface EdgeServices {
  config: Config;
  log: Log;
  metrics: EdgeMetrics;
  authenticator: Authenticator;
  scimAuthenticator: ScimAuthenticator;
  /** What connectors send in bursts, a few requests at a time. */
  scimTurns: InTurn;
  /** Lets large bodies in. */
  reading: Reading;
  rateLimiter: RateLimiter;
  queue: GroupCommit;
  once: Once;
  /** Says why nothing more may be stored, by the queue or straight in the store, if so. */
  overload(through: 'queue' | 'store'): string | undefined;
  effects: Effects;
  resources: Resources;
}

/** An operation with its validators, compiled at boot. */
export interface Endpoint {
  operation: Operation;
  body: ValidateFunction | undefined;
  query: ValidateFunction | undefined;
}
