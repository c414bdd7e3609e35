import { fullRedis } from './scenarios/06-full-redis.ts';
import { emptyRedis } from './scenarios/07-empty-redis.ts';
import { stoppedPostgres } from './scenarios/08-stopped-postgres.ts';
import { fullDisk } from './scenarios/24-full-disk.ts';
import { shortForm } from './short-form.ts';

shortForm(fullRedis);
shortForm(emptyRedis);
shortForm(stoppedPostgres);
shortForm(fullDisk);
