import { startOwnPostgres } from '../../tools/chaos/own-postgres.ts';
import { killedRedis } from '../../tools/chaos/scenarios/04-killed-redis.ts';
import { frozenRedis } from '../../tools/chaos/scenarios/05-frozen-redis.ts';
import { fullRedis } from '../../tools/chaos/scenarios/06-full-redis.ts';
import { emptyRedis } from '../../tools/chaos/scenarios/07-empty-redis.ts';
import { stoppedPostgres } from '../../tools/chaos/scenarios/08-stopped-postgres.ts';
import { fullDisk } from '../../tools/chaos/scenarios/24-full-disk.ts';
import { heldSnapshot } from '../../tools/chaos/scenarios/33-held-snapshot.ts';
import { isLong } from '../setup/length.ts';
import { shortForms } from './short-form.ts';

// Stores are killed, frozen, full, empty.
shortForms('redis', [killedRedis, frozenRedis, fullRedis, stoppedPostgres, emptyRedis, fullDisk], {
  env: { QUEUE_TIMEOUT_MS: '700' },
  startPostgres: startOwnPostgres,
});
// The full disk of Postgres is tested with the queue in Redis, too.
shortForms('postgres', [stoppedPostgres, heldSnapshot, ...(isLong ? [fullDisk] : [])]);
