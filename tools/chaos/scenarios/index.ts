import type { Scenario } from '../scenario.ts';
import { killedWorkers } from './01-killed-workers.ts';
import { killedEdges } from './02-killed-edges.ts';
import { rollingRestart } from './03-rolling-restart.ts';
import { killedRedis } from './04-killed-redis.ts';
import { frozenRedis } from './05-frozen-redis.ts';
import { fullRedis } from './06-full-redis.ts';
import { emptyRedis } from './07-empty-redis.ts';
import { stoppedPostgres } from './08-stopped-postgres.ts';
import { cutCommits } from './09-cut-commits.ts';
import { deliveredThrice } from './10-delivered-thrice.ts';
import { oneKey } from './11-one-key.ts';
import { crossingMerges } from './12-crossing-merges.ts';
import { races } from './13-races.ts';
import { poison } from './14-poison.ts';
import { hostileCharacters, hostileNames, hostileNumbers, hostileShapes } from './15-hostile-values.ts';
import { largeBodies } from './19-large-bodies.ts';
import { slowSockets } from './20-slow-sockets.ts';
import { wrongClocks } from './21-wrong-clocks.ts';
import { sharedLimit } from './22-shared-limit.ts';
import { badNetwork } from './23-bad-network.ts';
import { fullDisk } from './24-full-disk.ts';
import { soak } from './25-soak.ts';
import { otherRelease } from './26-other-release.ts';
import { redisCluster } from './30-redis-cluster.ts';
import { movedWorkspace } from './31-moved-workspace.ts';
import { overload } from './32-overload.ts';
import { heldSnapshot } from './33-held-snapshot.ts';
import { oneWayPartition } from './34-one-way-partition.ts';
import { sessionPooler, transactionPooler } from './37-connection-pooler.ts';
import { powerCuts } from './39-power-cuts.ts';
import { listHistories } from './40-list-histories.ts';

/** The scenarios in the order of the list of faults. */
export const scenarios: Scenario[] = [
  ...[killedWorkers, killedEdges, rollingRestart],
  ...[killedRedis, frozenRedis, fullRedis, emptyRedis],
  ...[stoppedPostgres, cutCommits, deliveredThrice, oneKey],
  ...[crossingMerges, races, poison],
  ...[hostileCharacters, hostileNumbers, hostileShapes, hostileNames, largeBodies],
  ...[slowSockets, wrongClocks, sharedLimit, badNetwork, fullDisk],
  ...[soak, otherRelease, redisCluster, movedWorkspace],
  ...[overload, heldSnapshot, oneWayPartition],
  ...[transactionPooler, sessionPooler, listHistories, powerCuts],
];
