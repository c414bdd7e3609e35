import { Redis } from '../../src/queue/ioredis.ts';
import type { TestRedis } from '../setup/fixtures.ts';

/** The address for a user who may do everything but CONFIG, as a managed service has it. */
export async function withoutConfig({ url, port }: TestRedis): Promise<string> {
  const redis = new Redis(url);
  await redis.call('ACL', 'SETUSER', 'guest', 'on', '>secret', '~*', '&*', '+@all', '-config');
  redis.disconnect();
  return `redis://guest:secret@127.0.0.1:${port}`;
}
