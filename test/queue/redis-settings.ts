import { Redis } from '../../src/queue/ioredis.ts';
import type { TestRedis } from '../setup/fixtures.ts';

/** Returns the address for a user who may run all commands except CONFIG, as on a managed service. */
export async function withoutConfig({ url, port }: TestRedis): Promise<string> {
  const redis = new Redis(url);
  await redis.call('ACL', 'SETUSER', 'guest', 'on', '>secret', '~*', '&*', '+@all', '-config');
  redis.disconnect();
  return `redis://guest:secret@127.0.0.1:${port}`;
}
