import { redisCluster } from '../../tools/chaos/scenarios/30-redis-cluster.ts';
import { shortForms } from './short-form.ts';

// A cluster loses primaries, slots and its majority.
shortForms('redis', [redisCluster]);
