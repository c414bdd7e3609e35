import type { QueueConnection } from './queue/connection.ts';
import type { Pool } from './store/database.ts';
import { isMigrated } from './store/is-migrated.ts';
import { within } from './within.ts';

/** Milliseconds in which a dependency has to answer. */
const PATIENCE = 1000;

/**
 * `migrations`: Postgres answers, but lacks tables of this version. `redis`: of the queue, or of the rate limits.
 * `queue`: that in Postgres.
 */
export type Missing = 'postgres' | 'migrations' | 'redis' | 'queue';

/** What a process cannot do without and does not have now, each by name; known after a second at the latest. */
export async function checkReadiness(
  pool: Pool,
  connection: QueueConnection,
  pingLimits: () => Promise<void> = async () => {},
): Promise<Missing[]> {
  const checks: Promise<Missing | undefined>[] = [
    within(PATIENCE, isMigrated(pool, PATIENCE)).then(
      (migrated) => (migrated ? undefined : 'migrations'),
      () => 'postgres',
    ),
    within(PATIENCE, connection.ping(PATIENCE)).then(
      () => undefined,
      () => (connection.kind === 'redis' ? 'redis' : 'queue'),
    ),
    within(PATIENCE, pingLimits()).then(
      () => undefined,
      () => 'redis',
    ),
  ];
  return (await Promise.all(checks)).filter((name) => name !== undefined);
}
