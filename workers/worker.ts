import { type Host, runMain } from '../src/processes/host.ts';
import { addOldestMetric } from '../src/processes/metrics.ts';
import { openWorkingProcess } from '../src/processes/process.ts';
import { laneCount, layoutOf } from '../src/queue/lanes.ts';
import { watchOldest } from '../src/queue/oldest.ts';
import { forgetAttributeNames } from './batch/run-batch.ts';
import { Fences, listenForFenceNews } from './fence/fences.ts';
import { type Lanes, startLanes } from './lane/lanes.ts';
import { Scheduler } from './lane/scheduler.ts';
import { createWorkerMetrics } from './metrics.ts';
import { startDeadLetters } from './upkeep/dead-letters.ts';
import { startTombstoneCleanup } from './upkeep/tombstones.ts';
import { startUpkeep } from './upkeep/upkeep.ts';

/** Runs the Procfile's `worker` process, which applies the jobs of the lanes. Several can run at the same time. */
async function main(host: Host): Promise<void> {
  const metrics = createWorkerMetrics(!host.stores);
  let lanes: Lanes | undefined;
  const opened = await openWorkingProcess(host, 'worker', {
    ...{ registry: metrics.registry, objects: metrics.objects, lanes: metrics.lanes },
    held: () => lanes?.held() ?? [],
  });
  const { id, config, log, directUrl, pool, connection, dependencies, installation, services } = opened;
  const { producer, producerConnection: observer } = opened;
  await installation.confirmed;
  host.control?.onForget(() => forgetAttributeNames(pool));

  const upkeep = await dependencies.whenComplete(() =>
    startUpkeep({ laneStore: connection.laneStore, pool, objects: metrics.objects, config, log }),
  );
  const deadLetters = startDeadLetters({
    ...{ connection, producer, log, config },
    database: { pool },
    lanes: config.LANES,
  });
  const settling = startTombstoneCleanup(pool, log, () => void deadLetters.forgetErased());
  const scheduler = new Scheduler(pool, {
    ...{ metrics, log, processId: id, writes: opened.writes },
    onDeadLetters: (ids) => void deadLetters.show(ids),
    onTombstones: settling.wake,
  });
  const fences = new Fences({ pool, layout: layoutOf(config), metrics, log });
  // A single lane has no other lane to wait for at a fence.
  const news = config.LANES > 1 ? [listenForFenceNews(directUrl, fences.hear, log)] : [];
  lanes = startLanes({
    ...{ id, connection, observer, databaseUrl: directUrl, scheduler, fences, config, log },
    onChange: opened.beatSoon,
  });
  const oldest = watchOldest(observer.laneStore, {
    lanes: laneCount(config),
    maxAgeMs: config.MAX_ENVELOPE_AGE_MS,
    log,
  });
  addOldestMetric(metrics.registry, oldest.ages);

  services.push(upkeep, deadLetters, settling, ...news, oldest, lanes);
  opened.ready({ lanes: laneCount(config) }, { stuck: oldest.tooOld, unreadable: lanes.unreadable });
}

runMain('worker', main);
