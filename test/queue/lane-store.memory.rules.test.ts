import { QueueUnavailable } from '../../src/queue/lanes.ts';
import { LaneServer } from '../../tools/simulate/lanes/server.ts';
import { MemoryLaneStore } from '../../tools/simulate/lanes/store.ts';
import { CALM, Link } from '../../tools/simulate/link.ts';
import { Trace } from '../../tools/simulate/trace.ts';
import { Host, World } from '../../tools/simulate/world.ts';
import { describeLaneStore, type StoreServer } from './lane-store-cases.ts';

const LANES = 32;

/** Advances the simulated time at the speed of real time. */
function keepPace(world: World): () => void {
  const started = performance.now();
  let isStopped = false;
  async function run(): Promise<void> {
    while (!isStopped) {
      await world.run(() => false, performance.now() - started);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
  void run();
  return () => {
    isStopped = true;
  };
}

describeLaneStore('the memory of a simulation', async (): Promise<StoreServer> => {
  const world = new World(1, { epoch: Date.now() });
  const server = new LaneServer(world, {
    lanes: LANES,
    kind: 'redis',
    trace: new Trace(world, { keepsLines: false }),
  });
  const links: Link[] = [];
  let processes = 0;
  const stop = keepPace(world);
  return {
    connect() {
      const host = new Host(world, `process ${processes++}`);
      const openLink = (name: string, resends: boolean) => {
        const link = new Link(name, { host, resends, weather: () => CALM });
        links.push(link);
        return link;
      };
      const laneStore = new MemoryLaneStore({
        ...{ host, server, lanes: LANES, hasReplica: false },
        link: openLink('queue', true),
        producerLink: openLink('producer', false),
        unavailable: (message, cause) => new QueueUnavailable(message, { cause }),
      });
      return { laneStore, stop: async () => host.kill() };
    },
    dropsProducers: true,
    pause: async (lane) => server.pause(lane, true),
    resume: async (lane) => server.pause(lane, false),
    forgetLimit: async (lane) => server.forgetLimit(lane),
    async comeBackEmpty() {
      server.comeBackEmpty();
      for (const link of links) link.cut(20);
    },
    expireLock: async (lane) => server.expireLocks(lane),
    async failDuring(add) {
      const ended = add().catch(() => {});
      for (const link of links) link.cut(50);
      await ended;
    },
    stop: async () => stop(),
  };
});
