import { readdirSync, rmSync, statSync, truncateSync } from 'node:fs';
import path from 'node:path';
import { everyLaneMoves, type Fleet } from '../../../test/setup/fleet.ts';
import { startRedis } from '../../../test/setup/redis.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import { untilAccepted } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

/** The log line with which every process reports the loss. */
const LOSS_MESSAGE = /^Redis came back/;

/** Content of Redis when it comes back, and whether the processes were killed. */
type Round = 'empty' | 'empty, everything killed' | 'less';

const LONG: Round[] = ['empty', 'less', 'empty, everything killed', 'empty', 'less'];
const SHORT: Round[] = ['empty', 'less', 'empty, everything killed'];

export const emptyRedis: Scenario = {
  number: 7,
  fault: 'Redis comes back empty, or with less than it had',
  backends: ['redis'],
  spoils: true,
  async run(scene) {
    const { fleet, load, knockKey, circles } = await beginTraffic(scene, {
      env: { QUEUE_TIMEOUT_MS: '700' },
    });
    let redis = fleet.redis!;
    const kills: number[] = [];
    let silent = 0;
    for (const round of scene.choose(LONG, SHORT)) {
      await load.more(100);
      const file = appendOnlyFile(redis.dir);
      const size = statSync(file).size;
      await load.more(200);
      scene.say(`killing Redis, which comes back: ${round}`);
      const edges = [...fleet.edges];
      const workers = fleet.workers.length;
      await redis.kill();
      kills.push(Date.now());
      const before = new Map(allMembers(fleet).map((member) => [member, reportsOf(member)]));
      if (round === 'empty, everything killed')
        for (const member of allMembers(fleet)) await fleet.end(member);
      if (round === 'less') truncateSync(file, size);
      else rmSync(path.join(redis.dir, 'appendonlydir'), { recursive: true });
      redis = await startRedis({ port: redis.port, dir: redis.dir });
      fleet.redis = redis;
      const from = Date.now();
      if (round === 'empty, everything killed') {
        await Promise.all([
          ...edges.map(({ port }) => fleet.startEdge(port)),
          ...Array.from({ length: workers }, () => fleet.startWorker()),
        ]);
      }
      await untilAccepted(fleet, knockKey, 30_000);
      await everyLaneMoves(fleet, 30_000);
      scene.recovered(Date.now() - from);
      const isSilent = (member: Member) => reportsOf(member) <= (before.get(member) ?? 0);
      await waitUntil(() => !allMembers(fleet).some(isSilent), { what: 'all to tell it' }).catch(() => {});
      silent += allMembers(fleet).filter(isSilent).length;
      await load.more(scene.choose(3000, 500));
    }
    // The lost requests of a circle cannot be determined from outside, but every lane must continue.
    await circles.stop();
    await scene.waitUntilApplied(fleet, {
      load,
      // Requests shortly before the kill may have been accepted and lost.
      mayLose: ({ sentAt }) => kills.some((kill) => sentAt < kill && kill - sentAt < 30_000),
    });
    scene.figure('processes that do not tell the operator', silent, '', { atMost: 0 });
    scene.figure('work resumes after it is back', Math.max(...scene.recoveries) / 1000, 's', { atMost: 10 });
  },
};

type Member = Fleet['workers'][number];

const allMembers = (fleet: Fleet): Member[] => [...fleet.edges, ...fleet.workers];

const reportsOf = ({ log }: Member): number => log.filter(({ msg }) => LOSS_MESSAGE.test(String(msg))).length;

/** Returns the append-only file of Redis. */
function appendOnlyFile(dir: string): string {
  const folder = path.join(dir, 'appendonlydir');
  return path.join(folder, readdirSync(folder).find((name) => name.endsWith('.incr.aof'))!);
}
