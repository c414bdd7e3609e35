import type { QueueConnection } from './queue/connection.ts';
import type { Pool } from './store/database.ts';

const PATIENCE_MS = 1000;

/** What a process cannot do without and does not have now, each by name. */
export async function checkReadiness(pool: Pool, connection: QueueConnection): Promise<string[]> {
  const checks = [
    within(pool.query('select 1')).then(
      () => undefined,
      () => 'postgres',
    ),
    connection.ping().then(
      () => undefined,
      () => (connection.kind === 'redis' ? 'redis' : 'queue'),
    ),
  ];
  return (await Promise.all(checks)).filter((name) => name !== undefined);
}

async function within(work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('no answer')), PATIENCE_MS);
  });
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
