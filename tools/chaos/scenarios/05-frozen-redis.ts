import { everyLaneMoves } from '../../../test/setup/fleet.ts';
import { residentMegabytes } from '../../resident-megabytes.ts';
import { longest, notUnavailable, requestFor, untilAccepted } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

export const frozenRedis: Scenario = {
  number: 5,
  fault: 'Redis frozen (SIGSTOP)',
  backends: ['redis'],
  async run(scene) {
    const { fleet, load, circles, knockKey } = await beginTraffic(scene, {
      env: { QUEUE_TIMEOUT_MS: '700' },
    });
    const { pid } = fleet.redis!;
    const before = fleet.edges.map((edge) => residentMegabytes(edge.pid) ?? 0);
    process.kill(pid, 'SIGSTOP');
    const answers = await requestFor(fleet, knockKey, scene.choose(10_000, 2000)).finally(() =>
      process.kill(pid, 'SIGCONT'),
    );
    const growth = fleet.edges.map((edge, index) => (residentMegabytes(edge.pid) ?? 0) - before[index]!);
    const from = Date.now();
    await untilAccepted(fleet, knockKey, 30_000);
    await everyLaneMoves(fleet, 30_000);
    scene.recovered(Date.now() - from);
    await load.more(100);
    await scene.waitUntilApplied(fleet, { load, circles });
    const others = notUnavailable(answers).length;
    scene.figure('answers while it is frozen that are no 503 with Retry-After', others, '', { atMost: 0 });
    scene.figure('slowest 503', longest(answers) / 1000, 's', { atMost: 1, firm: true });
    const odd = load.journal.requestsBut([201, 503]);
    scene.figure('requests of the load with another answer than 201 and 503', odd, '', { atMost: 0 });
    scene.figure('growth of an edge', Math.max(...growth), 'MB', { atMost: 100 });
    scene.figure('work resumes after it thaws', scene.recoveries.at(-1)! / 1000, 's', { atMost: 10 });
  },
};
